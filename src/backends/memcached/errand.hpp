#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/requests.hpp"
#include "backends/memcached/record.hpp"
#include "backends/memcached/wire.hpp"
#include "base/result.hpp"
#include <sallyport/error.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

/// The rules of locking on memcached: what is said for each request, and what each answer means.
/// Pure: no clock, no socket, no thread; answers in, commands out.
namespace sallyport::backends::memcached {

using backend_api::duration;
using backend_api::time_point;

/// memcached's clock is a number that one thread sets to whole seconds about once a second. It may
/// be a second behind because it is rounded down, and another because it was last set that long ago:
/// an item lives up to two seconds less than it was given. So it is given two more.
inline constexpr std::chrono::seconds clock_slack{2};
/// How often an errand looks again when others change the item in between.
inline constexpr unsigned most_rounds = 8;

/// The time that an item is given for a grant of this length.
[[nodiscard]] std::int64_t seconds_for(duration lease_length);
/// What is left at least of an item's time, given what the server says.
[[nodiscard]] duration left_of(std::int64_t seconds);
/// When a waiter is to ask again: jittered, growing to longest_poll. `draw` is in [0, 1).
[[nodiscard]] duration poll_pause(unsigned polls, double draw);
inline constexpr std::chrono::milliseconds first_poll{10};
inline constexpr std::chrono::milliseconds longest_poll{100};
/// A client that leaves a lock for which others have asked does not wait for it again before this,
/// so that each of them has asked once. Otherwise one that comes again and again would always be
/// first, and the others would never see the lock free.
inline constexpr std::chrono::milliseconds courtesy{longest_poll + std::chrono::milliseconds{20}};

/// What a client knows of a grant of its own: it saves the reading before a renewal or release. The
/// CAS counts only on the connection that told it: another connection may lead to a server that was
/// started anew and gives the same numbers to others' items.
struct grant_memory {
  record said;
  std::uint64_t cas = 0;
  bool wanted = false;  ///< somebody has asked for the lock since
};

/// What an errand wants next.
struct errand_step {
  std::optional<wire_command> say;  ///< nothing: it is finished, and `verdict` is its answer
  bool by_cas = false;  ///< only on the connection that the CAS came from, or not at all
};

/// One request on its way: call begin(), do what it says, and heard() with what came, until it says
/// nothing any more.
/// Thread safety: none.
class errand {
 public:
  errand() = default;
  errand(const errand&) = delete;
  errand& operator=(const errand&) = delete;
  virtual ~errand() = default;

  virtual errand_step begin() = 0;
  virtual errand_step heard(const reply& said) = 0;
  /// The command was not sent, since the connection of its CAS is gone.
  virtual errand_step not_bound() { return begin_by_reading(); }

 protected:
  explicit errand(std::string key) : key_(std::move(key)) {}

  [[nodiscard]] errand_step begin_by_reading() const { return {.say = read_item(key_)}; }
  [[nodiscard]] errand_step replace(const record& by, std::int64_t seconds,
                                    std::uint64_t cas) const {
    return {.say = replace_item(key_, to_value(by), seconds, cas), .by_cas = true};
  }
  [[nodiscard]] errand_step remove(std::uint64_t cas) const {
    return {.say = delete_item(key_, cas), .by_cas = true};
  }
  /// False: it has looked often enough.
  [[nodiscard]] bool once_more() noexcept { return ++rounds_ < most_rounds; }

  std::string key_;  // NOLINT(*-non-private-member-variables-in-classes)

 private:
  unsigned rounds_ = 0;
};

/// `add`, or for one that has asked before first a look: the item may be its own.
class acquire_errand final : public errand {
 public:
  struct question {
    std::string key;
    record mine;
    duration lease_length{};
    bool may_wait = false;
    bool asked_before = false;
    duration pause{};  ///< for the answer `waiting`
  };
  explicit acquire_errand(question asked);

  errand_step begin() override;
  errand_step heard(const reply& said) override;

  [[nodiscard]] const backend_api::holder_id& holder() const noexcept { return asked_.mine.holder; }

  base::result<backend_api::acquire_answer> verdict;
  std::optional<grant_memory> granted;  ///< what to remember

 private:
  errand_step add();
  errand_step heard_store(const reply& said);
  errand_step judge(const reply& said);
  errand_step grant(record what, const reply& said, duration remaining);
  errand_step fail(errc code, std::string why);

  question asked_;
  std::string value_;  // of the item that was added
};

/// `cas` with the number that is remembered, or after a look. Never creates an item.
class renew_errand final : public errand {
 public:
  struct question {
    std::string key;
    backend_api::holder_id holder;
    duration lease_length{};
    bool draw_token = false;
    std::uint32_t local_waiters = 0;
  };
  renew_errand(question asked, std::optional<grant_memory> known);

  errand_step begin() override;
  errand_step heard(const reply& said) override;

  base::result<backend_api::renew_answer> verdict;
  std::optional<grant_memory> renewed;

 private:
  errand_step extend(record what, std::uint64_t cas);

  question asked_;
  std::optional<grant_memory> known_;
};

/// Release and withdraw: deletes the item by its CAS, if it is this holder's.
class leave_errand final : public errand {
 public:
  /// `known`: the CAS, if it is remembered; 0: it is not.
  leave_errand(std::string key, const backend_api::holder_id& holder, std::uint64_t known);

  errand_step begin() override;
  errand_step heard(const reply& said) override;

  base::result<backend_api::leave_answer> verdict;
  bool wanted = false;  ///< somebody has asked for the lock since it was granted or last renewed

 private:
  backend_api::holder_id holder_;
  std::uint64_t known_;
};

/// Replaces an election's value, and nothing else.
class value_errand final : public errand {
 public:
  value_errand(std::string key, const backend_api::holder_id& holder, std::string value);

  errand_step begin() override { return begin_by_reading(); }
  errand_step heard(const reply& said) override;

  base::result<bool> verdict;
  std::optional<grant_memory> now;

 private:
  backend_api::holder_id holder_;
  std::string value_;
};

/// Looks.
class who_errand final : public errand {
 public:
  who_errand(std::string key, lock_name name, std::int64_t wall_clock_ms);

  errand_step begin() override { return begin_by_reading(); }
  errand_step heard(const reply& said) override;

  base::result<std::optional<lock_info>> verdict;

 private:
  lock_name name_;
  std::int64_t now_ms_;
};

/// Takes a grant away, if it is the one that was observed.
class break_errand final : public errand {
 public:
  break_errand(std::string key, fencing_token observed, backend_api::break_mode mode);

  errand_step begin() override { return begin_by_reading(); }
  errand_step heard(const reply& said) override;

  base::result<std::monostate> verdict;

 private:
  errand_step judge(const reply& said);
  errand_step fail(base::failure why);

  fencing_token observed_;
  backend_api::break_mode mode_;
};

}  // namespace sallyport::backends::memcached

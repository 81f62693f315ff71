#pragma once

#include "backend_api/backend.hpp"
#include "base/fork_generation.hpp"
#include "client/observations.hpp"
#include "runtime/audience.hpp"
#include "runtime/engine.hpp"
#include "runtime/threads.hpp"
#include <sallyport/acquiring.hpp>
#include <sallyport/client.hpp>
#include <sallyport/lease.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <system_error>

namespace sallyport::detail {

class entry;

/// What all copies of a client, its locks and its leases share: the engine, its threads and the
/// backend.
/// Thread safety: all members.
class client_state : public std::enable_shared_from_this<client_state> {
 public:
  static std::shared_ptr<client_state> open(std::string_view uri, client_options options);
  /// As client::schema.
  static std::string schema(std::string_view uri, const client_options& options);
  client_state(std::string_view uri, client_options options);
  ~client_state();
  client_state(const client_state&) = delete;
  client_state& operator=(const client_state&) = delete;

  /// False in a forked child: nothing but the destructor may be called there.
  [[nodiscard]] bool alive() const noexcept { return born_ == base::fork_generation(); }
  /// Throws lock_error (forked) unless alive().
  void ensure_alive() const;
  /// The same as a value: without a code when alive().
  [[nodiscard]] base::failure dead_in_child() const;

  [[nodiscard]] const capabilities& can() const noexcept { return inside_->store->capabilities(); }
  [[nodiscard]] runtime::engine& engine() noexcept { return inside_->engine; }
  [[nodiscard]] backend_api::backend& store() noexcept { return *inside_->store; }
  [[nodiscard]] runtime::threads& world() noexcept { return inside_->world; }
  [[nodiscard]] observations& observed() noexcept { return inside_->observed; }
  [[nodiscard]] const client_options& options() const noexcept { return options_; }

  /// Checks the wishes against what the store can do. Throws lock_error: bad_option, not_supported,
  /// forked.
  [[nodiscard]] std::shared_ptr<const runtime::lock_spec> make_spec(
      const lock_name& name, lock_kind kind, lock_mode mode, std::uint32_t permits,
      const lock_options& options) const;

  /// Starts what calls into the engine will need: then they do not fail for want of a thread.
  [[nodiscard]] std::error_code start_threads(bool news) noexcept;

  /// Blocks until granted, `until`, or `stop`. Empty without error: somebody else has it.
  [[nodiscard]] std::shared_ptr<runtime::lease_record> acquire(
      const std::shared_ptr<const runtime::lock_spec>& spec, lease_clock::time_point until,
      const std::stop_token& stop, std::string_view value, std::error_code& error) noexcept;
  [[nodiscard]] release_result release(runtime::lease_record& record) noexcept;
  /// Blocks until the lease is claimed, or has ended.
  void claim(runtime::lease_record& record);
  void downgrade(runtime::lease_record& record, std::error_code& error) noexcept;

  /// Blocks until the ticket is finished, lending this thread to the backend where it can use it. If
  /// that finds no memory for what it hears, others hear, and this thread waits.
  void wait(backend_api::drive_ticket& ticket) noexcept;
  /// The same, unless this thread finds no memory for what it hears. False: then the ticket is still
  /// to be waited for.
  [[nodiscard]] bool drive(backend_api::drive_ticket& ticket) noexcept;

  [[nodiscard]] lease make_lease(std::shared_ptr<runtime::lease_record> record,
                                 std::shared_ptr<entry> entered = nullptr);
  [[nodiscard]] static const std::shared_ptr<runtime::lease_record>& record_of(
      const lease_view& view) noexcept {
    return view.record_;
  }
  [[nodiscard]] lease_view make_view(std::shared_ptr<runtime::lease_record> record);

 private:
  struct innards {
    innards(client_state& owner, const client_options& options,
            const std::shared_ptr<const runtime::audience>& observers);
    /// Outlives the threads that finish it.
    struct departure final : runtime::word_waiter {
      void finished() noexcept override { ticket.finish(); }
      backend_api::drive_ticket ticket;
    } last_word;
    runtime::threads world;
    runtime::engine engine;
    observations observed;
    std::unique_ptr<backend_api::backend> store;
  };

  /// Lets the store hear of the last releases and withdrawals; bounded.
  void say_farewell();

  const client_options options_;
  const std::shared_ptr<const runtime::audience> observers_;  // null: none
  const std::uint32_t born_;
  std::unique_ptr<innards> inside_;
};

/// Sets `error` and remembers the sentence for to_lock_error on this thread. Needs no memory.
void report(std::error_code& error, std::error_code code, std::string_view sentence = {}) noexcept;
inline void report(std::error_code& error, const base::failure& why) noexcept {
  report(error, why.code, why.detail);
}
/// Throws lock_error with code and sentence.
[[noreturn]] void throw_failure(const base::failure& why);

/// Runs an asynchronous inspection of the backend to its end on this thread. Throws std::bad_alloc only
/// if the request could not be made; a backend that had begun it may answer later, to nobody.
template <class T, class Start>
[[nodiscard]] base::result<T> await_completion(client_state& state, Start&& start) {
  struct meeting {
    backend_api::drive_ticket ticket;
    base::result<T> answer = base::fail(make_error_code(errc::outcome_unknown));
  };
  const auto here = std::make_shared<meeting>();
  start([here](base::result<T> answer) {
    here->answer = std::move(answer);
    here->ticket.finish();
  });
  state.wait(here->ticket);
  state.engine().store_heard(here->answer ? nullptr : &here->answer.error());
  return std::move(here->answer);
}

}  // namespace sallyport::detail

#pragma once

#include <sallyport/capabilities.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

/// What the contract suite has to know about one backend's store.
namespace sallyport::contract {

/// A store that no other test uses. The destructor takes away whatever making it has left behind.
class fresh_store {
 public:
  fresh_store() = default;
  fresh_store(const fresh_store&) = delete;
  fresh_store& operator=(const fresh_store&) = delete;
  virtual ~fresh_store() = default;

  /// What client::open takes. The same for all clients of one test: they meet in one store.
  [[nodiscard]] virtual std::string address() const = 0;
  /// How many things it keeps for its contenders now: keys, fields, rows, nodes, records; whatever
  /// grows with each holder and each waiter. Nothing is swept for the look. Empty: nobody can tell.
  [[nodiscard]] virtual std::optional<std::size_t> remains() const { return std::nullopt; }
};

/// A store of which nothing more is known than its address, what is to be done in the end, and how its
/// remains are counted.
class plain_store final : public fresh_store {
 public:
  explicit plain_store(std::string address, std::function<void()> at_end = {},
                       std::function<std::size_t()> count = {})
      : address_(std::move(address)), at_end_(std::move(at_end)), count_(std::move(count)) {}
  plain_store(const plain_store&) = delete;
  plain_store& operator=(const plain_store&) = delete;
  ~plain_store() override {
    if (at_end_) at_end_();
  }
  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] std::optional<std::size_t> remains() const override {
    return count_ ? std::optional(count_()) : std::nullopt;
  }

 private:
  const std::string address_;
  const std::function<void()> at_end_;
  const std::function<std::size_t()> count_;
};

/// What a store claims that can do all that there is, but for noticing deaths. Store files say what
/// is different with theirs.
[[nodiscard]] inline capabilities all_claims() {
  return {.fencing = true,
          .fifo = true,
          .direct_handoff = true,
          .shared_locks = true,
          .semaphores = true,
          .elections = true,
          .lists = true,
          .notices_death = false,
          .tells_kind = true,
          .survives_store_restart = true,
          .min_lease = std::chrono::milliseconds{100},
          .max_lease = std::chrono::hours{24},
          .lease_granularity = {},
          .expiry_granularity = {},
          .store_id = {},
          .caveats = {}};
}

/// The server behind a store. All tests of a process share it, so whoever stops it starts it again.
struct server_switch {
  std::function<void()> stop;   ///< answers nobody from then on
  std::function<void()> start;  ///< the same server again; may return before it serves
};

/// The descriptor of one backend. Its store file defines the_store(); the rest of the suite is the
/// same for all.
struct store_under_test {
  std::string name;
  /// Makes a store for one test. Called in every test, also by several processes at the same time.
  std::unique_ptr<fresh_store> (*make)() = nullptr;
  /// What the backend must claim. The suite compares every field but store_id and caveats with
  /// client::capabilities(), and tests what is claimed; of what is not claimed it tests the
  /// documented refusal.
  capabilities claims;
  /// Leases of tests that wait for one to lapse: as short as the store can, but long enough for a
  /// busy machine to renew.
  std::chrono::milliseconds short_lease{400};
  /// Clients of one process that open the same address see the same locks. Without it the suite
  /// can't run.
  bool clients_share = true;
  /// Other processes of this machine that open the same address see the same locks.
  bool processes_share = false;
  /// who() tells who waits. Where it does not, tests that need a waiter give it a moment to begin.
  bool shows_waiters = true;
  /// Nobody is told that it is its turn, so waiters ask all the time. One that gives up may have a
  /// question under way; a release then goes to it, and from it back when it has heard so.
  bool waiters_ask = false;
  /// An address of the same kind where nobody answers; empty: this store can't be out of reach.
  std::optional<std::string> unreachable_address;
  /// Empty: there is no server, or none that a test can stop.
  std::optional<server_switch> server = {};
};

/// Defined once in every contract program, by the backend's store file.
[[nodiscard]] const store_under_test& the_store();

}  // namespace sallyport::contract

#pragma once

#include "backends/redlock/membership.hpp"
#include "backends/redlock/speech.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/redis_server.hpp"
#include "sim/store.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sim {

/// One node of a quorum: a Redis server with the scripts of src/backends/redlock inside. A restart
/// gives it a new run id, and by the fault that strikes its data, older data, or none.
/// Thread safety: none.
class redlock_node final : public redis_server {
 public:
  /// What a restart leaves behind.
  enum class kept : std::uint8_t { everything, what_was_saved, nothing };

  redlock_node(context& shared, std::uint32_t number, bool durable);

  // server
  [[nodiscard]] reply execute(const request& asked, client_number from) override;
  [[nodiscard]] reply refuse(const request& asked) override;

  /// What a client that greets it finds.
  [[nodiscard]] backends::redlock::node_facts facts();
  [[nodiscard]] bool durable() const noexcept { return durable_; }
  /// It has lost something, or may have, and has not been taken in again.
  [[nodiscard]] bool without_state();
  redis::reply ask(const words& command) { return run(command); }

  /// Takes a mark, as an operator would have had it done; what is its own is filled in.
  void initialise(backends::redlock::node_mark mark);
  void restart(kept what);
  void flush();
  /// Everything but the counter and the mark; nobody knows.
  void lose_locks();
  /// Some key that holds no lock.
  void evict_some_key();

  /// Whether it has something of this client that will not have lapsed within `slack`; in words.
  [[nodiscard]] std::string left_of(client_number client, const lock_name& name, duration slack);
  /// Keys beside the counter and the mark.
  [[nodiscard]] std::size_t entries_left();

 private:
  [[nodiscard]] std::string fresh_run_id();

  const std::uint32_t number_;
  const bool durable_;
  std::string run_id_;
  bool away_ = false;          // since it lost its state; until its mark is good again
  bool has_old_data_ = false;  // locks and tickets may be there that were given back
  std::map<client_number, true_time> ghosts_until_;  // what came too late for any farewell
};

/// Independent Redis servers, of which a majority decides: nobody of them knows what the lock is, so
/// the truth is what the clients' machines granted.
/// Thread safety: none.
class redlock_store final : public store {
 public:
  redlock_store(context& shared, checkers& checks);
  ~redlock_store() override;

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, std::uint64_t client) override;
  [[nodiscard]] time_point now() const override;
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;
  /// Its list lacks a member.
  [[nodiscard]] bool always_refuses(std::uint64_t client) const override;
  void check_nothing_of(std::uint64_t client) override;

  /// How many members it has.
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  /// The members, and after them the others.
  [[nodiscard]] redlock_node& node(std::size_t which) noexcept {
    return which < nodes_.size() ? *nodes_[which] : *spares_[which - nodes_.size()];
  }
  struct list_entry {
    std::string name;
    std::size_t node = 0;
  };
  /// The nodes that a client was told of. Lists differ: some name more nodes than the members, some
  /// another in place of one, some call them by other names.
  [[nodiscard]] const std::vector<list_entry>& list_of(std::uint64_t client);
  [[nodiscard]] redlock_node& some_node();
  /// Whether one more node may lose its state and a majority still has it.
  [[nodiscard]] bool may_lose_one();
  /// What waiting for nodes adds to every wait.
  [[nodiscard]] duration slowness() const;

  /// A client of another library takes a free name by a majority, and gives it back or dies.
  void lend_to_foreigner();
  /// Somebody deletes a lock on one node.
  void delete_some_lock();
  /// Everything runs again.
  void heal();

 private:
  [[nodiscard]] std::size_t majority() const noexcept { return nodes_.size() / 2 + 1; }
  void initialise();
  void return_from_foreigner(const std::string& key, const std::string& value);

  context& shared_;
  checkers& checks_;
  std::vector<std::unique_ptr<redlock_node>> nodes_;
  std::vector<std::unique_ptr<redlock_node>> spares_;
  std::map<std::uint64_t, std::vector<list_entry>> lists_;
  backends::redlock::speech operator_;  // a person with the command
  std::uint64_t foreigners_ = 0;
};

/// The numbers of processes are the numbers of their clients.
[[nodiscard]] std::string redlock_client_name(std::uint64_t client);

}  // namespace sallyport::sim

#pragma once

#include "backends/local/lock_rules.hpp"
#include "backends/local/map_table.hpp"
#include "base/result.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::sim {

class local_driver;

/// One machine with a local store: the real rules over records in memory, the kernel that knows who
/// lives, the disk that keeps which tokens were reserved, and the gate before the records. Reports
/// what is committed to the checkers, which is how they know the truth.
/// Thread safety: none.
class local_node final : public store,
                         private backends::local::liveness,
                         private backends::local::token_reserve {
 public:
  using client_number = backends::local::client_number;
  using contender_number = backends::local::contender_number;
  using notice = backends::local::notice;

  /// What a committed transaction said.
  struct outcome {
    answer says;
    contender_number number = 0;
    std::vector<client_number> in_the_way{};
  };

  local_node(context& shared, checkers& checks);

  /// How a process is killed in the middle of a transaction.
  void on_kill(std::function<void(process&)> kill) { kill_ = std::move(kill); }
  void kill(process& victim) { kill_(victim); }
  /// All records are gone; what was reserved on disk is not. REQUIRES: all processes are dead.
  void lose_power();

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, std::uint64_t client) override;
  [[nodiscard]] time_point now() const override { return clock_.at(shared_.loop.now()); }
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;

  // For drivers.
  client_number add_client(local_driver& whose, std::uint64_t process_number);
  /// The whole process died; the kernel knows at once, and tells those who watch it after a while.
  void client_died(client_number who);
  [[nodiscard]] bool dead(client_number who) const { return !drivers_.contains(who); }

  /// Runs one request. A failure means that nothing happened.
  base::result<outcome> execute(const request& asked, client_number from, contender_number known,
                                time_point when, std::vector<notice>& notices);
  base::result<bool> watch(client_number from, const lock_name& name, bool on);
  base::result<bool> remove_client(client_number who);
  void sweep();
  std::vector<client_number> some_dead();

  /// Tells those who are to hear of it, from the first on: `limit` of them.
  void distribute(const std::vector<notice>& notices, client_number self,
                  std::size_t limit = SIZE_MAX);

  // The gate.
  [[nodiscard]] bool gate_shut() const noexcept { return in_gate_ != 0; }
  void shut_gate(client_number who) noexcept { in_gate_ = who; }
  /// Everybody who waits may try.
  void open_gate();
  void wait_for_gate(std::function<void()> turn) { at_gate_.push_back(std::move(turn)); }

 private:
  /// Who holds a name, and who waits for it.
  struct standing {
    std::vector<backends::local::holding_record> holders;
    std::vector<backends::local::ticket_record> tickets;
  };

  template <class Operate>
  auto transact(time_point when, std::vector<notice>& notices, Operate operate)
      -> base::result<std::invoke_result_t<Operate&, backends::local::lock_rules&>>;
  void initialise();
  void serve_on(time_point when, std::vector<notice>& notices);
  [[nodiscard]] std::vector<backends::memory::notice> for_checkers(
      const std::vector<notice>& notices) const;
  void report(const std::vector<notice>& notices, time_point when);
  [[nodiscard]] standing look_at(const lock_name& name) const;
  /// Where nothing but deaths happens: some time after the last change everybody who waits watches
  /// those before it, nobody waits for the dead, and nobody holds without knowing.
  void changed();
  void check_promptness();

  // liveness
  bool dead(client_number who, backends::local::table& inside) override;
  // token_reserve
  base::result<std::uint64_t> reserve(std::uint64_t beyond) override;

  context& shared_;
  checkers& checks_;
  sim_clock clock_ = local_machine_clock();
  std::function<void(process&)> kill_;
  backends::local::map_records records_;
  std::uint64_t reserved_on_disk_ = 0;
  std::uint64_t tokens_at_once_;
  std::size_t most_waiters_;           // that one transaction serves
  std::vector<std::string> unserved_;  // what the last one left
  bool ask_again_ = false;
  std::map<client_number, local_driver*> drivers_;  // of those who live
  std::map<client_number, std::uint64_t> process_of_;
  std::map<backend_api::holder_id, lock_name> name_of_;
  true_time last_change_ = 0;
  client_number in_gate_ = 0;  // who is stopped inside
  std::vector<std::function<void()>> at_gate_;
};

}  // namespace sallyport::sim

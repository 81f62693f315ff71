#pragma once

#include "backends/local/watch_list.hpp"
#include "sim/context.hpp"
#include "sim/local_node.hpp"
#include "sim/messages.hpp"
#include "sim/store.hpp"
#include <sallyport/error.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace sallyport::sim {

/// One process's client of a local store: what src/backends/local does around the rules, without
/// its system calls. Requests are answered inside their own call, unless the gate is shut or the
/// process is stopped in the middle; then the answer comes when it goes on.
/// Thread safety: none.
class local_driver final : public store_driver, private backends::local::peer_watcher {
 public:
  using client_number = local_node::client_number;
  /// As in the product, where it is 20 ms; leases are shorter here.
  static constexpr duration claims_kept_back = std::chrono::milliseconds{5};

  local_driver(context& shared, process& owner, local_node& node, std::uint64_t number);
  ~local_driver() override;

  // store_driver
  void attach(backend_api::events& listener) noexcept override { listener_ = &listener; }
  void connect() override;
  [[nodiscard]] bool idle() const noexcept override { return pending_.empty(); }
  void answer_overdue() override;
  void die() override;
  [[nodiscard]] std::vector<link*> connections() override { return {}; }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return capabilities_;
  }
  [[nodiscard]] duration claim_delay() const override { return claims_kept_back; }
  void acquire(const backend_api::acquire_request& request) override;
  void renew(std::span<const backend_api::renew_request> batch) override;
  void release(const backend_api::leave_request& request) override;
  void withdraw(const backend_api::leave_request& request) override;
  void downgrade(const backend_api::renew_request& request) override;
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done) override;
  void watch(const lock_name& name, bool on) override;
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            backend_api::completion<std::vector<lock_info>> done) override;
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done) override;
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done) override;
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline) override;
  void close() override {}

  // From the machine.
  /// Puts a notice into its pipe.
  void post(const local_node::notice& what);
  /// Whether this contender would hear of that client's death.
  [[nodiscard]] bool watches(const backend_api::holder_id& who, client_number peer) const {
    return peer == self_ || contenders_.watches(who, peer);
  }
  /// If it watches this client, it will hear of its death after a while.
  void hear_of_death(client_number who);

 private:
  struct call {
    request asked;
    backend_api::completion<bool> done{};  // set_value
    bool committed = false;                // nothing can fail any more
  };

  void open();
  void submit(request asked, backend_api::completion<bool> done = {});
  void attempt(std::uint64_t number);
  /// Commits; then answers and tells, now or when the process goes on.
  void perform(std::uint64_t number, time_point when);
  void stop_in_gate(std::uint64_t number);
  void conclude(std::uint64_t number, const local_node::outcome& said,
                const std::vector<local_node::notice>& notices);
  void give(const call& one, const answer& says);
  void fail(const call& one, const base::failure& why);
  void deliver(const local_node::notice& what);
  void peer_died(client_number who);
  void bury(client_number who, time_point until);
  void freeze_for_a_while();

  // peer_watcher
  bool begin_watching(client_number peer) override;
  void end_watching(client_number peer) noexcept override;

  context& shared_;
  process& owner_;
  local_node& node_;
  const std::uint64_t number_;
  client_number self_ = 0;  // 0: not open yet
  backend_api::events* listener_ = nullptr;
  sallyport::capabilities capabilities_;
  backends::local::watch_list contenders_{*this};
  std::set<client_number> watched_;
  std::set<lock_name> names_watched_;
  std::map<std::uint64_t, call> pending_;
  std::uint64_t next_number_ = 1;
  bool dead_ = false;
};

}  // namespace sallyport::sim

#pragma once

#include "backends/redlock/quorum.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/redis_link.hpp"
#include "sim/redlock_store.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sallyport::sim {

/// One process's client of a quorum: the real machine of src/backends/redlock, and what its session
/// does around it, without sockets. Commands leave in the order in which they were decided on; what
/// waits for a connection is asked whether it is still meant; a connection that has gone silent is
/// made anew. Tells the checkers what the machine granted.
/// Thread safety: none.
class redlock_driver final : public store_driver {
 public:
  redlock_driver(context& shared, checkers& checks, process& owner, redlock_store& nodes,
                 std::uint64_t client);
  ~redlock_driver() override;

  // store_driver
  void attach(backend_api::events& listener) noexcept override { listener_ = &listener; }
  void connect() override;
  [[nodiscard]] std::vector<link*> connections() override;
  [[nodiscard]] bool idle() const noexcept override;
  void answer_overdue() override;
  void die() override;

  // backend
  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return capabilities_;
  }
  void acquire(const backend_api::acquire_request& request) override;
  void renew(std::span<const backend_api::renew_request> batch) override;
  void release(const backend_api::leave_request& request) override { leave(request, false); }
  void withdraw(const backend_api::leave_request& request) override { leave(request, true); }
  void downgrade(const backend_api::renew_request& request) override;
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done) override;
  void watch(const lock_name& /*name*/, bool /*on*/) override {}
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            backend_api::completion<std::vector<lock_info>> done) override;
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done) override;
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done) override;
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline) override;
  void close() override { die(); }

 private:
  class member;
  using errand = backends::redlock::errand;
  using quorum = backends::redlock::quorum;
  using quorum_actions = backends::redlock::quorum_actions;
  using node_number = backends::redlock::node_number;

  /// What the engine asked and was not answered yet, at most one of each kind.
  enum class question : std::uint8_t { acquire, renew, leave };
  struct open_question {
    time_point answer_by;
    unsigned looks = 0;  ///< how often it was found open after its time
  };
  /// A contender's last round, for the checkers and the counters.
  struct round_seen {
    std::uint64_t number = 0;
    errand::kind what = errand::kind::bid;
    std::uint64_t since = 0;  ///< when it began, in the checkers' order
    unsigned votes = 0;
  };
  struct contender_seen {
    std::size_t lock = 0;
    duration lease_length{};
    bool held = false;
    round_seen round;
    std::map<question, open_question> asked;
  };

  /// Steps the machine and carries out what it says.
  template <class Step>
  void step(Step&& what);
  void work_off();
  void carry_out(backends::redlock::quorum_action& what);
  void set_timer();
  void timer_due();
  void leave(const backend_api::leave_request& request, bool withdraw);
  void answered(const errand& why, base::result<backends::redis::reply> said);
  void line_heard(node_number which);
  void line_not_heard(node_number which);

  // For the checkers.
  void asks(const backend_api::holder_id& who, const lock_name& name, question what,
            time_point answer_by);
  void told(const backend_api::holder_id& who, question what);
  void check_answered();
  void sent(const errand& why);
  void got(const errand& why, const backends::redis::reply& said);
  void granted(const backend_api::holder_id& who, const backend_api::token_block& tokens);

  context& shared_;
  checkers& checks_;
  process& owner_;
  redlock_store& nodes_;
  const backends::redlock::speech speech_;
  quorum machine_;
  std::vector<std::unique_ptr<member>> members_;
  backend_api::events* listener_ = nullptr;
  sallyport::capabilities capabilities_;
  std::deque<backends::redlock::quorum_action> to_do_;
  std::map<backend_api::holder_id, contender_seen> seen_;
  time_point timer_ = time_point::max();
  time_point question_timer_ = time_point::max();
  backends::redlock::node_set heard_ = 0;  // whose notices come
  bool working_ = false;
  bool dead_ = false;
};

}  // namespace sallyport::sim

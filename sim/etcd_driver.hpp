#pragma once

#include "backends/etcd/contention.hpp"
#include "sim/cluster.hpp"
#include "sim/etcd_store.hpp"
#include "sim/machine_driver.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace sallyport::sim {

struct etcd_protocol {
  using machine = backends::etcd::contention;
  using action = backends::etcd::action;
};

/// One process's client of etcd: the real machine of src/backends/etcd, and what its session and its
/// transport do around it, without gRPC: members in turn, tries that end, the two streams.
/// Thread safety: none.
class etcd_driver final : public machine_driver<etcd_protocol>,
                          private cluster_user,
                          private etcd_watcher {
 public:
  etcd_driver(context& shared, checkers& checks, process& owner, etcd_store& cluster_store,
              std::uint64_t client);
  ~etcd_driver() override;

  // store_driver
  void connect() override {}
  [[nodiscard]] bool idle() const noexcept override;
  void answer_overdue() override;
  void die() override;
  void watch(const lock_name& name, bool on) override;

 private:
  using answer = etcd_store::answer;
  using lease_id = backends::etcd::lease_id;

  /// A request with one answer, over all its tries.
  struct call {
    std::function<void(member_number, const etcd_store::respond&)> ask;  // at the member
    std::function<void(const answer*, backends::etcd::trouble, bool doubtful)> done;
    time_point answer_by;
    time_point until{};  // of this try
    std::uint64_t attempt = 0;
    member_number at = 0;
    int tries = 0;
    bool doubtful = false;
    bool parked = false;
  };
  enum class ending : std::uint8_t {
    done,
    no_such_lease,
    lease_exists,
    refused,
    not_done,
    lost,
    silent,
  };
  /// One of the two streams, over all its openings.
  struct line {
    bool is_watch = false;
    std::deque<std::function<void(std::uint64_t)>> to_say{};  // gets the number of the opening
    bool open = false;
    std::uint64_t number = 0;
    member_number at = 0;
    bool was_broken = false;
    bool hole = false;  // nothing comes through any more, and nobody knows
    lane there;
    lane back;
  };

  // machine_driver
  void carry_out(action& what) override;
  [[nodiscard]] std::uint64_t made(fencing_token token) override;
  // cluster_user
  void connection_ends(member_number which) override;
  // etcd_watcher
  void reported(std::uint64_t stream, const backends::etcd::model_store::report& said) override;
  void stream_ended(std::uint64_t stream) override;

  void make_call(call what);
  void start(std::uint64_t number);
  void launch(std::uint64_t number, call& what);
  void answered(std::uint64_t number, ending how, const answer* said);
  void arm(time_point when);
  void end_tries();
  void await_connection();
  void connection_changed(bool connected);
  void move_on(member_number from);
  void keep_alive(lease_id lease);
  void say(line& where, std::function<void(std::uint64_t)> what);
  void open(line& where);
  void open_lines();
  void cancel(line& where);
  void fall_silent(line& where);
  void end_line(bool is_watch, std::uint64_t number);
  [[nodiscard]] line& line_for(bool is_watch) noexcept {
    return is_watch ? watches_ : keep_alives_;
  }

  etcd_store& store_;
  cluster& members_;
  std::map<std::uint64_t, call> calls_;
  std::uint64_t next_call_ = 1;
  std::uint64_t next_attempt_ = 1;
  std::uint64_t next_line_ = 1;
  member_number current_ = 0;
  std::vector<bool> connected_;
  std::size_t refusals_ = 0;
  bool connecting_ = false;
  bool reopening_ = false;
  line keep_alives_;
  line watches_;
  time_point alarm_ = time_point::max();
  std::shared_ptr<etcd_driver*> self_;
};

}  // namespace sallyport::sim

#pragma once

#include "backends/zookeeper/contention.hpp"
#include "sim/cluster.hpp"
#include "sim/machine_driver.hpp"
#include "sim/zookeeper_store.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace sallyport::sim {

struct zookeeper_protocol {
  using machine = backends::zookeeper::contention;
  using action = backends::zookeeper::action;
};

/// One process's client of ZooKeeper: the real machine of src/backends/zookeeper, and what its
/// session and ZooKeeper's library do around it: connections in turn, pings, watches that are set
/// again.
/// Thread safety: none.
class zookeeper_driver final : public machine_driver<zookeeper_protocol>,
                               private cluster_user,
                               private zookeeper_listener {
 public:
  zookeeper_driver(context& shared, checkers& checks, process& owner, zookeeper_store& ensemble,
                   std::uint64_t client);
  ~zookeeper_driver() override;

  // store_driver
  void connect() override {}
  [[nodiscard]] bool idle() const noexcept override;
  void answer_overdue() override;
  void die() override;
  void watch(const lock_name& name, bool on) override;

 private:
  using line_number = backends::zookeeper::line_number;
  using errand_number = backends::zookeeper::errand_number;

  /// A session with its present connection.
  struct line {
    duration wanted{};
    duration timeout{};
    backends::zookeeper::session_id session = 0;
    connection_number by = 0;  // 0: none, or one is being made
    connection_number tried = 0;
    member_number at = 0;
    std::optional<member_number> avoided{};
    backends::zookeeper::zxid seen = 0;
    lane there{};
    bool hole = false;
    time_point last_sent{};
    time_point last_heard{};
    std::deque<std::pair<errand_number, backends::zookeeper::request>> under_way{};
    std::set<zookeeper_store::old_watch> watches{};
  };

  // machine_driver
  void carry_out(action& what) override;
  [[nodiscard]] std::uint64_t made(fencing_token token) override;
  void entered(const backend_api::holder_id& who, std::size_t lock) override;
  // cluster_user
  void connection_ends(member_number which) override;
  // zookeeper_listener
  void welcomed(connection_number by, backends::zookeeper::session_id session,
                duration timeout) override;
  void answered(connection_number by, const backends::zookeeper::reply& said,
                backends::zookeeper::zxid seen) override;
  void pinged(connection_number by) override;
  void happened(connection_number by, const backends::zookeeper::model_store::event& what) override;
  void closed(connection_number by) override;

  void send(line_number number, errand_number errand, const backends::zookeeper::request& what);
  /// To the server; false: there is no connection, or it has a hole.
  void say(line& on, std::function<void(connection_number)> what);
  void reach(line_number number);
  void drop(line_number number);
  void beat();
  void set_beat(time_point when);
  void remember_watch(line& on, const backends::zookeeper::request& what,
                      const backends::zookeeper::reply& said);
  [[nodiscard]] std::map<line_number, line>::iterator line_by(connection_number by);

  zookeeper_store& store_;
  cluster& members_;
  std::map<line_number, line> lines_;
  connection_number next_connection_;
  time_point beat_ = time_point::max();
  std::shared_ptr<zookeeper_driver*> self_;
};

}  // namespace sallyport::sim

#pragma once

#include "backends/zookeeper/layout.hpp"
#include "backends/zookeeper/model_store.hpp"
#include "sim/checkers.hpp"
#include "sim/cluster.hpp"
#include "sim/context.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sallyport::sim {

using connection_number = std::uint64_t;

/// A client's end of a connection to a server; called when a message has come to its machine.
class zookeeper_listener {
 public:
  zookeeper_listener() = default;
  zookeeper_listener(const zookeeper_listener&) = delete;
  zookeeper_listener& operator=(const zookeeper_listener&) = delete;

  /// `session` 0: it has ended.
  virtual void welcomed(connection_number by, backends::zookeeper::session_id session,
                        duration timeout) = 0;
  virtual void answered(connection_number by, const backends::zookeeper::reply& said,
                        backends::zookeeper::zxid seen) = 0;
  virtual void pinged(connection_number by) = 0;
  virtual void happened(connection_number by,
                        const backends::zookeeper::model_store::event& what) = 0;
  virtual void closed(connection_number by) = 0;

 protected:
  ~zookeeper_listener() = default;
};

/// A ZooKeeper ensemble: one log of changes, which every server applies a little later than the
/// leader; reads and pings that any server answers on its own, sessions that the leader counts by
/// what it is told, in ticks, and anew after an election.
/// Thread safety: none.
class zookeeper_store final : public store, private cluster::owner {
 public:
  using session_id = backends::zookeeper::session_id;
  using zxid = backends::zookeeper::zxid;

  zookeeper_store(context& shared, checkers& checks);
  ~zookeeper_store() override;

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, std::uint64_t client) override;
  [[nodiscard]] time_point now() const override;
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;
  [[nodiscard]] std::string remains() const override;
  void check_nothing_of(std::uint64_t client) override;

  [[nodiscard]] cluster& members() noexcept { return members_; }
  /// What elections and sessions that are longer than leases add to every wait.
  [[nodiscard]] duration slowness() const;

  // At a server, when a packet has come there.
  struct hello {
    connection_number by = 0;
    std::uint64_t client = 0;
    zookeeper_listener* who = nullptr;  // as long as the client lives
    session_id session = 0;             // 0: a new one
    duration timeout{};
    zxid seen = 0;
  };
  struct old_watch {
    std::string path;
    bool of_children = false;
    bool absent = false;
    friend auto operator<=>(const old_watch&, const old_watch&) = default;
  };
  void connect(member_number at, const hello& what);
  void ask(connection_number by, const backends::zookeeper::request& what);
  void ping(connection_number by);
  void watch_again(connection_number by, const std::vector<old_watch>& all, zxid since);
  void end_session(connection_number by);
  /// The client has closed it, or is dead.
  void disconnect(connection_number by);

  /// When, in the checkers' order, this change came about.
  [[nodiscard]] std::uint64_t made(zxid which) const;
  /// Whoever is in has nobody before it who may not be there.
  void check_order(const backend_api::holder_id& who, std::size_t lock);

 private:
  struct session {
    std::uint64_t client = 0;
    duration timeout{};
    time_point ends;  // by the leader's clock
    connection_number by = 0;
  };
  /// A request, until its server has answered it.
  struct errand {
    backends::zookeeper::request what;
    backends::zookeeper::reply said{};
    bool done = false;
    bool changed = false;  // by the log: it was executed
  };
  struct connection {
    member_number at = 0;
    std::uint64_t client = 0;
    zookeeper_listener* who = nullptr;
    session_id session = 0;
    lane back{};
    bool hole = false;  // nothing comes through any more
    std::deque<std::shared_ptr<errand>> queue{};
  };
  struct entry {
    enum class kind : std::uint8_t { change, end_of_session, epoch };
    kind is = kind::change;
    session_id session = 0;
    std::shared_ptr<errand> asked{};
    connection_number by = 0;
    zxid epoch = 0;
  };
  struct server {
    backends::zookeeper::model_store nodes;
    std::size_t applied = 0;
    lane from_leader;
    lane to_leader;
    std::set<session_id> touched;  // and not yet told
  };

  // cluster::owner
  void elected() override;
  void touch_changed(member_number which) override;
  void stopped(member_number which) override;
  void leader_lost() override;
  void noticed(member_number which) override;
  [[nodiscard]] duration draw_patience() override;
  [[nodiscard]] bool answers_after_pause() const override { return false; }

  [[nodiscard]] connection* find(connection_number by);
  /// Runs at the leader, if the server reaches it; else never.
  void at_leader(member_number from, std::function<void()> what);
  void admit(member_number at, const hello& what);
  void forward(connection_number by, const std::shared_ptr<errand>& asked);
  void decide(connection_number by, const std::shared_ptr<errand>& asked);
  void finish(connection_number by, const std::shared_ptr<errand>& asked,
              backends::zookeeper::status how);
  void commit(entry what);
  backends::zookeeper::reply execute(backends::zookeeper::model_store& on, const entry& what);
  void apply(member_number at, std::size_t up_to);
  void pump(connection_number by);
  void send(connection_number by, std::function<void(zookeeper_listener&)> what);
  void close(connection_number by);
  void close_all(member_number at);
  void tell_events(member_number at);
  void touch(session_id which);
  void sign_of_life(const connection& by);
  void tick();
  void count_ending(session_id which);
  [[nodiscard]] session_id fresh_session();

  context& shared_;
  checkers& checks_;
  const backends::zookeeper::layout nodes_;
  backends::zookeeper::model_store truth_;
  cluster members_;
  std::vector<server> servers_;
  std::vector<entry> log_;
  std::map<session_id, session> sessions_;
  std::map<connection_number, connection> connections_;
  std::map<zxid, std::uint64_t> made_;
  zxid epoch_ = 1;
};

}  // namespace sallyport::sim

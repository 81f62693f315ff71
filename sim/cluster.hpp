#pragma once

#include "sim/clock.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace sallyport::sim {

using member_number = std::size_t;

/// A client's end of its connections to the members. Called at the moment something happens to its
/// machine; a frozen process looks at it later.
class cluster_user {
 public:
  cluster_user() = default;
  cluster_user(const cluster_user&) = delete;
  cluster_user& operator=(const cluster_user&) = delete;

  virtual void connection_ends(member_number which) = 0;

 protected:
  ~cluster_user() = default;
};

/// One direction of a connection, on which nothing overtakes.
struct lane {
  true_time last = 0;
};

/// Servers of which a majority decides, as etcd's and ZooKeeper's do: who leads, who has not heard
/// of it, who is cut off, and the ways between them and their clients. What they store is no
/// business of it.
/// Thread safety: none.
class cluster {
 public:
  /// What a member believes.
  struct view {
    std::optional<member_number> leader;
    std::uint64_t term = 0;
  };
  class owner {
   public:
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;

    /// Somebody new leads, or the same one anew.
    virtual void elected() = 0;
    /// A member has lost the others, or found them again.
    virtual void touch_changed(member_number which) = 0;
    /// A member has gone down, and has lost what it did not share with the others.
    virtual void stopped(member_number which) = 0;
    /// Members have noticed that nobody leads them.
    virtual void leader_lost() {}
    /// A member without touch has noticed that it has no leader, or leads no more.
    virtual void noticed(member_number /*which*/) {}
    /// How long it takes to notice.
    [[nodiscard]] virtual duration draw_patience() = 0;
    /// Whether one that was frozen answers what has come meanwhile before it hears of the others.
    [[nodiscard]] virtual bool answers_after_pause() const { return true; }

   protected:
    ~owner() = default;
  };

  cluster(context& shared, owner& whose);

  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] sim_clock& clock(member_number which) noexcept { return members_[which].clock; }
  [[nodiscard]] time_point now_at(member_number which) const {
    return members_[which].clock.at(shared_.loop.now());
  }
  /// Who leads a majority and works. Nobody: no change and no proof can be had.
  [[nodiscard]] std::optional<member_number> leader() const;
  /// Who led last, by whose clock the counts go.
  [[nodiscard]] member_number last_leader() const noexcept { return leader_; }
  [[nodiscard]] view seen_by(member_number which) const;
  /// It knows what the majority knows.
  [[nodiscard]] bool in_touch(member_number which) const noexcept { return members_[which].touch; }
  [[nodiscard]] true_time touch_lost_at(member_number which) const noexcept {
    return members_[which].lost_at;
  }
  [[nodiscard]] bool up(member_number which) const noexcept { return members_[which].up; }
  [[nodiscard]] bool works(member_number which) const noexcept {
    return members_[which].up && !members_[which].paused;
  }
  /// What a member does at its own time: now, after its pause, or (when it is down) never.
  void at_member(member_number which, std::function<void()> what);

  // Clients.
  void enter(std::uint64_t client, cluster_user& user) { clients_[client].user = &user; }
  void leave(std::uint64_t client) { clients_.erase(client); }
  /// It was not killed.
  [[nodiscard]] bool lives(std::uint64_t client) const { return clients_.contains(client); }
  [[nodiscard]] bool reachable(std::uint64_t client, member_number which);
  /// `order`: what came before on it is not overtaken. False: it is lost.
  bool send(std::uint64_t from, member_number to, lane* order, std::function<void()> arrive);
  bool send_back(member_number from, std::uint64_t to, lane* order, std::function<void()> arrive);
  [[nodiscard]] duration draw_hop();

  // What goes wrong.
  void reset_some(std::uint64_t client);
  void cut_some(std::uint64_t client, bool to_member, bool from_member);
  void pause_some();
  void restart_some();
  /// Fewer than half are cut off from the rest.
  void isolate_some();
  /// Somebody else is elected, though nothing is broken.
  void change_leader();
  void heal();
  /// It leads no more, or has no leader, and knows it.
  void notice(member_number which);

 private:
  struct member {
    explicit member(sim_clock its) : clock(its) {}
    sim_clock clock;
    bool up = true;
    bool paused = false;
    bool cut_off = false;
    bool touch = true;
    true_time lost_at = 0;
    std::uint64_t life = 1;  // grows when it goes down
    std::uint64_t cuts = 0;
    view frozen;  // while out of touch
    std::vector<std::function<void()>> backlog;
  };
  struct path {
    bool cut_to = false;
    bool cut_from = false;
  };
  struct client_end {
    cluster_user* user = nullptr;
    std::map<member_number, path> paths;
  };

  [[nodiscard]] std::size_t majority() const noexcept { return members_.size() / 2 + 1; }
  [[nodiscard]] bool may_lead(member_number which) const noexcept;
  [[nodiscard]] duration draw_delay();
  void lose_touch(member_number which);
  void regain_touch(member_number which);
  /// It hears of what it missed after a while.
  void regain_touch_soon(member_number which);
  void review();
  void elect(std::optional<member_number> unaware);
  void resume(member_number which);
  void start(member_number which);
  void end_connections(member_number which);

  context& shared_;
  owner& owner_;
  std::vector<member> members_;
  std::map<std::uint64_t, client_end> clients_;
  member_number leader_ = 0;
  std::uint64_t term_ = 1;
  bool electing_ = false;
};

}  // namespace sallyport::sim

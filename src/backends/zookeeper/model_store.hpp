#pragma once

#include "backends/zookeeper/layout.hpp"
#include "backends/zookeeper/speech.hpp"

#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::zookeeper {

/// A ZooKeeper of one server, in memory: as much of it as a lock needs. For the tests of the rules, and,
/// one for each server, for the simulator.
class model_store {
 public:
  struct event {
    session_id session;
    std::string path;
    bool gone;
    bool below;
  };

  session_id open_session() { return ++last_session_; }
  void end_session(session_id session) {
    for (const std::string& each : nodes_of(session)) remove(each);
    forget_watches(session);
  }
  [[nodiscard]] zxid now() const { return last_zxid_; }
  /// As after so many elections.
  void set_epoch(zxid epoch) { last_zxid_ = epoch << 32U; }
  /// As after so many contenders.
  void set_sequence(const std::string& folder, int next) { nodes_.at(folder).sequence = next; }
  [[nodiscard]] bool has(const std::string& path) const { return nodes_.contains(path); }
  [[nodiscard]] const node_stat& stat(const std::string& path) const {
    return nodes_.at(path).stat;
  }
  [[nodiscard]] std::vector<std::string> children(const std::string& path) const {
    std::vector<std::string> out;
    for (const auto& [each, ignored] : nodes_) {
      if (each != "/" && parent_of(each) == path) out.emplace_back(last_segment(each));
    }
    return out;
  }
  [[nodiscard]] std::size_t contenders() const {
    std::size_t count = 0;
    for (const auto& [path, its_node] : nodes_) count += its_node.stat.owner != 0 ? 1 : 0;
    return count;
  }
  /// Somebody else's node.
  void put(const std::string& path, session_id owner, std::string data = {}) {
    create(path, std::move(data), owner);
  }
  void drop(const std::string& path) { remove(path); }
  /// Of all nodes that belong to this session.
  [[nodiscard]] std::vector<std::string> nodes_of(session_id session) const {
    std::vector<std::string> its;
    for (const auto& [path, each] : nodes_) {
      if (each.stat.owner == session) its.push_back(path);
    }
    return its;
  }
  [[nodiscard]] const std::string& data(const std::string& path) const {
    return nodes_.at(path).data;
  }
  /// A watch of an earlier connection, whose client has seen all up to `since`: what it has missed is
  /// told now, else it is set again. `absent`: it waits for the node to come.
  void watch_again(session_id session, const std::string& path, bool of_children, bool absent,
                   zxid since) {
    const auto found = nodes_.find(path);
    if (found == nodes_.end()) {
      if (absent) {
        watches_.insert({session, path, of_children});
      } else {
        events_.push_back({session, path, true, false});
      }
      return;
    }
    const node_stat& its = found->second.stat;
    const bool missed = absent || (of_children ? its.children_changed : its.modified) > since;
    if (missed) {
      events_.push_back({session, path, false, of_children});
    } else {
      watches_.insert({session, path, of_children});
    }
  }
  /// Its connection to this server is gone, and its watches with it.
  void forget_watches(session_id session) {
    std::erase_if(watches_, [&](const auto& each) { return each.session == session; });
  }
  std::vector<event> take_events() { return std::exchange(events_, {}); }

  reply execute(session_id session, const request& what) {
    switch (what.what) {
      case verb::create_contender: {
        const std::string parent{parent_of(what.path)};
        if (!has(parent)) return {.is = status::no_node};
        std::array<char, 16> number{};
        std::snprintf(number.data(), number.size(), "%010d", nodes_.at(parent).sequence);
        const std::string path = what.path + number.data();
        create(path, what.data, session);
        return {.is = status::ok, .path = path, .stat = stat(path)};
      }
      case verb::create_kept:
      case verb::create_folder:
        if (has(what.path)) return {.is = status::node_exists};
        if (!has(std::string(parent_of(what.path)))) return {.is = status::no_node};
        create(what.path, what.data, 0);
        return {.is = status::ok, .path = what.path, .stat = stat(what.path)};
      case verb::list:
      case verb::await_end:
        if (!has(what.path)) return {.is = status::no_node};
        if (what.watch || what.what == verb::await_end) watches_.insert({session, what.path, true});
        return {.is = status::ok, .children = children(what.path), .stat = stat(what.path)};
      case verb::read:
        if (!has(what.path)) return {.is = status::no_node};
        if (what.watch) watches_.insert({session, what.path, false});
        return {.is = status::ok, .data = nodes_.at(what.path).data, .stat = stat(what.path)};
      case verb::look:
        if (what.watch) watches_.insert({session, what.path, false});
        if (!has(what.path)) return {.is = status::no_node};
        return {.is = status::ok, .stat = stat(what.path)};
      case verb::write: {
        if (!has(what.path)) return {.is = status::no_node};
        node& mine = nodes_.at(what.path);
        if (what.version >= 0 && what.version != mine.stat.version) {
          return {.is = status::bad_version};
        }
        mine.data = what.data;
        mine.stat.modified = ++last_zxid_;
        ++mine.stat.version;
        fire(what.path, false, false, false);
        return {.is = status::ok, .stat = mine.stat};
      }
      case verb::remove:
        if (!has(what.path)) return {.is = status::no_node};
        if (what.version >= 0 && what.version != stat(what.path).version) {
          return {.is = status::bad_version};
        }
        remove(what.path);
        return {.is = status::ok};
      case verb::replace:
        if (!has(what.path)) return {.is = status::no_node};
        if (has(what.other)) return {.is = status::node_exists};
        create(what.other, what.data, session);
        remove(what.path);
        return {.is = status::ok};
      case verb::sync:
        return {.is = status::ok};
    }
    return {.is = status::refused};
  }

 private:
  struct node {
    std::string data{};
    node_stat stat{};
    int sequence = 0;
  };
  struct watch {
    session_id session;
    std::string path;
    bool children;
    friend auto operator<=>(const watch&, const watch&) = default;
  };

  void create(const std::string& path, std::string data, session_id owner) {
    node& fresh = nodes_[path];
    fresh.data = std::move(data);
    fresh.stat.created = fresh.stat.modified = fresh.stat.children_changed = ++last_zxid_;
    fresh.stat.owner = owner;
    changed_below(path, 1);
    fire(path, false, false, false);
  }
  void remove(const std::string& path) {
    if (nodes_.erase(path) == 0) return;
    ++last_zxid_;
    changed_below(path, -1);
    fire(path, true, false, false);
    fire(path, true, false, true);
  }
  void changed_below(const std::string& path, int by) {
    const std::string parent{parent_of(path)};
    node& above = nodes_.at(parent);
    above.stat.children_changed = last_zxid_;
    above.stat.children += by;
    ++above.sequence;
    fire(parent, false, true, true);
  }
  void fire(const std::string& path, bool gone, bool below, bool of_children) {
    for (auto each = watches_.begin(); each != watches_.end();) {
      if (each->path != path || each->children != of_children) {
        ++each;
        continue;
      }
      events_.push_back({each->session, path, gone, below});
      each = watches_.erase(each);
    }
  }

  std::map<std::string, node> nodes_{{"/", {}}};
  std::set<watch> watches_;
  std::vector<event> events_;
  zxid last_zxid_ = 100;
  session_id last_session_ = 0;
};

}  // namespace sallyport::backends::zookeeper

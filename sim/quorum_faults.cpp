// What goes wrong with the nodes of a quorum and the connections to them.
#include "sim/faults.hpp"
#include "sim/network.hpp"

#include <utility>
#include <vector>

namespace sallyport::sim {

bool fault_maker::strike_quorum(fault which, process& victim) {
  switch (which) {
    case fault::reset: {
      const std::vector<link*> all = victim.connections();
      link* const one = all[shared_.random.below(all.size())];
      one->reset();
      if (shared_.random.chance(0.3)) one->reset_notices();
      return true;
    }
    case fault::cut_to_store:
      cut_some_nodes(victim, true, false);
      return true;
    case fault::cut_from_store:
      cut_some_nodes(victim, false, true);
      return true;
    case fault::partition:
      cut_some_nodes(victim, true, true);
      return true;
    case fault::store_pause:
      pause_some_node();
      return true;
    case fault::store_restart:
      restart_some_node(true);
      return true;
    case fault::data_loss:
      restart_some_node(false);
      return true;
    case fault::script_flush: {
      redlock_node& node = quorum_->some_node();
      if (node.reachable()) node.forget_scripts();
      return true;
    }
    case fault::flush_all:
      if (redlock_node& node = quorum_->some_node(); node.reachable() && quorum_->may_lose_one()) {
        node.flush();
      }
      return true;
    case fault::eviction:
      if (redlock_node& node = quorum_->some_node(); node.reachable() && quorum_->may_lose_one()) {
        node.evict_some_key();
      }
      return true;
    case fault::foreign_lock:
      quorum_->lend_to_foreigner();
      return true;
    case fault::foreign_delete:
      quorum_->delete_some_lock();
      return true;
    case fault::locks_lost:
      if (redlock_node& node = quorum_->some_node(); node.reachable()) node.lose_locks();
      return true;
    case fault::store_clock_step:
      step_clock_of_some_node();
      return true;
    default:
      return false;
  }
}

void fault_maker::cut_some_nodes(process& victim, bool to_store, bool from_store) {
  shared_.count.add(counter::quorum_cut);
  shared_.note("process # is cut off from some nodes: # #",
               static_cast<std::int64_t>(victim.number()), to_store ? 1 : 0, from_store ? 1 : 0);
  const double share = 0.2 + 0.8 * shared_.random.unit();
  std::vector<std::shared_ptr<link>> all;
  for (link* const each : victim.connections()) {
    if (!shared_.random.chance(share)) continue;
    each->cut(to_store, from_store);
    all.push_back(each->shared_from_this());
  }
  shared_.loop.after(draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease),
                     [all = std::move(all)] {
                       for (const auto& each : all) each->heal();
                     });
}

void fault_maker::pause_some_node() {
  redlock_node& node = quorum_->some_node();
  shared_.count.add(counter::quorum_pause);
  shared_.note("a node is frozen");
  node.pause();
  shared_.loop.after(
      draw_between(shared_.random, duration{0}, shared_.plan.lease + shared_.plan.lease / 2),
      [&node] { node.resume(); });
}

void fault_maker::restart_some_node(bool keeps_data) {
  using kept = redlock_node::kept;
  const std::size_t which = shared_.random.below(quorum_->size());
  redlock_node& node = quorum_->node(which);
  if (!node.reachable()) return;
  kept what = kept::everything;
  // What is not written at once is suspected of having lost something, also when it has not.
  if (!keeps_data || !node.durable()) {
    if (!quorum_->may_lose_one() && !node.without_state()) return;
    // Data that are written at once may be lost altogether, but not in part.
    const bool all = node.durable() || shared_.random.chance(0.5);
    if (!keeps_data) what = all ? kept::nothing : kept::what_was_saved;
  }
  node.restart(what);
  end_connections_to(which);
  shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.lease),
                     [&node] { node.start(); });
}

void fault_maker::end_connections_to(std::size_t node) {
  for (const auto& each : processes_) {
    const auto& list = quorum_->list_of(each->number());
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].node != node) continue;
      link* const one = each->connections()[i];
      one->reset();
      one->reset_notices();
    }
  }
}

void fault_maker::step_clock_of_some_node() {
  shared_.count.add(counter::quorum_clock_step);
  const duration size = draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  const bool back = shared_.random.chance(0.4);
  if (back) set_back_ += size;
  shared_.note("a node's clock is set by #", back ? -size.count() : size.count());
  quorum_->some_node().clock().jump(shared_.loop.now(), back ? -size : size);
}

}  // namespace sallyport::sim

#include "backends/local/watch_list.hpp"

namespace sallyport::backends::local {

contender_number watch_list::known(const holder_id& who) const {
  const auto found = contenders_.find(who);
  return found != contenders_.end() ? found->second.number : 0;
}

bool watch_list::watches(const holder_id& who, client_number peer) const {
  const auto found = watched_.find(peer);
  return found != watched_.end() && found->second.contains(who);
}

void watch_list::remember(const holder_id& who, contender_number number,
                          const std::vector<client_number>& in_the_way) {
  contender& one = contenders_[who];
  one.number = number;
  if (one.in_the_way == in_the_way) return;
  stop_waiting(who, one.in_the_way);
  for (const client_number peer : in_the_way) {
    auto found = watched_.find(peer);
    if (found == watched_.end()) {
      if (!kernel_.begin_watching(peer)) continue;
      found = watched_.try_emplace(peer).first;
    }
    found->second.insert(who);
  }
  one.in_the_way = in_the_way;
}

void watch_list::left(const holder_id& who, bool withdrawn, backend_api::leave_answer said) {
  if (withdrawn || said == backend_api::leave_answer::left) forget(who);
}

void watch_list::forget(const holder_id& who) {
  const auto found = contenders_.find(who);
  if (found == contenders_.end()) return;
  stop_waiting(who, found->second.in_the_way);
  contenders_.erase(found);
}

void watch_list::stop_waiting(const holder_id& who, const std::vector<client_number>& peers) {
  for (const client_number peer : peers) {
    const auto found = watched_.find(peer);
    if (found != watched_.end()) found->second.erase(who);
  }
  if (watched_.size() <= most_idle) return;
  std::erase_if(watched_, [&](const auto& entry) {
    if (!entry.second.empty()) return false;
    kernel_.end_watching(entry.first);
    return true;
  });
}

std::vector<holder_id> watch_list::died(client_number peer) {
  const auto found = watched_.find(peer);
  if (found == watched_.end()) return {};
  std::vector<holder_id> waiters(found->second.begin(), found->second.end());
  kernel_.end_watching(peer);
  watched_.erase(found);
  return waiters;
}

}  // namespace sallyport::backends::local

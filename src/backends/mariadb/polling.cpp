#include "backends/mariadb/polling.hpp"

#include <algorithm>

namespace sallyport::backends::mariadb {

duration poll_after(std::uint64_t before, duration unmoved, double draw) {
  constexpr std::uint64_t most_before = longest_poll / first_poll;
  const auto by_place = first_poll * static_cast<int>(std::min(before, most_before) + 1);
  const duration full =
      std::min(longest_poll, std::max<duration>(by_place, unmoved / patience_share));
  return duration(static_cast<duration::rep>(static_cast<double>(full.count()) * (0.5 + draw / 2)));
}

duration places::told(const backend_api::holder_id& who, std::uint64_t before, time_point now) {
  const auto found = known_.find(who);
  if (found == known_.end()) {
    if (known_.size() < most) known_.emplace(who, place{before, now});
    return duration::zero();
  }
  if (found->second.before != before) found->second = {before, now};
  return now - found->second.since;
}

}  // namespace sallyport::backends::mariadb

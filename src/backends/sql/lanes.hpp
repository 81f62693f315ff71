#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include <sallyport/error.hpp>

#include <cstddef>
#include <set>
#include <utility>
#include <variant>

namespace sallyport::backends::sql {

/// Which contenders are on the second of two connections; all others are on the first.
/// Thread safety: none.
class lanes {
 public:
  /// So many can be; those that lapse unheard-of stay counted.
  static constexpr std::size_t most_on_second = 100'000;

  void to_second(const backend_api::holder_id& who) {
    if (second_.size() < most_on_second) second_.emplace(who.high, who.low);
  }
  void forget(const backend_api::holder_id& who) { second_.erase({who.high, who.low}); }
  [[nodiscard]] std::size_t of(const backend_api::holder_id& who) const {
    return second_.contains({who.high, who.low}) ? 1 : 0;
  }

  /// An acquire was answered so. Where nothing of the contender is in the store, nor can come there, it
  /// is over: its next requests, if there are any, need not follow the earlier ones.
  /// `first`: nothing was asked for it before.
  void acquire_answered(const backend_api::holder_id& who,
                        const base::result<backend_api::acquire_answer>& answer, bool first) {
    const bool nothing_there = answer ? std::holds_alternative<backend_api::held>(*answer)
                                      : first && (answer.error().code == errc::unavailable ||
                                                  answer.error().code == errc::wrong_kind);
    if (nothing_there) forget(who);
  }

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> second_;
};

}  // namespace sallyport::backends::sql

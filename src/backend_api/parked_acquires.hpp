#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include <sallyport/error.hpp>
#include <sallyport/types.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backend_api {

/// An acquire that is kept: a request's own references are good only during its call.
struct parked_acquire {
  explicit parked_acquire(const acquire_request& asked)
      : name(asked.name), value(asked.value), request(with_own_texts(asked)) {}
  parked_acquire(const parked_acquire&) = delete;
  parked_acquire& operator=(const parked_acquire&) = delete;

  const lock_name name;
  const std::string value;
  const acquire_request request;

 private:
  [[nodiscard]] acquire_request with_own_texts(const acquire_request& asked) const {
    return {.name = name,
            .kind = asked.kind,
            .mode = asked.mode,
            .holder = asked.holder,
            .lease_length = asked.lease_length,
            .claim_window = asked.claim_window,
            .ticket_length = asked.ticket_length,
            .may_wait = asked.may_wait,
            .permits = asked.permits,
            .token_count = asked.token_count,
            .local_waiters = asked.local_waiters,
            .value = value,
            .answer_by = asked.answer_by,
            .asked_before = asked.asked_before,
            .driven = asked.driven,
            .renewed = asked.renewed};
  }
};

/// The answer to one whose contender has left: the store was not asked.
[[nodiscard]] inline tl::unexpected<base::failure> left_before_sent() {
  return tl::unexpected(
      base::failure{errc::unavailable, "its contender has left before it was sent", true});
}

/// Acquires that were not sent yet, because a grant of a store without a name could not be fenced:
/// each waits for the answer to a question of its own.
/// Thread safety: none.
class parked_acquires {
 public:
  void park(const acquire_request& asked) {
    all_.insert_or_assign(asked.holder, std::make_unique<const parked_acquire>(asked));
  }

  /// Null: it is not here any more, because its contender has left.
  [[nodiscard]] std::unique_ptr<const parked_acquire> take(const holder_id& holder) {
    const auto found = all_.find(holder);
    if (found == all_.end()) return nullptr;
    auto taken = std::move(found->second);
    all_.erase(found);
    return taken;
  }

  [[nodiscard]] std::vector<std::unique_ptr<const parked_acquire>> take_all() {
    std::vector<std::unique_ptr<const parked_acquire>> taken;
    for (auto& [holder, each] : all_) taken.push_back(std::move(each));
    all_.clear();
    return taken;
  }

 private:
  std::map<holder_id, std::unique_ptr<const parked_acquire>> all_;
};

}  // namespace sallyport::backend_api

#include "backends/etcd/naming.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::backends::etcd {

using backend_api::holder_id;
using backend_api::parked_acquire;

std::uint64_t naming::question_for(time_point answer_by, std::optional<name_question>& fresh_one) {
  for (const auto& [number, each] : under_way_) {
    if (each.at == doubts_ && each.answer_by <= answer_by) return number;
  }
  const std::uint64_t number = next_question_++;
  under_way_.emplace(number, asked{.at = doubts_, .answer_by = answer_by});
  fresh_one = {.number = number, .answer_by = answer_by};
  return number;
}

std::optional<name_question> naming::park(const backend_api::acquire_request& request) {
  std::optional<name_question> ask;
  const std::uint64_t question = question_for(request.answer_by, ask);
  parked_.insert_or_assign(
      request.holder,
      parked{.acquire = std::make_unique<const parked_acquire>(request), .question = question});
  return ask;
}

std::optional<name_question> naming::keep(const holder_id& holder,
                                          const backend_api::granted& given, time_point answer_by) {
  std::optional<name_question> ask;
  const std::uint64_t question = question_for(answer_by, ask);
  kept_.insert_or_assign(holder, kept{.given = given, .question = question, .came_at = doubts_});
  return ask;
}

naming::released naming::answered(std::uint64_t number, bool learnt) {
  released out;
  const auto found = under_way_.find(number);
  if (found == under_way_.end()) return out;
  const std::uint64_t at = found->second.at;
  under_way_.erase(found);
  if (learnt) named_at_ = std::max(named_at_, at);
  for (auto each = parked_.begin(); each != parked_.end();) {
    if (learnt || each->second.question == number) {
      out.acquires.push_back(std::move(each->second.acquire));
      each = parked_.erase(each);
    } else {
      ++each;
    }
  }
  std::erase_if(kept_, [&](const auto& each) {
    const auto& [holder, waiting] = each;
    // It was the same connection all the while, so the name is that of the store which granted it.
    if (learnt && at == doubts_ && waiting.came_at == at) {
      out.good.push_back({holder, waiting.given});
    } else if (waiting.question == number) {
      out.doubtful.push_back(holder);
    } else {
      return false;
    }
    return true;
  });
  return out;
}

naming::released naming::take_all() {
  released out;
  for (auto& [holder, each] : parked_) out.acquires.push_back(std::move(each.acquire));
  for (const auto& [holder, each] : kept_) out.doubtful.push_back(holder);
  parked_.clear();
  kept_.clear();
  return out;
}

std::unique_ptr<const parked_acquire> naming::take_acquire(const holder_id& holder) {
  const auto found = parked_.find(holder);
  if (found == parked_.end()) return nullptr;
  auto taken = std::move(found->second.acquire);
  parked_.erase(found);
  return taken;
}

bool naming::take_grant(const holder_id& holder) { return kept_.erase(holder) == 1; }

}  // namespace sallyport::backends::etcd

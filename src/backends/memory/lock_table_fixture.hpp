#pragma once

#include "backends/memory/lock_table.hpp"
#include <sallyport/error.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::memory {

/// What a test asks for; everything else is the fixture's.
struct wish {
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  duration lease_length = std::chrono::seconds{30};
  duration claim_window = std::chrono::seconds{3};
  duration ticket_length = std::chrono::seconds{12};
  bool may_wait = true;
  std::uint32_t permits = 1;
  std::uint32_t token_count = 1;
  std::uint32_t local_waiters = 0;
  std::string_view value = {};
};

/// A lock table with a clock that the test moves. A contender is a small number: its holder id, and
/// the number of its client too. Every operation clears `notices` first and audits the table
/// afterwards.
class hand_driven_table {
 public:
  explicit hand_driven_table(fencing_token floor = {}) : table(floor) {}

  base::result<backend_api::acquire_answer> acquire(std::uint64_t who, const lock_name& name,
                                                    const wish& w = {}) {
    notices.clear();
    const auto owner = std::make_shared<const backend_api::owner_info>(backend_api::owner_info{
        "host" + std::to_string(who), static_cast<std::int64_t>(who), "job"});
    return audited(table.acquire(
        {name, w.kind, w.mode, id(who), w.lease_length, w.claim_window, w.ticket_length, w.may_wait,
         w.permits, w.token_count, w.local_waiters, w.value, now},
        {who, owner}, now, notices));
  }
  backend_api::renew_answer renew(std::uint64_t who, const lock_name& name, const wish& w = {},
                                  std::uint32_t token_count = 0) {
    notices.clear();
    return audited(table.renew(renewal(who, name, w, token_count), now, notices));
  }
  base::result<backend_api::renew_answer> downgrade(std::uint64_t who, const lock_name& name,
                                                    const wish& w) {
    notices.clear();
    return audited(table.downgrade(renewal(who, name, w, 0), now, notices));
  }
  backend_api::leave_answer release(std::uint64_t who, const lock_name& name, const wish& w = {}) {
    notices.clear();
    return audited(table.release({name, w.kind, w.mode, id(who), now}, now, notices));
  }
  backend_api::leave_answer withdraw(std::uint64_t who, const lock_name& name, const wish& w = {}) {
    notices.clear();
    return audited(table.withdraw({name, w.kind, w.mode, id(who), now}, now, notices));
  }
  bool set_value(std::uint64_t who, const lock_name& name, std::string_view value) {
    notices.clear();
    return audited(table.set_value(renewal(who, name, {}, 0), value, now, notices));
  }
  base::result<std::monostate> break_lock(const lock_name& name, fencing_token observed,
                                          backend_api::break_mode mode) {
    notices.clear();
    return audited(table.break_lock(name, observed, mode, now, notices));
  }
  std::optional<lock_info> who(const lock_name& name) {
    notices.clear();
    return audited(table.who(name, now, notices));
  }
  std::vector<std::string> list(std::string_view prefix, std::string_view after,
                                std::size_t limit) {
    notices.clear();
    std::vector<std::string> names;
    for (const lock_info& each : audited(table.list(prefix, after, limit, now, notices))) {
      names.push_back(each.name);
    }
    return names;
  }

  void pass(duration span) { now += span; }

  static holder_id id(std::uint64_t who) { return {1, who}; }

  lock_table table;
  time_point now = time_point(std::chrono::hours{1});
  std::vector<notice> notices;

 private:
  static backend_api::renew_request renewal(std::uint64_t who, const lock_name& name, const wish& w,
                                            std::uint32_t token_count) {
    return {name, w.kind, w.mode, id(who), w.lease_length, token_count, w.local_waiters, {}};
  }
  template <class Answer>
  Answer audited(Answer answer) const {
    table.audit();
    return answer;
  }
};

}  // namespace sallyport::backends::memory

#include "fence/gate_state.hpp"

#include "base/check.hpp"
#include <sallyport/error.hpp>

#include <algorithm>

namespace sallyport::fence {

verdict gate_state::judge(const pass& shown) const noexcept {
  if (!lock.empty() && shown.lock != lock) return verdict::wrong_lock;
  if (shown.token == fencing_token{}) return verdict::stale;
  if (shown.token < newest_exclusive) return verdict::stale;
  // A writer's token equals a reader's only when the writer was downgraded: it may read on, but no
  // longer write.
  if (shown.mode == lock_mode::exclusive && shown.token <= newest_shared) return verdict::stale;
  return verdict::passed;
}

void gate_state::raise(const pass& shown) {
  SALLYPORT_CHECK(judge(shown) == verdict::passed);

  if (lock.empty()) lock = shown.lock;
  switch (shown.mode) {
    case lock_mode::exclusive:
      newest_exclusive = shown.token;
      return;
    case lock_mode::shared:
      newest_shared = std::max(newest_shared, shown.token);
      return;
  }
}

verdict gate_state::judge_rebinding(const std::string& from, const pass& shown,
                                    rebinding kind) const noexcept {
  if (lock == shown.lock) return judge(shown);
  if (lock != from) return verdict::wrong_lock;
  if (kind == rebinding::restarts_numbers) return verdict::passed;
  const bool newest = shown.token >= newest_exclusive && shown.token > newest_shared;
  return newest ? verdict::passed : verdict::stale;
}

void gate_state::rebind(const std::string& from, const pass& shown, rebinding kind) {
  SALLYPORT_CHECK(judge_rebinding(from, shown, kind) == verdict::passed);

  if (lock != shown.lock && kind == rebinding::restarts_numbers) newest_shared = {};
  lock = shown.lock;
  newest_exclusive = shown.token;
}

base::result<void> check_lock(const std::string& lock) {
  if (lock.empty()) {
    return base::fail(errc::bad_name,
                      "fencing gate: the lock's name is empty; name store and lock");
  }
  if (lock.size() > gate::max_lock_bytes) {
    return base::fail(errc::bad_name, "fencing gate: the lock's name has " +
                                          std::to_string(lock.size()) + " bytes; at most " +
                                          std::to_string(gate::max_lock_bytes) + " are kept");
  }
  return {};
}

base::result<void> check_pass(const pass& shown) {
  if (shown.token == fencing_token{}) {
    return base::fail(errc::no_fencing,
                      "fencing gate: the pass carries no token; use a store that promises fencing "
                      "(lock_options::require_fencing finds out early)");
  }
  return check_lock(shown.lock);
}

base::result<void> check_rebinding(const std::string& from, const pass& shown) {
  if (auto usable = check_pass(shown); !usable) return usable;
  if (auto usable = check_lock(from); !usable) return usable;
  if (shown.mode != lock_mode::exclusive) {
    return base::fail(
        errc::bad_option,
        "fencing gate: it is bound anew under an exclusive token only; a shared one is "
        "not newer than those that share it");
  }
  if (from == shown.lock) {
    return base::fail(
        errc::bad_option,
        "fencing gate: it is to be bound to the lock that it is bound to; tokens that "
        "begin anew need a store with another name (?store=NAME), or old and new ones "
        "could not be told apart");
  }
  return {};
}

}  // namespace sallyport::fence

#pragma once

#include "base/result.hpp"
#include <sallyport/fence.hpp>
#include <sallyport/types.hpp>

#include <string>

namespace sallyport::fence {

/// The rule of fencing and the numbers it needs, for one resource. Pure.
/// Thread safety: none; the gate that owns it serialises.
/// Invariants: (1) raise() never lowers a number. (2) Once `lock` is set, only rebind() changes it.
struct gate_state {
  std::string lock{};                ///< whose tokens these are; empty until the first pass
  fencing_token newest_exclusive{};  ///< W
  fencing_token newest_shared{};     ///< S

  /// Whether `shown` may pass now. Changes nothing. A zero token is stale.
  verdict judge(const pass& shown) const noexcept;

  /// Remembers that `shown` passed. REQUIRES: judge(shown) == verdict::passed.
  void raise(const pass& shown);

  /// As gate::rebind. Changes nothing. REQUIRES: check_rebinding() was content.
  verdict judge_rebinding(const std::string& from, const pass& shown,
                          fence::rebinding kind) const noexcept;
  /// REQUIRES: judge_rebinding() == verdict::passed.
  void rebind(const std::string& from, const pass& shown, fence::rebinding kind);

  friend bool operator==(const gate_state&, const gate_state&) = default;
};

/// Refuses a lock's name that no gate can remember.
base::result<void> check_lock(const std::string& lock);

/// Refuses a pass that could never be judged: no token, or no usable lock.
base::result<void> check_pass(const pass& shown);

/// Refuses what no gate can be bound from or to.
base::result<void> check_rebinding(const std::string& from, const pass& shown);

}  // namespace sallyport::fence

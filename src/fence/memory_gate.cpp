#include "base/mutex.hpp"
#include "fence/door.hpp"
#include "fence/gate_state.hpp"
#include <sallyport/fence.hpp>

#include <mutex>
#include <shared_mutex>
#include <utility>

namespace sallyport::fence {

// Lock order: turn, then action. Whoever waits for `action` keeps `turn`, so newcomers queue behind
// it.
struct memory_gate::state {
  base::mutex turn;
  std::shared_mutex action;  // held while an action runs: shared by readers, alone by a writer
  gate_state numbers SALLYPORT_GUARDED_BY(turn);
};

memory_gate::memory_gate() : state_(std::make_unique<state>()) {}

memory_gate::memory_gate(std::string lock) : memory_gate() {
  value_or_throw(check_lock(lock));
  const base::mutex_lock turn{state_->turn};
  state_->numbers.lock = std::move(lock);
}

memory_gate::~memory_gate() = default;

verdict memory_gate::run_inside(const pass& shown, const std::function<void()>& action) {
  value_or_throw(check_pass(shown));

  std::unique_lock<std::shared_mutex> alone{state_->action, std::defer_lock};
  std::shared_lock<std::shared_mutex> together{state_->action, std::defer_lock};
  {
    const base::mutex_lock turn{state_->turn};
    const verdict answer = state_->numbers.judge(shown);
    if (answer != verdict::passed) return answer;
    switch (shown.mode) {
      case lock_mode::exclusive:
        alone.lock();
        break;
      case lock_mode::shared:
        together.lock();
        break;
    }
    // Still true: the numbers change only under `turn`, which we kept while waiting.
    state_->numbers.raise(shown);
  }

  action();
  return verdict::passed;
}

verdict memory_gate::rebind_inside(const std::string& from, const pass& shown, rebinding kind) {
  value_or_throw(check_rebinding(from, shown));

  const base::mutex_lock turn{state_->turn};
  const verdict answer = state_->numbers.judge_rebinding(from, shown, kind);
  if (answer != verdict::passed) return answer;
  const std::unique_lock<std::shared_mutex> alone{state_->action};
  state_->numbers.rebind(from, shown, kind);
  return answer;
}

std::string memory_gate::read_bound_lock() {
  const base::mutex_lock turn{state_->turn};
  return state_->numbers.lock;
}

}  // namespace sallyport::fence

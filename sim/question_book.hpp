#pragma once

#include "backend_api/requests.hpp"
#include "sim/context.hpp"
#include "sim/process.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace sallyport::sim {

/// What an engine asked of its backend and was not answered yet, at most one of each kind for a
/// contender: checks that the backend answers each once and in time.
/// Thread safety: none.
class question_book {
 public:
  enum class kind : std::uint8_t { acquire, renew, leave, downgrade };

  question_book(context& shared, process& owner) : shared_(shared), owner_(owner) {}

  void asks(const backend_api::holder_id& who, kind what, time_point answer_by) {
    open_[{who, what}] = {answer_by, 0};
    if (answer_by + slack >= timer_) return;
    set_timer(answer_by + slack);
  }
  void told(const backend_api::holder_id& who, kind what) {
    if (open_.erase({who, what}) == 0) {
      shared_.fail("waits end", "a request was answered that nobody had asked, or twice");
    }
  }
  [[nodiscard]] bool empty() const noexcept { return open_.empty(); }
  /// Also after the clock was changed.
  void check() {
    timer_ = time_point::max();
    const time_point now = owner_.now();
    time_point next = time_point::max();
    for (auto& [which, each] : open_) {
      if (now < each.answer_by + slack) {
        next = std::min(next, each.answer_by + slack);
        continue;
      }
      // A process that was frozen has to come through what has piled up first.
      next = std::min(next, now + slack);
      if (++each.looks < looks_before_late) continue;
      shared_.fail("waits end", "request " + std::to_string(static_cast<int>(which.second)) +
                                    " of ticket " + std::to_string(which.first.low % 10'000) +
                                    " was not answered in time");
      return;
    }
    if (next != time_point::max()) set_timer(next);
  }

 private:
  /// An answer is late when it comes this much after its time, on a process that runs.
  static constexpr duration slack = std::chrono::milliseconds{1};
  static constexpr unsigned looks_before_late = 5;

  struct question {
    time_point answer_by;
    unsigned looks = 0;
  };

  void set_timer(time_point when) {
    timer_ = when;
    owner_.at_local_time(when, [this, when] {
      if (timer_ == when) check();
    });
  }

  context& shared_;
  process& owner_;
  std::map<std::pair<backend_api::holder_id, kind>, question> open_;
  time_point timer_ = time_point::max();
};

}  // namespace sallyport::sim

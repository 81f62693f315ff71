#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

/// What the machine itself charges: the least that each kind of lock could be made of.
namespace sallyport::bench {

/// A FIFO lock of one process with direct hand-off: whoever releases picks the next one and wakes
/// it through a condition variable of its own.
/// Thread safety: all members; a place serves one thread.
class condition_variable_lock {
 public:
  struct place {
    std::condition_variable turn_came;
    bool has_turn = false;
  };

  void acquire(place& mine) {
    std::unique_lock locked{mutex_};
    if (!held_) {
      held_ = true;
      return;
    }
    mine.has_turn = false;
    queue_.push_back(&mine);
    mine.turn_came.wait(locked, [&mine] { return mine.has_turn; });
  }

  void release() {
    place* next = nullptr;
    {
      const std::lock_guard locked{mutex_};
      if (queue_.empty()) {
        held_ = false;
        return;
      }
      next = queue_.front();
      queue_.pop_front();
      next->has_turn = true;
    }
    // Places outlive the run, so the woken thread need not meet the mutex while it is held.
    next->turn_came.notify_one();
  }

 private:
  std::mutex mutex_;
  bool held_ = false;
  std::deque<place*> queue_;
};

/// The least lock table: names in a hash map behind a mutex. It knows no queue, no lease, no token.
/// Thread safety: all members.
class bare_table {
 public:
  struct entry {
    std::array<std::byte, 16> holder{};
    std::uint64_t token = 0;
    std::int64_t deadline = 0;
  };

  bool insert(const std::string& name, const entry& fresh) {
    const std::lock_guard locked{mutex_};
    return entries_.emplace(name, fresh).second;
  }
  bool erase(const std::string& name) {
    const std::lock_guard locked{mutex_};
    return entries_.erase(name) == 1;
  }
  [[nodiscard]] bool contains(const std::string& name) const {
    const std::lock_guard locked{mutex_};
    return entries_.contains(name);
  }
  bool set_deadline(const std::string& name, std::int64_t deadline) {
    const std::lock_guard locked{mutex_};
    const auto found = entries_.find(name);
    if (found == entries_.end()) return false;
    found->second.deadline = deadline;
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, entry> entries_;
};

}  // namespace sallyport::bench

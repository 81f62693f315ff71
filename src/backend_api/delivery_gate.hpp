#pragma once

#include "base/result.hpp"

#include <atomic>
#include <cstdint>

namespace sallyport::backend_api {

/// What is answered at a closed gate.
[[nodiscard]] base::failure closed_failure();

/// Lets calls into a listener pass until the gate is closed, and lets close() wait until those
/// inside have come out. So a listener may be destroyed as soon as close() has returned, although
/// nobody holds a mutex while calling it.
/// Thread safety: all members. The gate must outlive its passes.
class delivery_gate {
 public:
  /// One stay inside, on one thread's stack.
  class pass {
   public:
    explicit pass(delivery_gate& gate) noexcept;
    ~pass();
    pass(const pass&) = delete;
    pass& operator=(const pass&) = delete;

    /// False: the gate is closed, keep out.
    [[nodiscard]] bool open() const noexcept { return open_; }

   private:
    friend class delivery_gate;

    delivery_gate& gate_;
    pass* const outer_;  // the pass below on this thread's stack, of whatever gate
    bool inside_;        // counted in the gate
    const bool open_;
  };

  delivery_gate() = default;
  delivery_gate(const delivery_gate&) = delete;
  delivery_gate& operator=(const delivery_gate&) = delete;

  /// Lets nobody in any more and waits for the other threads that are inside. Called from inside,
  /// it counts the calling thread as outside already: it must not wait for itself, nor may two
  /// threads that close from inside wait for each other. True for the first call only.
  bool close() noexcept;

 private:
  static constexpr std::uint32_t closed_bit = 1U << 31U;

  [[nodiscard]] bool enter() noexcept;
  void leave() noexcept;

  static thread_local pass* innermost_;

  std::atomic<std::uint32_t> state_{0};  // how many are inside, and closed_bit
};

}  // namespace sallyport::backend_api

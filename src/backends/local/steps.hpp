#pragma once

#include <atomic>
#include <cstdint>

/// The moments at which a process may die and leave something half done. Tests hook in here and
/// kill; nobody else does.
namespace sallyport::backends::local {

enum class step : std::uint8_t {
  inside_the_gate,    ///< nothing was begun
  transaction_begun,  ///< nothing was written
  written,            ///< everything is written, nothing committed
  committed,          ///< committed, the gate still shut
  gate_left,          ///< committed, nobody was told
  told,               ///< somebody was told, perhaps not all
  count
};

using step_hook = void (*)(step);
inline std::atomic<step_hook> on_step{nullptr};

inline void reached(step where) {
  if (const step_hook hook = on_step.load(std::memory_order_relaxed)) hook(where);
}

}  // namespace sallyport::backends::local

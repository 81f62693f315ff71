#pragma once

#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <sys/types.h>

namespace sallyport::backends::local {

/// Record locks on a file: who is attached to a store, and who is just attaching (attachment.hpp says
/// what for). Each lock is taken twice, on two bytes:
///
/// - by the *descriptor* (F_OFD_SETLK): it ends when the descriptor is closed, and with the process,
///   whatever else the process does with the file, and two copies of the library in one process are
///   strangers to each other. It counts. A forked child that lives on keeps it. For `present` that is
///   the safe side: it only matters to who finds the store damaged. For `attaching` it takes a fork in
///   the milliseconds of another thread's attaching, and a parent that is killed in the same ones: then
///   nobody makes a store, or nobody attaches, until that child ends or executes a program;
/// - by the *process* (F_SETLK): only this one says a pid, for messages, and it is the one that
///   earlier versions look at.
///
/// Thread safety: none.
class presence_locks {
 public:
  enum class turn : std::uint8_t { look, make };

  /// Keeps the number of an open file.
  explicit presence_locks(int file) : file_(file) {}

  /// Many may look at what there is at the same time. One makes what is missing, while nobody
  /// looks. False: not now.
  [[nodiscard]] bool begin_attaching(turn which) const;
  void end_attaching() const;
  /// Who keeps this process from that turn; 0: nobody any more, or the kernel does not say.
  [[nodiscard]] std::int64_t in_the_way(turn which) const;

  [[nodiscard]] bool be_present() const;
  /// False: somebody else is present, and nothing changed.
  [[nodiscard]] bool be_alone() const;
  /// One of those who are present; 0: nobody, or the kernel does not say.
  [[nodiscard]] std::int64_t somebody_present() const;

 private:
  bool set(short type, off_t byte) const;

  int file_;
};

/// A turn at attaching; ends with the object.
class attaching_turn {
 public:
  using turn = presence_locks::turn;

  explicit attaching_turn(const presence_locks& locks) : locks_(locks) {}
  attaching_turn(const attaching_turn&) = delete;
  attaching_turn& operator=(const attaching_turn&) = delete;
  ~attaching_turn() { locks_.end_attaching(); }

  /// Takes the turn, or pauses for a moment, longer each time. Nothing taken: look again, somebody
  /// else may have made what was missing. Fails with unavailable when patience is at its end.
  base::result<bool> take(turn which);
  void give_back() { locks_.end_attaching(); }

 private:
  [[nodiscard]] base::failure too_late(std::int64_t pid) const;

  const presence_locks& locks_;
  /// Hundreds who wait must leave the processor to the one they wait for.
  std::chrono::milliseconds pause_{1};
  std::chrono::milliseconds waited_{0};
  std::int64_t blocker_ = 0;
  bool always_the_same_ = true;
};

}  // namespace sallyport::backends::local

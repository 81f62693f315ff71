#pragma once

#include "backends/local/descriptor.hpp"
#include "backends/local/process.hpp"
#include "backends/local/records.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <variant>

/// The gate through which the store's processes pass one at a time.
namespace sallyport::backends::local {

struct gate_region;

/// A robust mutex in memory that all processes of the store share, with what they must agree on.
/// Who finds it shut sleeps in the kernel. A process that dies inside leaves the gate open to the
/// next. One that is stopped inside keeps it shut: entering is therefore bounded in time, and the
/// failure names that process. It names nobody who is merely slow in a crowd: only one that is
/// stopped, or that has been inside, in the same pass, for the whole of a long wait.
/// Thread safety: all members.
class gate {
 public:
  /// What the first process decided and the others must keep to.
  struct agreement {
    machine_identity machine;
    std::uint64_t map_bytes = 0;
    bool write_map = false;
  };
  enum class finding : std::uint8_t {
    usable,   ///< made under this boot by processes like us, and not spoiled
    missing,  ///< none, one that was never finished, or one of another boot
    damaged,  ///< somebody found the store spoiled, or the file is none of ours
    foreign   ///< made in another pid or time namespace
  };
  struct attached;

  /// Makes the region in a file of this folder. REQUIRES: nobody else is attached.
  static base::result<std::unique_ptr<gate>> make(int folder, const std::string& file, mode_t mode,
                                                  const agreement& terms);
  /// The same in a file that is open for writing, whatever it held: for who may not remove it.
  static base::result<std::unique_ptr<gate>> begin(int file, const agreement& terms);
  /// From now on this file holds no gate, and has room for one. REQUIRES: nobody is attached.
  static base::result<std::monostate> erase(int file);
  /// Looks at the file; a gate only when it is usable.
  static attached attach(int folder, const std::string& file, const machine_identity& here);

  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate();

  /// Waits for the turn until `answer_by`; fails with unavailable.
  base::result<std::monostate> enter(time_point answer_by);
  /// REQUIRES: this thread is inside.
  void leave() noexcept;
  /// Whether a process that is inside has been stopped: then waiting is of no use for now.
  [[nodiscard]] bool held_up() const;

  [[nodiscard]] const agreement& terms() const noexcept { return terms_; }
  /// From now on nobody can attach; who is attached goes on, and finds out by itself.
  void mark_damaged() noexcept;

 private:
  /// One pass of one process. No two passes are equal.
  struct pass {
    std::int32_t pid = 0;  ///< 0: nobody is inside
    std::uint64_t number = 0;

    friend bool operator==(const pass&, const pass&) = default;
  };

  gate(gate_region* region, agreement terms) : region_(region), terms_(std::move(terms)) {}
  [[nodiscard]] pass current_pass() const noexcept;
  [[nodiscard]] base::failure too_late(const pass& at_first, duration waited) const;

  gate_region* const region_;
  const std::int32_t self_ = static_cast<std::int32_t>(::getpid());
  const agreement terms_;
};

struct gate::attached {
  finding found = finding::missing;
  std::unique_ptr<gate> way_in{};
};

}  // namespace sallyport::backends::local

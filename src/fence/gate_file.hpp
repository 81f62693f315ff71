#pragma once

#include "base/result.hpp"
#include "fence/gate_record.hpp"
#include <sallyport/lease_clock.hpp>
#include <sallyport/types.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <sys/types.h>
#include <vector>

namespace sallyport::fence {

/// Which file stands at a path, so that a replaced one is noticed.
struct file_identity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const file_identity&, const file_identity&) = default;
};

/// Two locks of the kernel on a gate's file, in the order in which they must be taken.
enum class part : std::uint8_t {
  turn,    ///< guards the records; kept while waiting for `action`, so that newcomers queue behind
  action,  ///< held while an action runs: shared by readers, alone by a writer
};

/// One opening of a gate's file: the system calls, and nothing of fencing.
///
/// Each opening is a contender of its own: the locks (F_OFD_SETLK) belong to the opening, so
/// threads of one process exclude each other too, and the kernel frees them when the process dies.
/// Unlike flock(2), they come as byte ranges, so one file carries both parts. Ownership: closes and
/// unlocks at destruction, except that a forked child only closes: its locks are its parent's.
/// Thread safety: none.
/// Failures name the path, the cause and a remedy.
class gate_file {
 public:
  /// Opens an existing file for reading and writing; empty when there is none. Refuses symbolic
  /// links and whatever is not a regular file (bad_option).
  static base::result<std::optional<gate_file>> open(const std::filesystem::path& path);

  /// Makes a file that holds `first` and nothing else. It appears under its name only when it is
  /// whole and on disk. False when somebody else made it meanwhile: that one is left as it is.
  static base::result<bool> create(const std::filesystem::path& path, const gate_record& first);

  /// Puts the names in the file's folder on disk, so that a new file is still there after a power
  /// cut.
  static base::result<void> sync_folder_of(const std::filesystem::path& path);

  gate_file(gate_file&& other) noexcept;
  gate_file& operator=(gate_file&& other) = delete;
  ~gate_file();

  /// Waits for a lock until `deadline` (unavailable). Tries at least once.
  base::result<void> lock(part which, lock_mode mode, lease_clock::time_point deadline);
  void unlock(part which) noexcept;

  /// Programs that this process executes from now on inherit the opening, and with it its locks.
  base::result<void> pass_on() const;

  [[nodiscard]] file_identity identity() const noexcept { return identity_; }

  /// Whether the path still leads to this very file.
  [[nodiscard]] bool in_place() const noexcept;

  /// The whole file, or its beginning when it is longer than a gate's.
  [[nodiscard]] base::result<std::vector<std::byte>> read() const;

  /// Puts the slot into the file, not yet on disk. After a failure the slot's content is unknown.
  [[nodiscard]] base::result<void> write(std::size_t index, const slot& bytes) const;

  /// Puts everything written on disk.
  [[nodiscard]] base::result<void> sync() const;

 private:
  gate_file(int fd, std::filesystem::path path, file_identity identity) noexcept;

  int fd_;
  std::filesystem::path path_;
  file_identity identity_;
  std::uint32_t fork_generation_;
};

/// A sentence about a gate's file, for failures: `gate file "/x/y": detail`.
std::string about(const std::filesystem::path& path, std::string_view detail);

}  // namespace sallyport::fence

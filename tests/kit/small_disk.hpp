#pragma once

#include "tests/kit/temporary_folder.hpp"

#include <cstddef>
#include <filesystem>

namespace sallyport::kit {

/// A file system with little room, for servers whose disk gets full. Only the thread that made it, what
/// that thread starts later, and their children see it: keep it and the server in one thread. Making it
/// needs root; throws kit_error.
/// Thread safety: none.
class small_disk {
 public:
  explicit small_disk(std::size_t bytes);
  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;
  ~small_disk();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_.path(); }

  /// Until nobody can write another byte that needs room.
  void fill();
  /// Takes away what fill() wrote.
  void make_room();

 private:
  const temporary_folder folder_;
};

}  // namespace sallyport::kit

#pragma once

#include "tests/kit/waiting.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace sallyport::kit {

/// A folder of its own, removed with the object and everything in it.
class temporary_folder {
 public:
  /// Short, because the path of a unix socket has about 100 characters.
  explicit temporary_folder(
      const std::string& name = "kit",
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string path = parent / (name + "-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) throw kit_error("mkdtemp failed for " + path);
    path_ = path;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sallyport::kit

#pragma once

#include <sallyport/fence.hpp>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>

// What the tests of the gates share.

namespace sallyport::fence {

/// A folder of its own for each test, removed with all its content at the end. Made to be a
/// fixture's base.
class test_folder {
 public:
  test_folder(const test_folder&) = delete;
  test_folder& operator=(const test_folder&) = delete;

 protected:
  test_folder() {
    std::string name = std::filesystem::temp_directory_path() / "sallyport-gate-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~test_folder() {
    std::error_code ignored;
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path at(std::string_view name) const { return folder_ / name; }
  const std::filesystem::path& folder() const { return folder_; }

  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder_},
                                                  std::filesystem::directory_iterator{}));
  }

 private:
  std::filesystem::path folder_;
};

inline std::ostream& operator<<(std::ostream& out, verdict answer) {
  return out << to_string(answer);
}

inline pass exclusive(std::uint64_t token) {
  return {.lock = "orders", .token = fencing_token{token}, .mode = lock_mode::exclusive};
}

inline pass shared(std::uint64_t token) {
  return {.lock = "orders", .token = fencing_token{token}, .mode = lock_mode::shared};
}

inline void nothing() {}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

inline void put_content(const std::filesystem::path& path, std::string_view content) {
  std::ofstream{path, std::ios::binary} << content;
}

/// How often this process has the file open.
inline int openings_of(const std::filesystem::path& path) {
  int openings = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code closed_meanwhile;
    if (std::filesystem::read_symlink(entry, closed_meanwhile) == path) ++openings;
  }
  return openings;
}

}  // namespace sallyport::fence

#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace sallyport::bench {

/// A folder for one measurement, on the file system of the temporary folder.
class bench_folder {
 public:
  bench_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  bench_folder(const bench_folder&) = delete;
  bench_folder& operator=(const bench_folder&) = delete;
  ~bench_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string store() const { return "local:" + path_ + "/store"; }
  [[nodiscard]] std::string file() const { return path_ + "/lock"; }

 private:
  std::string path_;
};

}  // namespace sallyport::bench

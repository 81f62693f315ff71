#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace sallyport::cli {

/// An argv for tests.
class words {
 public:
  words(std::initializer_list<const char*> all) : owned_(all.begin(), all.end()) {
    for (std::string& each : owned_) pointers_.push_back(each.data());
  }
  [[nodiscard]] std::span<char* const> span() const { return pointers_; }

 private:
  std::vector<std::string> owned_;
  std::vector<char*> pointers_;
};

}  // namespace sallyport::cli

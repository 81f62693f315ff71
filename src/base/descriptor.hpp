#pragma once

#include <unistd.h>
#include <utility>

namespace sallyport::base {

/// Owns one file descriptor.
class descriptor {
 public:
  descriptor() noexcept = default;
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool open() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

}  // namespace sallyport::base

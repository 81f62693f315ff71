#pragma once

#include <cstdint>

namespace sallyport::kit {

/// A TCP port of 127.0.0.1 that was free and that no other free_port of this machine has, in
/// whatever process, for as long as the object lives: a server may be killed and come back on it.
/// The reservation is the bound name of a socket in the kernel, so it goes with the process and has
/// the same scope as the ports themselves (a network namespace). Ports come from below those that
/// the kernel hands to outgoing connections.
/// Thread safety: different objects, from any thread.
class free_port {
 public:
  /// Throws kit_error when none is left.
  free_port();
  /// The first free one from `first` on.
  explicit free_port(std::uint16_t first);
  free_port(free_port&& other) noexcept;
  free_port& operator=(free_port&&) = delete;
  ~free_port();

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  std::uint16_t number_ = 0;
  int reservation_ = -1;
};

}  // namespace sallyport::kit

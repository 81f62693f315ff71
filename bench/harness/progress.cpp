#include "bench/harness/progress.hpp"

#include <cstdio>
#include <unistd.h>

namespace sallyport::bench {
namespace {

constexpr std::chrono::milliseconds terminal_pause{100};
constexpr std::chrono::seconds log_pause{5};

}  // namespace

progress::progress()
    : on_terminal_(isatty(STDERR_FILENO) == 1), began_(clock::now()), shown_at_(began_) {}

progress::~progress() {
  if (on_terminal_) std::fputs("\r\033[K", stderr);
}

void progress::now_at(std::string what) {
  what_ = std::move(what);
  tick();
}

void progress::tick() {
  const auto now = clock::now();
  if (on_terminal_ ? now - shown_at_ < terminal_pause : now - shown_at_ < log_pause) return;
  shown_at_ = now;
  const double passed = std::chrono::duration<double>(now - began_).count();
  std::fprintf(stderr, on_terminal_ ? "\r\033[K%4.0f s  %s" : "%4.0f s  %s\n", passed,
               what_.c_str());
  std::fflush(stderr);
}

}  // namespace sallyport::bench

#include "cli/interrupter.hpp"

#include "cli/message.hpp"
#include "cli/signals.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace sallyport::cli {

interrupter::interrupter(const signals& source, std::function<void()> after_a_second)
    : source_(source), finished_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (finished_.get() < 0) throw system_failure("make an eventfd", errno);
  listener_ = std::thread([this, notice = std::move(after_a_second)] { listen(notice); });
}

std::optional<int> interrupter::finish() noexcept {
  if (listener_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = ::write(finished_.get(), &one, sizeof one);
    listener_.join();
  }
  const int signal = came_.load();
  return signal == 0 ? std::nullopt : std::optional{signal};
}

void interrupter::listen(const std::function<void()>& after_a_second) noexcept {
  int timeout_ms = after_a_second ? 1000 : -1;
  for (;;) {
    std::array<pollfd, 2> sources{
        {{finished_.get(), POLLIN, 0}, {source_.descriptor(), POLLIN, 0}}};
    const int ready = ::poll(sources.data(), sources.size(), timeout_ms);
    if (ready == 0) {
      timeout_ms = -1;
      after_a_second();
    }
    if (ready > 0 && sources[0].revents != 0) return;
    if (ready <= 0) continue;
    while (const auto signal = source_.next()) {
      if (!signals::cancels(*signal))
        continue;  // Ctrl-Z included: a stopped waiter loses its place
      int none = 0;
      came_.compare_exchange_strong(none, *signal);
      stop_.request_stop();
    }
  }
}

}  // namespace sallyport::cli

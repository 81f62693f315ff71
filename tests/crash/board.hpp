#pragma once

#include "backends/local/descriptor.hpp"
#include <sallyport/lease_clock.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/// What the workers of a crash test know of each other without the store: a page of shared memory
/// that says who is inside, so that each who enters can tell whether it was right.
namespace sallyport::crash {

enum class way_in : std::uint64_t { shared = 1, exclusive = 2, permit = 3 };

struct board {
  static constexpr std::size_t most_slots = 16;
  static constexpr std::size_t most_takeovers = 8192;

  struct takeover {
    std::atomic<std::int64_t> dead_pid;
    std::atomic<std::int64_t> when;  // nanoseconds of the lease clock
  };

  std::atomic<std::uint64_t> entries;
  std::atomic<std::uint64_t> two_inside;   // entered beside a living one; must stay 0
  std::atomic<std::uint64_t> tokens_sunk;  // entered with a token that is not larger; must stay 0
  std::atomic<std::uint64_t> troubles;     // errors, lost leases; must stay 0
  std::atomic<std::uint64_t> newest_exclusive;
  std::atomic<std::uint64_t> newest_any;
  /// pid * 4 + way_in, and how many entries there were in the upper half; 0: nobody.
  std::array<std::atomic<std::uint64_t>, most_slots> inside;
  std::atomic<std::uint64_t> takeovers;
  std::array<takeover, most_takeovers> taken_over;
  std::array<char, 512> first_trouble;
};

inline std::int64_t pid_of(std::uint64_t inside) noexcept {
  return static_cast<std::int64_t>((inside & 0xffff'ffffU) / 4);
}
inline way_in way_of(std::uint64_t inside) noexcept { return way_in{inside % 4}; }

inline bool ended(std::int64_t pid) {
  const backends::local::descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle.open()) return errno == ESRCH;
  pollfd wait{handle.number(), POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

/// The page, mapped. Made by the first who opens it.
/// Thread safety: as its atomics.
class shared_board {
 public:
  explicit shared_board(const std::string& path) {
    const backends::local::descriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.open() || ::ftruncate(file.number(), sizeof(board)) != 0) {
      throw std::runtime_error("cannot make the board " + path);
    }
    void* const at =
        ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    if (at == MAP_FAILED) throw std::runtime_error("cannot map the board " + path);
    page_ = static_cast<board*>(at);
  }
  shared_board(const shared_board&) = delete;
  shared_board& operator=(const shared_board&) = delete;
  ~shared_board() { ::munmap(page_, sizeof(board)); }

  board* operator->() const noexcept { return page_; }

  /// Says that this process is inside, and looks whether it may be. `token` 0: none is carried.
  void enter(std::size_t slot, way_in how, std::uint64_t token, std::uint32_t permits) const {
    const std::int64_t now = lease_clock::now().time_since_epoch().count();
    mine_ = ((page_->entries.load() + 1) << 32U) + static_cast<std::uint64_t>(::getpid()) * 4 +
            static_cast<std::uint64_t>(how);
    const std::uint64_t before = page_->inside.at(slot).exchange(mine_);
    if (before != 0) note_takeover(before, now);
    // Two equal pictures, one after the other, are the picture of one moment.
    picture seen = look(slot, now);
    if (how == way_in::permit) {
      for (picture again = look(slot, now); again != seen; again = look(slot, now)) seen = again;
    }
    std::uint32_t others = 0;
    for (const std::uint64_t one : seen) {
      if (one == 0) continue;
      ++others;
      const bool exclusive = how == way_in::exclusive || way_of(one) == way_in::exclusive;
      if (exclusive || (how == way_in::permit && others >= permits)) {
        page_->two_inside.fetch_add(1);
        trouble("entered beside the living process " + std::to_string(pid_of(one)));
      }
    }
    if (token != 0) check_token(how, token);
    page_->entries.fetch_add(1);
  }

  void leave(std::size_t slot) const {
    std::uint64_t mine = mine_;
    if (!page_->inside.at(slot).compare_exchange_strong(mine, 0)) {
      page_->two_inside.fetch_add(1);
      trouble("was taken for dead while inside");
    }
  }

  void trouble(std::string_view what) const {
    if (page_->troubles.fetch_add(1) != 0) return;
    const std::string text = std::to_string(::getpid()) + ": " + std::string(what);
    std::memcpy(page_->first_trouble.data(), text.data(),
                std::min(text.size(), page_->first_trouble.size() - 1));
  }

 private:
  using picture = std::array<std::uint64_t, board::most_slots>;

  /// Who else is inside and alive.
  picture look(std::size_t slot, std::int64_t now) const {
    picture seen{};
    for (std::size_t i = 0; i < board::most_slots; ++i) {
      std::uint64_t one = i == slot ? 0 : page_->inside.at(i).load();
      if (one == 0) continue;
      if (!ended(pid_of(one))) {
        seen.at(i) = one;
      } else if (page_->inside.at(i).compare_exchange_strong(one, 0)) {
        note_takeover(one, now);
      }
    }
    return seen;
  }
  static void raise_to(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    std::uint64_t now = number.load();
    while (now < to && !number.compare_exchange_weak(now, to)) {
    }
  }
  void check_token(way_in how, std::uint64_t token) const {
    const auto& floor = how == way_in::exclusive ? page_->newest_any : page_->newest_exclusive;
    if (token <= floor.load()) {
      page_->tokens_sunk.fetch_add(1);
      trouble("token " + std::to_string(token) + " after " + std::to_string(floor.load()));
    }
    if (how == way_in::exclusive) raise_to(page_->newest_exclusive, token);
    raise_to(page_->newest_any, token);
  }
  void note_takeover(std::uint64_t dead, std::int64_t now) const {
    const std::uint64_t at = page_->takeovers.fetch_add(1);
    if (at >= board::most_takeovers) return;
    page_->taken_over.at(at).when.store(now);
    page_->taken_over.at(at).dead_pid.store(pid_of(dead));
  }

  board* page_;
  mutable std::uint64_t mine_ = 0;  // what stands in the slot of this process
};

}  // namespace sallyport::crash

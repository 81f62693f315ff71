#include "backends/local/presence.hpp"

#include "backends/local/process.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <unistd.h>

namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;

/// Opening takes milliseconds; somebody who takes longer than this was stopped in the middle.
constexpr std::chrono::milliseconds patience_with_others = 10s;
constexpr std::chrono::milliseconds longest_pause = 32ms;

// The bytes of the processes' locks; those of the descriptors' lie two behind.
constexpr off_t present = 0;
constexpr off_t attaching = 1;
constexpr off_t by_descriptor = 2;

struct flock range(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool apply(int file, int command, short type, off_t byte) {
  struct flock lock = range(type, byte);
  return ::fcntl(file, command, &lock) == 0;
}

std::int64_t blocker_of(int file, short type, off_t byte) {
  struct flock lock = range(type, byte);
  return ::fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

short type_of(presence_locks::turn which) {
  return which == presence_locks::turn::look ? F_RDLCK : F_WRLCK;
}

}  // namespace

bool presence_locks::set(short type, off_t byte) const {
  // The descriptor's first: where that one is refused, that of the process may be another copy's.
  if (!apply(file_, F_OFD_SETLK, type, byte + by_descriptor)) return false;
  if (apply(file_, F_SETLK, type, byte)) return true;
  apply(file_, F_OFD_SETLK, F_UNLCK, byte + by_descriptor);
  return false;
}

bool presence_locks::begin_attaching(turn which) const { return set(type_of(which), attaching); }

void presence_locks::end_attaching() const { set(F_UNLCK, attaching); }

std::int64_t presence_locks::in_the_way(turn which) const {
  return blocker_of(file_, type_of(which), attaching);
}

bool presence_locks::be_present() const { return set(F_RDLCK, present); }

bool presence_locks::be_alone() const { return set(F_WRLCK, present); }

std::int64_t presence_locks::somebody_present() const {
  return blocker_of(file_, F_WRLCK, present);
}

base::result<bool> attaching_turn::take(turn which) {
  if (locks_.begin_attaching(which)) return true;
  const std::int64_t pid = locks_.in_the_way(which);
  if (waited_ == 0ms) blocker_ = pid;
  if (pid != blocker_) always_the_same_ = false;
  if (waited_ >= patience_with_others) return tl::unexpected(too_late(pid));
  ::poll(nullptr, 0, static_cast<int>(pause_.count()));
  waited_ += pause_;
  pause_ = std::min(2 * pause_, longest_pause);
  return false;
}

base::failure attaching_turn::too_late(std::int64_t pid) const {
  if (pid != 0 && (always_the_same_ || stopped(pid))) {
    return {make_error_code(errc::unavailable),
            "process " + describe_process(pid) +
                " began to open the store and does not finish; continue it (kill -CONT) or end "
                "it"};
  }
  return {make_error_code(errc::unavailable),
          "many processes open the store at this moment, and the turn of this one did not come "
          "in " +
              std::to_string(patience_with_others / 1s) +
              " s; nothing is wrong with the store, try again"};
}

}  // namespace sallyport::backends::local

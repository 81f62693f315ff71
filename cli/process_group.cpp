#include "cli/process_group.hpp"

#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace sallyport::cli {
namespace {

/// Whether the process of this entry of /proc belongs to the group and is more than a zombie.
bool lives_in(const char* pid_folder, pid_t group) noexcept {
  std::array<char, 300> path{};
  std::snprintf(path.data(), path.size(), "/proc/%s/stat", pid_folder);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 512> text{};
  const ssize_t length = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  if (length <= 0) return false;
  // "pid (name) state ppid pgrp ...": the name may hold anything, also ')'.
  const char* const name_end = std::strrchr(text.data(), ')');
  char state = 0;
  int parent = 0;
  int its_group = 0;
  if (name_end == nullptr ||
      std::sscanf(name_end + 1, " %c %d %d", &state, &parent, &its_group) != 3) {
    return false;
  }
  return its_group == group && state != 'Z' && state != 'X' && state != 'x';
}

}  // namespace

bool group_alive(pid_t group) noexcept {
  if (::kill(-group, 0) != 0 && errno == ESRCH) return false;
  DIR* const all = ::opendir("/proc");
  if (all == nullptr) return true;
  bool found = false;
  bool any = false;
  while (!found) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone.
    const dirent* const entry = ::readdir(all);
    if (entry == nullptr) break;
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    any = true;
    found = lives_in(entry->d_name, group);
  }
  ::closedir(all);
  return found || !any;
}

bool kill_group(pid_t group, std::chrono::milliseconds limit) noexcept {
  constexpr int longest_pause_ms = 50;
  const auto give_up = lease_clock::now() + limit;
  for (int pause_ms = 1;; pause_ms = std::min(pause_ms * 2, longest_pause_ms)) {
    ::kill(-group, SIGKILL);
    if (!group_alive(group)) return true;
    if (lease_clock::now() >= give_up) return false;
    ::poll(nullptr, 0, pause_ms);
  }
}

}  // namespace sallyport::cli

#include "backends/local/process.hpp"

#include <sallyport/error.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>

namespace sallyport::backends::local {
namespace {

/// The beginning of a small file; empty when it cannot be read.
std::string read_small_file(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return {};
  std::array<char, 1024> bytes{};
  const ssize_t got = ::read(file.number(), bytes.data(), bytes.size());
  return got > 0 ? std::string(bytes.data(), static_cast<std::size_t>(got)) : std::string{};
}

std::string process_file(std::int64_t pid, std::string_view name) {
  return "/proc/" + std::to_string(pid) + "/" + std::string(name);
}

/// The n-th word of /proc/PID/stat, counted as proc(5) does; words before the third are not asked
/// for. The second is the program's name, which may hold blanks and parentheses.
std::string_view stat_word(std::string_view stat, int n) {
  const auto name_ends = stat.rfind(')');
  if (name_ends == std::string_view::npos) return {};
  stat.remove_prefix(name_ends + 1);
  for (int word = 3;; ++word) {
    const auto begin = stat.find_first_not_of(' ');
    if (begin == std::string_view::npos) return {};
    stat.remove_prefix(begin);
    const auto end = std::min(stat.find(' '), stat.size());
    if (word == n) return stat.substr(0, end);
    stat.remove_prefix(end);
  }
}

constexpr int state_word = 3;
constexpr int start_time_word = 22;

}  // namespace

base::failure system_failure(int error, std::string_view what) {
  const std::error_code code(error, std::generic_category());
  return {make_error_code(errc::unavailable),
          "cannot " + std::string(what) + ": " + code.message()};
}

std::optional<process_identity> identify(std::int64_t pid) {
  const std::string stat = read_small_file(process_file(pid, "stat"));
  const std::string_view word = stat_word(stat, start_time_word);
  process_identity found{.pid = pid};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), found.started);
  if (error != std::errc{}) return std::nullopt;
  return found;
}

process_identity this_process() {
  const std::int64_t pid = ::getpid();
  return identify(pid).value_or(process_identity{.pid = pid});
}

watched_process::watched_process(const process_identity& who) {
  if (who.pid <= 0) return;
  handle_ = descriptor(static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0)));
  if (!handle_.open()) {
    without_handle_ = errno == ESRCH ? process_state::dead : process_state::unknown;
    return;
  }
  // Held now: whoever has this pid keeps it until it is reaped, so the comparison means something.
  // A process that could not read its own start (no descriptor left) has none on record; rather than
  // take it for dead, rely on the pid.
  const auto found = identify(who.pid);
  if (found && who.started != 0 && found->started != who.started) handle_ = descriptor();
}

process_state watched_process::state() const noexcept {
  if (!handle_.open()) return without_handle_;
  pollfd wait{handle_.number(), POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0 ? process_state::dead : process_state::alive;
}

bool stopped(std::int64_t pid) {
  const std::string stat = read_small_file(process_file(pid, "stat"));
  const std::string_view state = stat_word(stat, state_word);
  return state == "T" || state == "t";
}

std::string describe_process(std::int64_t pid) {
  std::string name = read_small_file(process_file(pid, "comm"));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const std::string stat = read_small_file(process_file(pid, "stat"));
  const std::string_view state = stat_word(stat, state_word);
  std::string text = std::to_string(pid);
  if (name.empty()) return text;
  text += " (" + name;
  if (state == "T") text += ", stopped";
  if (state == "t") text += ", stopped by a debugger";
  return text + ")";
}

base::result<machine_identity> this_machine() {
  machine_identity here;
  here.boot_id = read_small_file("/proc/sys/kernel/random/boot_id");
  while (!here.boot_id.empty() && here.boot_id.back() == '\n') here.boot_id.pop_back();
  if (here.boot_id.size() < 32 || here.boot_id.find('/') != std::string::npos) {
    return base::fail(errc::unavailable,
                      "cannot read /proc/sys/kernel/random/boot_id: local: needs /proc");
  }
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) {
    return base::fail(errc::unavailable, "cannot read /proc/self/ns/pid: local: needs /proc");
  }
  here.pid_namespace = space.st_ino;
  // A /proc of another pid namespace (unshare --pid without --mount-proc) tells of other processes
  // under our pids: then the living could be taken for dead.
  std::array<char, 32> self{};
  const ssize_t length = ::readlink("/proc/self", self.data(), self.size() - 1);
  if (length <= 0 || std::string_view(self.data()) != std::to_string(::getpid())) {
    return base::fail(errc::unavailable,
                      "/proc belongs to another pid namespace: local: needs its own; mount it "
                      "(unshare --mount-proc, or mount -t proc proc /proc)");
  }
  // Kernels before 5.6 have no time namespaces: then all processes share one.
  here.time_namespace = ::stat("/proc/self/ns/time", &space) == 0 ? space.st_ino : 0;
  return here;
}

}  // namespace sallyport::backends::local

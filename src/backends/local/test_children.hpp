#pragma once

#include <sallyport/error.hpp>
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

/// For tests of the store: folders, and children that do something elsewhere: as another user, in
/// another namespace, or only to be killed. Needs root for the namespaces, as containers have it.
namespace sallyport::backends::local {

class temporary_folder {
 public:
  temporary_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "local-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Runs work() in a forked child and returns the text it returned, "error: WHAT" for what it threw,
/// "signal N" or "silence" for what went wrong otherwise.
template <class Work>
std::string in_child(Work work) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = std::string("error: ") + error.what();
    }
    static_cast<void>(::write(ends[1], text.data(), text.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    pollfd readable{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 20'000) <= 0) {
      ::kill(child, SIGKILL);
      text = "silence";
      break;
    }
    const ssize_t got = ::read(ends[0], buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && text.empty()) return "signal " + std::to_string(WTERMSIG(status));
  return text;
}

/// A child that makes something, says so, and keeps it until it is told to end or killed.
class living_child {
 public:
  /// `make` returns what is to be kept.
  template <class Make>
  explicit living_child(Make make) {
    std::array<int, 2> ready{-1, -1};
    std::array<int, 2> end{-1, -1};
    if (::pipe2(ready.data(), O_CLOEXEC) != 0 || ::pipe2(end.data(), O_CLOEXEC) != 0) return;
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(end[1]);
      ::close(ready[0]);
      try {
        [[maybe_unused]] const auto kept = make();
        static_cast<void>(::write(ready[1], "+", 1));
        char byte = 0;
        while (::read(end[0], &byte, 1) < 0 && errno == EINTR) {
        }
      } catch (const std::exception& error) {
        static_cast<void>(::write(ready[1], error.what(), std::strlen(error.what())));
      }
      ::_exit(0);
    }
    ::close(ready[1]);
    ::close(end[0]);
    end_ = end[1];
    std::array<char, 1024> word{};
    pollfd readable{.fd = ready[0], .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 20'000) > 0) {
      static_cast<void>(::read(ready[0], word.data(), word.size() - 1));
    }
    EXPECT_STREQ(word.data(), "+") << "the child did not get so far";
    ::close(ready[0]);
  }
  living_child(const living_child&) = delete;
  living_child& operator=(const living_child&) = delete;
  ~living_child() { kill(); }

  void kill() { finish(SIGKILL); }
  /// Lets it close what it kept.
  void end() { finish(0); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  void finish(int signal) {
    if (pid_ <= 0) return;
    if (signal != 0) ::kill(pid_, signal);
    // Closing it alone would not do: children that were forked since have it open, too.
    if (signal == 0) static_cast<void>(::write(end_, "x", 1));
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  pid_t pid_ = -1;
  int end_ = -1;
};

/// What only a child may do: it changes the whole process.
inline void leave_namespaces(int which) {
  if (::unshare(which) != 0) {
    throw std::runtime_error(std::string("unshare is not permitted here: these tests need root (") +
                             std::generic_category().message(errno) + ")");
  }
  if ((which & CLONE_NEWNS) != 0 &&
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    throw std::runtime_error("cannot make the mounts private");
  }
}

inline void mount_tmpfs(const std::string& folder, const std::string& options) {
  if (::mount("none", folder.c_str(), "tmpfs", 0, options.c_str()) != 0) {
    throw std::runtime_error("cannot mount a tmpfs: " + std::generic_category().message(errno));
  }
}

inline void become_user(uid_t user) {
  if (::setgid(user) != 0 || ::setuid(user) != 0)
    throw std::runtime_error("cannot change the user");
}

/// "ok", or what the library says.
inline std::string try_open(const std::string& address) {
  try {
    const auto store = client::open(address);
    mutex lock{store, "probe"};
    return lock.try_acquire_for(std::chrono::seconds{5}) ? "ok" : "busy";
  } catch (const lock_error& error) {
    return error.code().message() + ": " + error.what();
  }
}

inline std::vector<std::string> names_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

}  // namespace sallyport::backends::local

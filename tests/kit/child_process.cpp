#include "tests/kit/child_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <grp.h>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

/// What the child needs, made before the fork: after it, only async-signal-safe calls are allowed.
struct prepared_child {
  const char* program;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  const char* folder;
  std::optional<user_and_group> run_as;
  int input;
  int output;
  int complaint;  // a pipe for errno; closed by a successful exec
  pid_t parent;
};

[[noreturn]] void give_up(const prepared_child& child) {
  const int why = errno;
  (void)!::write(child.complaint, &why, sizeof why);
  ::_exit(127);
}

[[noreturn]] void become(const prepared_child& child) {
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(child.input, STDIN_FILENO) < 0 || ::dup2(child.output, STDOUT_FILENO) < 0 ||
      ::dup2(child.output, STDERR_FILENO) < 0 || ::chdir(child.folder) != 0) {
    give_up(child);
  }
  if (child.run_as) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(child.run_as->group) != 0 ||
        ::setuid(child.run_as->user) != 0) {
      give_up(child);
    }
  }
  // After the change of user, which forgets it. A parent that died before is not noticed any more.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(child);
  if (::getppid() != child.parent) ::_exit(127);
  if (::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(child);
  ::execvpe(child.program, child.arguments.data(), child.environment.data());
  give_up(child);
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// The test's own environment with `additions`, which replace variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  const auto replaced = [&](std::string_view variable) {
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    return std::any_of(additions.begin(), additions.end(),
                       [&](const std::string& addition) { return addition.starts_with(name); });
  };
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!replaced(*variable)) all.emplace_back(*variable);
  }
  all.insert(all.end(), additions.begin(), additions.end());
  return all;
}

/// A descriptor that is closed with the scope.
class descriptor {
 public:
  explicit descriptor(int number) : number_(number) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { close(); }
  [[nodiscard]] int get() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

}  // namespace

child_process::child_process(child_options options) : options_(std::move(options)) {
  const descriptor input{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const descriptor output{
      ::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  int complaint[2] = {-1, -1};
  if (input.get() < 0 || output.get() < 0 || ::pipe2(complaint, O_CLOEXEC) != 0) {
    throw kit_error("cannot open what " + options_.program + " needs: " + error_text(errno));
  }
  const descriptor reading{complaint[0]};
  descriptor writing{complaint[1]};

  std::vector<std::string> words{options_.called_as.empty() ? options_.program
                                                            : options_.called_as};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<std::string> variables = environment_with(options_.environment);
  const std::string folder = options_.folder.empty() ? "." : options_.folder.string();
  const prepared_child child{.program = options_.program.c_str(),
                             .arguments = pointers_to(words),
                             .environment = pointers_to(variables),
                             .folder = folder.c_str(),
                             .run_as = options_.run_as,
                             .input = input.get(),
                             .output = output.get(),
                             .complaint = writing.get(),
                             .parent = ::getpid()};
  // posix_spawn knows no PR_SET_PDEATHSIG.
  pid_ = ::fork();
  if (pid_ == 0) become(child);
  if (pid_ < 0) throw kit_error("cannot fork for " + options_.program);

  writing.close();
  int why = 0;
  if (::read(reading.get(), &why, sizeof why) > 0) {
    ::waitpid(pid_, nullptr, 0);
    throw kit_error("cannot start " + options_.program + ": " + error_text(why));
  }
  // glibc 2.36 declares pidfd_open for C only.
  handle_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

child_process::~child_process() {
  if (running()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (handle_ >= 0) ::close(handle_);
}

bool child_process::look(bool stopped) {
  int status = 0;
  const int flags = WNOHANG | (stopped ? WUNTRACED : 0);
  if (ended_ || ::waitpid(pid_, &status, flags) != pid_) return false;
  if (WIFSTOPPED(status)) return true;
  ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

bool child_process::running() {
  (void)look(false);
  return !ended_;
}

void child_process::signal(int number) {
  if (running()) ::kill(pid_, number);
}

int child_process::stop(lease_clock::duration within) {
  signal(SIGTERM);
  signal(SIGCONT);  // a process that stands still hears nothing else
  if (!wait_for_end(within)) kill();
  return ended_.value();
}

void child_process::kill() {
  signal(SIGKILL);
  if (!wait_for_end()) throw kit_error("SIGKILL did not end " + options_.program);
}

void child_process::pause() {
  signal(SIGSTOP);
  if (!eventually([&] { return look(true) || ended_; }) || ended_) {
    throw kit_error("SIGSTOP did not stop " + options_.program + "\n" + log_tail());
  }
  paused_ = true;
}

void child_process::resume() {
  signal(SIGCONT);
  paused_ = false;
}

std::optional<int> child_process::wait_for_end(lease_clock::duration within) {
  const auto give_up_at = lease_clock::now() + within;
  while (running()) {
    const int left = milliseconds_until(give_up_at);
    if (left == 0) return std::nullopt;
    pollfd ended{.fd = handle_, .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, left);
  }
  return ended_;
}

std::string child_process::log_tail() const {
  constexpr std::streamoff most = 3'000;
  std::ifstream file{options_.log, std::ios::binary | std::ios::ate};
  if (!file) return "(no log in " + options_.log.string() + ")";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - most));
  std::string text(static_cast<std::size_t>(std::min(size, most)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return "---- the end of " + options_.log.string() + " ----\n" + text;
}

}  // namespace sallyport::kit

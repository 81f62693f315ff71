#include "fence/gate_file.hpp"

#include "base/fork_generation.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sallyport::fence {
namespace {

using std::chrono::nanoseconds;

constexpr int interruption_limit = 100;
constexpr nanoseconds first_pause = std::chrono::microseconds{50};
constexpr nanoseconds longest_pause = std::chrono::milliseconds{5};

/// Repeats a system call that a signal interrupted; a storm of signals ends in EINTR.
template <class Call>
auto uninterrupted(Call call) {
  auto answer = call();
  for (int i = 0; answer < 0 && errno == EINTR && i < interruption_limit; ++i) answer = call();
  return answer;
}

/// Closes a descriptor at the end of a scope.
struct descriptor {
  int fd;
  explicit descriptor(int opened) : fd(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string_view remedy_for(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return "make its folder first";
    case ELOOP:
      return "it is a symbolic link; name the file itself";
    case EISDIR:
    case ENXIO:
      return "name a regular file";
    case ENAMETOOLONG:
      return "choose a shorter path";
    case EACCES:
    case EPERM:
      return "give this user read and write access to the file, and to its folder to make it";
    case EROFS:
      return "keep the gate on a file system that is mounted for writing";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free space, or raise the quota or file size limit";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files";
    case ENOLCK:
    case EOPNOTSUPP:
    case EINVAL:
      return "keep the gate on a file system with file locks, hard links and fsync";
    default:
      return "check the disk and the system's log";
  }
}

errc code_for(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EISDIR:
    case ENXIO:
    case ENAMETOOLONG:
      return errc::bad_option;
    default:
      return errc::unavailable;
  }
}

tl::unexpected<base::failure> refused(const std::filesystem::path& path, std::string_view doing,
                                      int error) {
  std::string detail = "cannot ";
  detail.append(doing).append(" (").append(std::generic_category().message(error)).append("); ");
  detail.append(remedy_for(error));
  return base::fail(code_for(error), about(path, detail));
}

/// 0, or the errno that stopped it. Loops only while bytes are taken.
int write_all(int fd, const slot& bytes, std::size_t offset) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t now = uninterrupted([&] {
      return ::pwrite(fd, bytes.data() + written, bytes.size() - written,
                      static_cast<off_t>(offset + written));
    });
    if (now < 0) return errno;
    if (now == 0) return EIO;
    written += static_cast<std::size_t>(now);
  }
  return 0;
}

/// Both slots are written in full, so that later records need no new space.
int write_first_image(int fd, const gate_record& first) {
  for (std::size_t i = 0; i < slot_count; ++i) {
    const slot bytes = slot_of(first.sequence) == i ? encode(first) : slot{};
    if (const int error = write_all(fd, bytes, i * slot_bytes); error != 0) return error;
  }
  return uninterrupted([&] { return ::fsync(fd); }) == 0 ? 0 : errno;
}

constexpr off_t place_of(part which) { return static_cast<off_t>(which); }
constexpr off_t all_parts = 2;

/// Locks or unlocks bytes of the file. 0, or the errno of F_OFD_SETLK.
int set_lock(int fd, off_t start, off_t length, short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = length;
  return uninterrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &range); }) == 0 ? 0 : errno;
}

void pause_for(nanoseconds length) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(length);
  const timespec limit{.tv_sec = static_cast<time_t>(seconds.count()),
                       .tv_nsec = static_cast<long>((length - seconds).count())};
  // A signal ends the pause early, which only means an early next try.
  (void)::ppoll(nullptr, 0, &limit, nullptr);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const auto folder = path.parent_path();
  return folder.empty() ? std::filesystem::path{"."} : folder;
}

std::filesystem::path unused_name_beside(const std::filesystem::path& path) {
  return folder_of(path) / (".sallyport-gate-" + std::to_string(base::kernel_seed()) + ".new");
}

}  // namespace

std::string about(const std::filesystem::path& path, std::string_view detail) {
  return std::string{"gate file \""}.append(path.native()).append("\": ").append(detail);
}

base::result<std::optional<gate_file>> gate_file::open(const std::filesystem::path& path) {
  // O_NONBLOCK and O_NOCTTY: a path that turns out to be a pipe or a terminal must do no harm
  // before it is refused.
  const int fd = uninterrupted([&] {
    return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  });
  if (fd < 0 && errno == ENOENT) return std::optional<gate_file>{};
  if (fd < 0) return refused(path, "open", errno);

  gate_file opened{fd, path, {}};
  struct stat status {};
  if (::fstat(fd, &status) != 0) return refused(path, "inspect", errno);
  if (!S_ISREG(status.st_mode)) {
    return base::fail(errc::bad_option, about(path, "not a regular file; name one"));
  }
  opened.identity_ = {.device = status.st_dev, .inode = status.st_ino};
  return std::optional<gate_file>{std::move(opened)};
}

base::result<bool> gate_file::create(const std::filesystem::path& path, const gate_record& first) {
  const auto draft = unused_name_beside(path);
  const descriptor file{uninterrupted([&] {
    return ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  })};
  if (file.fd < 0) return refused(path, "make the file", errno);

  const int write_error = write_first_image(file.fd, first);
  // link(2) never replaces: of several makers one wins, and nobody ever sees a half-written gate.
  const bool linked = write_error == 0 && ::link(draft.c_str(), path.c_str()) == 0;
  const int link_error = linked ? 0 : errno;
  ::unlink(draft.c_str());

  if (write_error != 0) return refused(path, "write the new file", write_error);
  if (!linked && link_error == EEXIST) return false;
  // EPERM: a file system without hard links.
  if (!linked)
    return refused(path, "link the new file", link_error == EPERM ? EOPNOTSUPP : link_error);
  return true;
}

base::result<void> gate_file::sync_folder_of(const std::filesystem::path& path) {
  const auto folder = folder_of(path);
  const descriptor opened{
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })};
  if (opened.fd < 0) return refused(path, "open its folder", errno);
  // EINVAL: a file system without fsync for folders; its names need none.
  if (uninterrupted([&] { return ::fsync(opened.fd); }) != 0 && errno != EINVAL) {
    return refused(path, "put its folder on disk", errno);
  }
  return {};
}

gate_file::gate_file(int fd, std::filesystem::path path, file_identity identity) noexcept
    : fd_(fd),
      path_(std::move(path)),
      identity_(identity),
      fork_generation_(base::fork_generation()) {}

gate_file::gate_file(gate_file&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      identity_(other.identity_),
      fork_generation_(other.fork_generation_) {}

gate_file::~gate_file() {
  if (fd_ < 0) return;
  // Closing is not enough when a forked child still has the descriptor; and such a child must not
  // unlock for us.
  if (fork_generation_ == base::fork_generation()) (void)set_lock(fd_, 0, all_parts, F_UNLCK);
  ::close(fd_);
}

base::result<void> gate_file::lock(part which, lock_mode mode, lease_clock::time_point deadline) {
  const short type = mode == lock_mode::exclusive ? F_WRLCK : F_RDLCK;
  std::optional<base::random> jitter;
  for (nanoseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    const int error = set_lock(fd_, place_of(which), 1, type);
    if (error == 0) return {};
    if (error != EAGAIN && error != EACCES) return refused(path_, "lock", error);

    const nanoseconds left = deadline - lease_clock::now();
    if (left <= nanoseconds::zero()) {
      return base::fail(errc::unavailable,
                        about(path_,
                              "others kept the gate busy for longer than wait_limit; see who "
                              "has it open, shorten the actions or raise the limit"));
    }
    if (!jitter) jitter.emplace(base::kernel_seed());
    const auto half = static_cast<std::uint64_t>(pause.count()) / 2;
    pause_for(
        std::min(left, nanoseconds{static_cast<nanoseconds::rep>(half + jitter->below(half))}));
  }
}

void gate_file::unlock(part which) noexcept { (void)set_lock(fd_, place_of(which), 1, F_UNLCK); }

base::result<void> gate_file::pass_on() const {
  if (::fcntl(fd_, F_SETFD, 0) != 0) return refused(path_, "pass it on to a program", errno);
  return {};
}

bool gate_file::in_place() const noexcept {
  struct stat status {};
  return ::lstat(path_.c_str(), &status) == 0 &&
         file_identity{.device = status.st_dev, .inode = status.st_ino} == identity_;
}

base::result<std::vector<std::byte>> gate_file::read() const {
  std::vector<std::byte> bytes(image_bytes + 1);
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t now = uninterrupted([&] {
      return ::pread(fd_, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    });
    if (now < 0) return refused(path_, "read", errno);
    if (now == 0) break;
    filled += static_cast<std::size_t>(now);
  }
  bytes.resize(filled);
  return bytes;
}

base::result<void> gate_file::write(std::size_t index, const slot& bytes) const {
  const int error = write_all(fd_, bytes, index * slot_bytes);
  if (error != 0) return refused(path_, "write", error);
  return {};
}

base::result<void> gate_file::sync() const {
  // fdatasync is enough: the file's length was on disk before the file had a name.
  if (uninterrupted([&] { return ::fdatasync(fd_); }) != 0) return refused(path_, "sync", errno);
  return {};
}

}  // namespace sallyport::fence

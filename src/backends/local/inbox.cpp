#include "backends/local/inbox.hpp"

#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <type_traits>

namespace sallyport::backends::local {
namespace {

struct message_head {
  std::uint32_t magic = right_magic;
  std::uint16_t name_bytes = 0;
  notice_kind kind = notice_kind::changed;
  std::uint8_t provisional = 0;
  holder_id holder;
  std::uint64_t first_token = 0;
  std::uint64_t last_token = 0;
  std::int64_t remaining = 0;
  std::uint32_t permits = 0;
  std::uint32_t unused = 0;

  static constexpr std::uint32_t right_magic = 0x53504e31;
};
static_assert(std::has_unique_object_representations_v<message_head>);
static_assert(sizeof(message_head) + lock_name::max_bytes <= PIPE_BUF);

}  // namespace

std::string encode(const notice& one) {
  message_head head;
  head.kind = one.kind;
  head.holder = one.holder;
  head.name_bytes = static_cast<std::uint16_t>(one.name.size());
  if (one.grant) {
    head.first_token = one.grant->tokens.first.value();
    head.last_token = one.grant->tokens.last.value();
    head.remaining = one.grant->remaining.count();
    head.provisional = one.grant->provisional ? 1 : 0;
    head.permits = one.grant->permits;
  }
  return std::string(bytes_of(head)) + one.name;
}

std::optional<notice> decode(std::string_view& bytes, bool& spoiled) {
  const auto head = read_record<message_head>(bytes);
  if (!head) return std::nullopt;
  if (head->magic != message_head::right_magic || head->kind > notice_kind::changed ||
      head->name_bytes > lock_name::max_bytes) {
    spoiled = true;
    return std::nullopt;
  }
  if (bytes.size() < sizeof(message_head) + head->name_bytes) return std::nullopt;
  notice one;
  one.kind = head->kind;
  one.holder = head->holder;
  one.name = bytes.substr(sizeof(message_head), head->name_bytes);
  if (one.kind == notice_kind::granted) {
    one.grant =
        backend_api::granted{{fencing_token(head->first_token), fencing_token(head->last_token)},
                             duration{head->remaining},
                             head->provisional != 0,
                             head->permits};
  }
  bytes.remove_prefix(sizeof(message_head) + head->name_bytes);
  return one;
}

std::string inbox_name(client_number client, pipes of) {
  std::array<char, 32> text{};
  const auto number = static_cast<unsigned long long>(client);
  switch (of) {
    case pipes::made_by_clients:
      std::snprintf(text.data(), text.size(), "inbox-%016llx", number);
      break;
    case pipes::ready_made:
      std::snprintf(text.data(), text.size(), "%s/%03llx", pipes_folder, number % ready_made_pipes);
      break;
  }
  return text.data();
}

base::result<inbox> inbox::take(int folder) {
  // Begin anywhere: where few are taken, the first one is free.
  const std::uint64_t first = base::kernel_seed();
  for (std::uint64_t tried = 0; tried < ready_made_pipes; ++tried) {
    const std::uint64_t number = (first + tried) % ready_made_pipes;
    descriptor pipe(::openat(folder, inbox_name(number, pipes::ready_made).c_str(),
                             O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!pipe.open()) {
      return tl::unexpected(
          system_failure(errno, "open a pipe of the store (sudo sallyport init local:machine)"));
    }
    struct stat about {};
    if (::fstat(pipe.number(), &about) != 0 || !S_ISFIFO(about.st_mode)) continue;
    if (::flock(pipe.number(), LOCK_EX | LOCK_NB) == 0) return inbox(std::move(pipe), number);
  }
  return base::fail(errc::unavailable, "all " + std::to_string(ready_made_pipes) +
                                           " pipes of the store are taken: so many clients are "
                                           "open at this moment; try again");
}

base::result<inbox> inbox::make(int folder, client_number client, mode_t mode) {
  std::string name = inbox_name(client, pipes::made_by_clients);
  ::unlinkat(folder, name.c_str(), 0);
  // Another user's, which can't be removed, was left by an earlier boot: it will do.
  if (::mkfifoat(folder, name.c_str(), mode) != 0 && errno != EEXIST) {
    return tl::unexpected(system_failure(errno, "make a pipe in the store's folder"));
  }
  // Open for writing as well: so it never reads as ended when no writer is there.
  descriptor pipe(::openat(folder, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  const bool is_pipe =
      pipe.open() && ::fstat(pipe.number(), &about) == 0 && S_ISFIFO(about.st_mode);
  if (!is_pipe) {
    return tl::unexpected(system_failure(pipe.open() ? EEXIST : errno,
                                         "open the pipe '" + name + "' in the store's folder"));
  }
  ::fchmod(pipe.number(), mode);
  return inbox(std::move(pipe), folder, std::move(name));
}

inbox::~inbox() {
  if (!pipe_.open()) return;
  if (name_.empty()) {
    // Not by closing it alone: a forked child may have it open, too.
    ::flock(pipe_.number(), LOCK_UN);
  } else {
    ::unlinkat(folder_, name_.c_str(), 0);
  }
}

bool inbox::receive(std::vector<notice>& notices) {
  std::array<char, 2 * PIPE_BUF> room;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::size_t filled = 0;
  bool spoiled = false;
  for (;;) {
    const ssize_t got = ::read(pipe_.number(), room.data() + filled, room.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return filled == 0 && !spoiled;
    std::string_view bytes(room.data(), filled + static_cast<std::size_t>(got));
    const bool drained = bytes.size() < room.size();
    while (!spoiled) {
      auto one = decode(bytes, spoiled);
      if (!one) break;
      notices.push_back(std::move(*one));
    }
    // Spoiled bytes are dropped with all that came with them: nobody knows where the next begins.
    filled = spoiled ? 0 : bytes.size();
    std::memmove(room.data(), bytes.data(), filled);
    // Whole messages were written, so a rest means that the pipe holds more, or was spoiled.
    if (drained && filled == 0) return !spoiled;
  }
}

void outboxes::post(client_number to, const notice& what) {
  auto found = open_.find(to);
  if (found == open_.end()) {
    descriptor pipe(::openat(folder_, inbox_name(to, pipes_).c_str(),
                             O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!pipe.open() || ::fstat(pipe.number(), &about) != 0 || !S_ISFIFO(about.st_mode)) return;
    if (open_.size() >= most_open) open_.erase(open_.begin());
    found = open_.emplace(to, std::move(pipe)).first;
  }
  const std::string message = encode(what);
  static_cast<void>(::write(found->second.number(), message.data(), message.size()));
}

}  // namespace sallyport::backends::local

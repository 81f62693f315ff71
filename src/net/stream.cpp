#include "net/stream.hpp"

#include "net/failure.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace sallyport::net {
namespace {

transfer moved(std::size_t bytes, bool more) {
  transfer result;
  result.what = transfer::outcome::moved;
  result.bytes = bytes;
  result.more = more;
  return result;
}

transfer not_now(bool wants_write) {
  transfer result;
  result.wants_write = wants_write;
  return result;
}

transfer ended() {
  transfer result;
  result.what = transfer::outcome::closed;
  return result;
}

transfer failed(base::failure why) {
  transfer result;
  result.what = transfer::outcome::failed;
  result.why = std::move(why);
  return result;
}

int at_most_int(std::size_t count) {
  return static_cast<int>(std::min<std::size_t>(count, INT_MAX));
}

}  // namespace

void stream::session_deleter::operator()(ssl_st* session) const noexcept { SSL_free(session); }

stream::stream(base::descriptor socket) noexcept : socket_(std::move(socket)) {}

stream::~stream() {
  if (!healthy_) return;
  // A farewell, so that the server need not take it for an attack; nobody waits for its answer.
  ERR_clear_error();
  SSL_shutdown(session_.get());
  ERR_clear_error();
}

base::result<bool> stream::encrypt(const tls_context& context, const std::string& server_name) {
  auto session = context.make_session(socket_.number(), server_name);
  if (!session) return tl::unexpected(session.error());
  session_.reset(*session);
  return true;
}

transfer stream::judge(int returned) {
  const int system_error = errno;
  switch (SSL_get_error(session_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return not_now(false);
    case SSL_ERROR_WANT_WRITE:
      return not_now(true);
    case SSL_ERROR_ZERO_RETURN:
      return ended();
    case SSL_ERROR_SYSCALL:
      healthy_ = false;
      if (ERR_peek_error() == 0 && system_error == 0) return ended();
      break;
    default:  // the other numbers of SSL_get_error are no enum
      healthy_ = false;
      // The other side has gone without a farewell.
      if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return ended();
      }
      break;
  }
  errno = system_error;
  return failed(tls_failure(session_.get()));
}

transfer stream::handshake() {
  ERR_clear_error();
  errno = 0;
  const int done = SSL_do_handshake(session_.get());
  if (done != 1) return judge(done);
  healthy_ = true;
  return moved(1, SSL_has_pending(session_.get()) == 1);
}

transfer stream::read_some(std::span<char> into) {
  if (session_) {
    ERR_clear_error();
    errno = 0;
    const int got = SSL_read(session_.get(), into.data(), at_most_int(into.size()));
    if (got <= 0) return judge(got);
    return moved(static_cast<std::size_t>(got), SSL_has_pending(session_.get()) == 1);
  }
  for (;;) {
    const ssize_t got = ::recv(socket_.number(), into.data(), into.size(), 0);
    if (got > 0) {
      const auto bytes = static_cast<std::size_t>(got);
      return moved(bytes, bytes == into.size());
    }
    if (got == 0) return ended();
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return not_now(false);
    return failed(system_failure(errno, "reading"));
  }
}

transfer stream::write_some(std::string_view bytes) {
  if (session_) {
    ERR_clear_error();
    errno = 0;
    const int done = SSL_write(session_.get(), bytes.data(), at_most_int(bytes.size()));
    if (done <= 0) return judge(done);
    return moved(static_cast<std::size_t>(done), false);
  }
  for (;;) {
    const ssize_t done = ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done >= 0) return moved(static_cast<std::size_t>(done), false);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return not_now(true);
    return failed(system_failure(errno, "writing"));
  }
}

bool stream::peer_has_left() const noexcept {
  pollfd look{.fd = socket_.number(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void stream::shut_down() const noexcept { ::shutdown(socket_.number(), SHUT_RDWR); }

}  // namespace sallyport::net

#include "backends/mariadb/wire.hpp"

#include "backends/mariadb/speech.hpp"
#include "net/resolution.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <mutex>
#include <mysql.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <utility>

namespace sallyport::backends::mariadb {
namespace {

// An abandoned step ends after a few calls that say "too late".
constexpr int most_farewells = 16;

/// libmariadb ignores SIGPIPE for the whole process when it starts; that is the program's business.
void start_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction before {};
    sigaction(SIGPIPE, nullptr, &before);
    mysql_library_init(0, nullptr, nullptr);
    sigaction(SIGPIPE, &before, nullptr);
  });
}

/// While it lives this thread gets no SIGPIPE: over TLS a write to a connection that the server has
/// ended would raise one. Plain sockets are written to without.
class without_sigpipe {
 public:
  explicit without_sigpipe(bool needed) noexcept : needed_(needed) {
    if (!needed_) return;
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    needed_ = sigismember(&pending, SIGPIPE) == 0;
    if (needed_) pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~without_sigpipe() {
    if (!needed_) return;
    const timespec at_once{};
    while (sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  without_sigpipe(const without_sigpipe&) = delete;
  without_sigpipe& operator=(const without_sigpipe&) = delete;

 private:
  bool needed_;
  sigset_t pipe_{};
  sigset_t before_{};
};

/// The library's own errors, about the connection; all others are the server's.
bool is_clients(unsigned code) noexcept {
  return (code >= 2000 && code < 3000) || (code >= 5000 && code < 6000);
}

/// Which of these has come: MYSQL_WAIT_READ, MYSQL_WAIT_WRITE.
int ready(int descriptor, int wanted) noexcept {
  pollfd look{.fd = descriptor, .events = 0, .revents = 0};
  if ((wanted & MYSQL_WAIT_READ) != 0) look.events |= POLLIN;
  if ((wanted & MYSQL_WAIT_WRITE) != 0) look.events |= POLLOUT;
  if (::poll(&look, 1, 0) <= 0) return 0;
  const bool ended = (look.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  int come = 0;
  if ((look.revents & POLLIN) != 0 || ended) come |= MYSQL_WAIT_READ;
  if ((look.revents & POLLOUT) != 0 || ended) come |= MYSQL_WAIT_WRITE;
  return come & wanted;
}

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

struct wire::handle {
  MYSQL* connection = nullptr;
  MYSQL* connected = nullptr;   // what connecting gave
  MYSQL_RES* stored = nullptr;  // what storing gave
  int failed = 0;               // what asking and advancing gave
};

wire::wire(const address& where, std::string host, const std::string& label)
    : where_(where), host_(std::move(host)), handle_(std::make_unique<handle>()) {
  start_library();
  MYSQL* const made = mysql_init(nullptr);
  handle_->connection = made;
  if (made == nullptr) return;
  const my_bool off = 0;
  const my_bool on = 1;
  const unsigned no = 0;
  mysql_options(made, MYSQL_OPT_NONBLOCK, nullptr);
  mysql_options(made, MYSQL_OPT_RECONNECT, &off);
  mysql_options(made, MYSQL_OPT_LOCAL_INFILE, &no);
  mysql_options(made, MYSQL_SET_CHARSET_NAME, "utf8mb4");
  mysql_optionsv(made, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", ("sallyport:" + label).c_str());
  const auto protocol =
      static_cast<unsigned>(where_.socket.empty() ? MYSQL_PROTOCOL_TCP : MYSQL_PROTOCOL_SOCKET);
  // Without it "localhost" means a unix socket, wherever that may be.
  if (!where_.socket.empty() || !host_.empty()) {
    mysql_options(made, MYSQL_OPT_PROTOCOL, &protocol);
  }
  if (!where_.defaults_file.empty()) {
    mysql_options(made, MYSQL_READ_DEFAULT_FILE, where_.defaults_file.c_str());
  }
  if (!where_.defaults_group.empty()) {
    mysql_options(made, MYSQL_READ_DEFAULT_GROUP, where_.defaults_group.c_str());
  }
  if (where_.tls.on) {
    mysql_ssl_set(made, or_null(where_.tls.key_file), or_null(where_.tls.cert_file),
                  // With an authority it checks who signed, whatever it is told.
                  where_.tls.verify ? or_null(where_.tls.ca_file) : nullptr, nullptr, nullptr);
    mysql_optionsv(made, MYSQL_OPT_SSL_ENFORCE, &on);
    mysql_optionsv(made, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, where_.tls.verify ? &on : &off);
  }
}

wire::~wire() {
  if (handle_->connection == nullptr) return;
  const without_sigpipe quiet(where_.tls.on);
  if (step_ != step::nothing) {
    // What is under way has things of its own, a half-made connection among them, and gives them back
    // only when it comes to an end. The last words of a connection must not wait for a server either.
    const int socket = descriptor();
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
    for (int i = 0; i < most_farewells && waits_for_ != 0; ++i) {
      waits_for_ = resume(MYSQL_WAIT_TIMEOUT);
    }
    if (step_ == step::storing && handle_->stored != nullptr) mysql_free_result(handle_->stored);
  }
  mysql_close(handle_->connection);
}

base::failure wire::trouble() const {
  const unsigned code = mysql_errno(handle_->connection);
  std::string what = mysql_error(handle_->connection);
  for (char& each : what) {
    if (each == '\n' || each == '\r' || each == '\t') each = ' ';
  }
  if (what.empty()) what = "the connection was lost";
  if (code != 0) what += " (" + std::to_string(code) + ")";
  return {make_error_code(errc::unavailable), std::move(what)};
}

// ---- connecting ----------------------------------------------------------------------------------

base::result<wire::wants> wire::dial() {
  if (handle_->connection == nullptr) return base::fail(errc::unavailable, "no memory");
  const without_sigpipe quiet(where_.tls.on);
  if (step_ == step::nothing) {
    step_ = step::connecting;
    waits_for_ = mysql_real_connect_start(
        &handle_->connected, handle_->connection, or_null(host_), or_null(where_.user),
        where_.password ? where_.password->c_str() : nullptr, where_.database.c_str(),
        host_.empty() ? 0 : where_.port, or_null(where_.socket), CLIENT_MULTI_RESULTS);
  } else if (const int come = ready(descriptor(), waits_for_); come != 0) {
    // Not called for nothing: libmariadb would take a connection for made that is not.
    waits_for_ = resume(come);
  }
  if (waits_for_ != 0) {
    return (waits_for_ & MYSQL_WAIT_WRITE) != 0 ? wants::output : wants::input;
  }
  step_ = step::nothing;
  if (handle_->connected != nullptr) {
    // An option file may have asked for it.
    const my_bool off = 0;
    mysql_options(handle_->connection, MYSQL_OPT_RECONNECT, &off);
    return wants::nothing;
  }
  base::failure why = trouble();
  // Servers that start, stop or are full let us in later; who is not let in, a database that is not
  // there, certificates and ways to log in stay as they are.
  constexpr std::array passing{1040U, 1053U, 1129U, 1158U, 1159U,
                               1160U, 1161U, 1203U, 1226U, 1290U};
  constexpr std::array lasting{2026U, 2049U, 2054U, 2059U, 2061U};
  const unsigned code = mysql_errno(handle_->connection);
  const bool refused = is_clients(code)
                           ? std::ranges::find(lasting, code) != lasting.end()
                           : code != 0 && std::ranges::find(passing, code) == passing.end();
  if (refused) why.code = make_error_code(errc::store_refused);
  if (code == 1044) {
    why.detail +=
        "; the user has no rights there yet: let somebody who may run what 'sallyport "
        "schema ADDRESS' prints";
  }
  return tl::unexpected(std::move(why));
}

int wire::descriptor() const noexcept {
  return static_cast<int>(mysql_get_socket(handle_->connection));
}

int wire::server_process() const noexcept {
  return static_cast<int>(mysql_thread_id(handle_->connection));
}

bool wire::peer_has_left() const noexcept {
  pollfd look{.fd = descriptor(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) > 0;  // nothing is under way, so nothing but an end can come
}

// ---- one statement -------------------------------------------------------------------------------

int wire::resume(int events) {
  switch (step_) {
    case step::nothing:
      return 0;
    case step::connecting:
      return mysql_real_connect_cont(&handle_->connected, handle_->connection, events);
    case step::asking:
      return mysql_real_query_cont(&handle_->failed, handle_->connection, events);
    case step::storing:
      return mysql_store_result_cont(&handle_->stored, handle_->connection, events);
    case step::advancing:
      return mysql_next_result_cont(&handle_->failed, handle_->connection, events);
  }
  return 0;
}

void wire::begin(std::string text) {
  text_ = std::move(text);
  half_ = {};
  step_ = step::asking;
  const without_sigpipe quiet(where_.tls.on);
  waits_for_ =
      mysql_real_query_start(&handle_->failed, handle_->connection, text_.data(), text_.size());
  while (waits_for_ == 0 && step_ != step::nothing) waits_for_ = next_step();
}

void wire::go_on() {
  if (step_ == step::nothing) return;
  const without_sigpipe quiet(where_.tls.on);
  // Called for nothing it just finds nothing.
  waits_for_ = resume(waits_for_ & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE));
  while (waits_for_ == 0 && step_ != step::nothing) waits_for_ = next_step();
}

void wire::keep_error() {
  MYSQL* const from = handle_->connection;
  const unsigned code = mysql_errno(from);
  step_ = step::nothing;
  if (is_clients(code)) {
    broken_ = trouble();
    return;
  }
  if (!half_.is_error()) {
    half_.error_code = std::to_string(code);
    half_.error = mysql_error(from);
    half_.rows.clear();
  }
  finish();
}

int wire::start_storing() {
  step_ = step::storing;
  return mysql_store_result_start(&handle_->stored, handle_->connection);
}

int wire::next_step() {
  MYSQL* const from = handle_->connection;
  switch (step_) {
    case step::nothing:
    case step::connecting:
      return 0;
    case step::asking:
      if (handle_->failed == 0) return start_storing();
      keep_error();
      return waits_for_;
    case step::advancing:
      if (handle_->failed == 0) return start_storing();
      if (handle_->failed > 0) {
        keep_error();
        return waits_for_;
      }
      finish();
      return waits_for_;
    case step::storing:
      break;
  }
  MYSQL_RES* const rows = std::exchange(handle_->stored, nullptr);
  if (rows == nullptr && mysql_errno(from) != 0) {
    keep_error();
    return waits_for_;
  }
  if (rows != nullptr) {
    half_.rows.clear();
    const unsigned columns = mysql_num_fields(rows);
    while (MYSQL_ROW row = mysql_fetch_row(rows)) {
      const unsigned long* const lengths = mysql_fetch_lengths(rows);
      auto& values = half_.rows.emplace_back();
      values.reserve(columns);
      for (unsigned i = 0; i < columns; ++i) {
        values.emplace_back(row[i] == nullptr ? "" : row[i], row[i] == nullptr ? 0 : lengths[i]);
      }
    }
    mysql_free_result(rows);
  }
  if (mysql_more_results(from) != 0) {
    step_ = step::advancing;
    return mysql_next_result_start(&handle_->failed, from);
  }
  finish();
  return waits_for_;
}

void wire::finish() {
  step_ = step::nothing;
  waits_for_ = 0;
  if (cleaning_up_) {
    cleaning_up_ = false;
    if (half_.is_error()) {
      broken_ = base::failure{make_error_code(errc::unavailable), half_.error};
      said_.reset();
    }
    return;
  }
  said_ = std::move(half_);
  if (!said_->is_error()) return;
  cleaning_up_ = true;
  begin("ROLLBACK");
}

base::result<std::monostate> wire::say(const std::string& text) {
  begin(text);
  return std::monostate{};
}

base::result<std::optional<reply>> wire::hear() {
  go_on();
  if (broken_) return tl::unexpected(*broken_);
  if (step_ != step::nothing) return std::optional<reply>{};
  return std::exchange(said_, std::nullopt);
}

base::result<std::monostate> wire::send(const call& what, bool /*named*/) {
  begin(text_of(what));
  if (broken_) return tl::unexpected(*broken_);
  return std::monostate{};
}

base::result<bool> wire::flush() {
  if ((waits_for_ & MYSQL_WAIT_WRITE) != 0 && ready(descriptor(), MYSQL_WAIT_WRITE) != 0) go_on();
  if (broken_) return tl::unexpected(*broken_);
  return (waits_for_ & MYSQL_WAIT_WRITE) == 0;
}

base::result<std::monostate> wire::receive(std::vector<reply>& replies) {
  if (step_ == step::nothing && !said_ && !broken_ && peer_has_left()) {
    broken_ = base::failure{make_error_code(errc::unavailable), "the server ended the connection"};
  }
  go_on();
  if (step_ == step::nothing && said_) {
    replies.push_back(std::move(*said_));
    said_.reset();
  }
  if (broken_) return tl::unexpected(*broken_);
  return std::monostate{};
}

// ---- finding -------------------------------------------------------------------------------------

namespace {

std::string digits_of(const net::socket_address& where) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(where.get(), where.length, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

class libmariadb_search final : public sql::search {
 public:
  libmariadb_search(const address& where, std::string label, std::size_t turn)
      : where_(where), label_(std::move(label)), turn_(turn) {
    if (where_.socket.empty() && !where_.host.empty()) {
      question_ = std::make_unique<net::resolution>(where_.host, where_.port);
    }
  }

  [[nodiscard]] std::optional<base::result<std::unique_ptr<sql::wire>>> poll() override {
    using found_wire = base::result<std::unique_ptr<sql::wire>>;
    if (!question_) return found_wire(std::make_unique<wire>(where_, where_.host, label_));
    auto answer = question_->poll();
    if (!answer) return std::nullopt;
    if (!*answer) return found_wire(tl::unexpected(answer->error()));
    std::string host;
    if (!(*answer)->empty()) host = digits_of((**answer)[turn_ % (*answer)->size()]);
    if (host.empty()) {
      return found_wire(base::fail(errc::unavailable, "'" + where_.host + "' has no address"));
    }
    // It is the name that a certificate is about.
    if (where_.tls.on && where_.tls.verify) host = where_.host;
    return found_wire(std::make_unique<wire>(where_, host, label_));
  }

 private:
  const address where_;
  const std::string label_;
  const std::size_t turn_;  // each attempt tries the next address
  std::unique_ptr<net::resolution> question_;
};

}  // namespace

std::unique_ptr<sql::search> search_for(const address& where, const std::string& label,
                                        std::size_t turn) {
  return std::make_unique<libmariadb_search>(where, label, turn);
}

}  // namespace sallyport::backends::mariadb

#include "backends/postgres/wire.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <libpq-fe.h>
#include <poll.h>
#include <variant>

namespace sallyport::backends::postgres {
namespace {

/// One line, without libpq's line ends.
std::string line_of(const char* text) {
  std::string out = text == nullptr ? "" : text;
  for (char& each : out) {
    if (each == '\n' || each == '\r' || each == '\t') each = ' ';
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

/// "...: FATAL:  28P01: password ..." has a code; empty: what is said is the network's word.
std::string code_in(const std::string& text) {
  constexpr std::size_t code_size = 5;
  for (std::size_t at = text.find(":  "); at != std::string::npos; at = text.find(":  ", at + 1)) {
    std::string code = text.substr(at + 3, code_size);
    const bool like_one = code.size() == code_size && std::ranges::all_of(code, [](char each) {
                            return (each >= '0' && each <= '9') || (each >= 'A' && each <= 'Z');
                          });
    if (like_one && text.compare(at + 3 + code_size, 2, ": ") == 0) return code;
  }
  return {};
}

std::string field(const PGresult* from, int which) {
  const char* const found = PQresultErrorField(from, which);
  return found == nullptr ? "" : found;
}

reply error_in(const PGresult* from) {
  reply made;
  made.error_code = field(from, PG_DIAG_SQLSTATE);
  made.error = line_of(field(from, PG_DIAG_MESSAGE_PRIMARY).c_str());
  if (made.error.empty()) made.error = line_of(PQresultErrorMessage(from));
  if (const std::string hint = field(from, PG_DIAG_MESSAGE_HINT); !hint.empty()) {
    made.error += "; " + line_of(hint.c_str());
  }
  // 08000: libpq's own, about the connection.
  if (made.error_code.empty()) made.error_code = "08000";
  return made;
}

reply rows_in(const PGresult* from) {
  reply made;
  const int count = PQntuples(from);
  const int columns = PQnfields(from);
  made.rows.reserve(static_cast<std::size_t>(count));
  for (int row = 0; row < count; ++row) {
    auto& values = made.rows.emplace_back();
    values.reserve(static_cast<std::size_t>(columns));
    for (int column = 0; column < columns; ++column) {
      values.emplace_back(PQgetvalue(from, row, column),
                          static_cast<std::size_t>(PQgetlength(from, row, column)));
    }
  }
  return made;
}

/// Adds a result to what is known of a transaction: the first error counts, or the last rows.
void merge(const PGresult* from, std::optional<reply>& into) {
  if (into && into->is_error()) return;
  switch (PQresultStatus(from)) {
    case PGRES_TUPLES_OK:
      into = rows_in(from);
      return;
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
      if (!into) into.emplace();
      return;
    default:
      into = error_in(from);
      return;
  }
}

struct result_closer {
  void operator()(PGresult* what) const noexcept { PQclear(what); }
};
using result_owner = std::unique_ptr<PGresult, result_closer>;

struct conninfo_closer {
  void operator()(PQconninfoOption* what) const noexcept { PQconninfoFree(what); }
};

}  // namespace

base::result<wire_parameters> wire_parameters_of(const std::string& uri) {
  char* message = nullptr;
  const std::unique_ptr<PQconninfoOption, conninfo_closer> all(
      PQconninfoParse(uri.c_str(), &message));
  if (!all) {
    // libpq quotes what it does not understand, and that may be a part of the password.
    std::string why = line_of(message);
    PQfreemem(message);
    if (!why.starts_with("invalid URI query parameter")) why = "libpq does not understand it";
    return base::fail(errc::bad_uri, why);
  }
  wire_parameters found;
  for (const PQconninfoOption* each = all.get(); each->keyword != nullptr; ++each) {
    if (each->val != nullptr) found.emplace_back(each->keyword, each->val);
  }
  return found;
}

struct wire::handle {
  PGconn* connection = nullptr;
};

wire::wire(const wire_parameters& where) : handle_(std::make_unique<handle>()) {
  std::vector<const char*> keywords;
  std::vector<const char*> values;
  for (const auto& [keyword, value] : where) {
    keywords.push_back(keyword.c_str());
    values.push_back(value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  handle_->connection = PQconnectStartParams(keywords.data(), values.data(), 0);
  if (handle_->connection == nullptr) return;
  // A refusal is told in words only, but these have its code.
  PQsetErrorVerbosity(handle_->connection, PQERRORS_VERBOSE);
  PQsetNoticeProcessor(
      handle_->connection, [](void*, const char*) {}, nullptr);
}

wire::~wire() {
  if (handle_->connection != nullptr) PQfinish(handle_->connection);
}

base::failure wire::trouble() const {
  std::string what = last_words_;
  if (what.empty()) what = line_of(PQerrorMessage(handle_->connection));
  if (what.empty()) what = "the connection was lost";
  return {make_error_code(errc::unavailable), what};
}

base::result<wire::wants> wire::dial() {
  if (handle_->connection == nullptr) return base::fail(errc::unavailable, "no memory");
  if (PQstatus(handle_->connection) != CONNECTION_BAD) {
    switch (PQconnectPoll(handle_->connection)) {
      case PGRES_POLLING_READING:
        return wants::input;
      case PGRES_POLLING_OK:
        PQsetErrorVerbosity(handle_->connection, PQERRORS_DEFAULT);
        if (PQsetnonblocking(handle_->connection, 1) != 0) break;
        return wants::nothing;
      case PGRES_POLLING_FAILED:
        break;
      case PGRES_POLLING_WRITING:
      case PGRES_POLLING_ACTIVE:
        return wants::output;
    }
  }
  base::failure why = trouble();
  const std::string code = code_in(why.detail);
  if (const auto at = why.detail.find(" LOCATION: "); at != std::string::npos) {
    why.detail.resize(at);
  }
  // Who is not let in (28), a database that is not there (3D), rights; and what libpq says of
  // certificates, files and options. Servers that start, stop or are full let us in later.
  const bool refused =
      code.empty() ? why.detail.find("SSL") != std::string::npos ||
                         why.detail.find("certificate") != std::string::npos ||
                         why.detail.find("password supplied") != std::string::npos ||
                         why.detail.find("definition of service") != std::string::npos ||
                         why.detail.find("service file") != std::string::npos ||
                         why.detail.find("invalid ") != std::string::npos
                   : !code.starts_with("57") && !code.starts_with("53") && !code.starts_with("08");
  if (refused) why.code = make_error_code(errc::store_refused);
  return tl::unexpected(std::move(why));
}

int wire::descriptor() const noexcept { return PQsocket(handle_->connection); }

int wire::server_process() const noexcept { return PQbackendPID(handle_->connection); }

base::result<std::monostate> wire::say(const std::string& text) {
  half_.reset();
  if (PQsendQuery(handle_->connection, text.c_str()) == 0) return tl::unexpected(trouble());
  return std::monostate{};
}

base::result<std::optional<reply>> wire::hear() {
  if (PQflush(handle_->connection) < 0 || PQconsumeInput(handle_->connection) == 0) {
    return tl::unexpected(trouble());
  }
  while (PQisBusy(handle_->connection) == 0) {
    const result_owner one(PQgetResult(handle_->connection));
    if (!one) return std::exchange(half_, std::nullopt);
    merge(one.get(), half_);
    if (PQstatus(handle_->connection) == CONNECTION_BAD) return tl::unexpected(trouble());
  }
  return std::optional<reply>{};
}

base::result<std::monostate> wire::begin_calls() {
  half_.reset();
  if (PQenterPipelineMode(handle_->connection) == 0) return tl::unexpected(trouble());
  return std::monostate{};
}

base::result<std::monostate> wire::send(const call& what, bool named) {
  PGconn* const to = handle_->connection;
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
  const std::size_t count = what.parameters.size();
  values.reserve(count);
  lengths.reserve(count);
  formats.reserve(count);
  for (const parameter& each : what.parameters) {
    values.push_back(each.bytes.c_str());
    lengths.push_back(static_cast<int>(each.bytes.size()));
    formats.push_back(each.binary ? 1 : 0);
  }
  const int parameters = static_cast<int>(count);
  bool done = true;
  const statement* fresh = nullptr;
  if (what.prepared != nullptr && named) {
    if (prepared_.insert(what.prepared).second) {
      fresh = what.prepared;
      done = PQsendPrepare(to, what.prepared->name.c_str(), what.prepared->text.c_str(), 0,
                           nullptr) == 1;
    }
    done = done && PQsendQueryPrepared(to, what.prepared->name.c_str(), parameters, values.data(),
                                       lengths.data(), formats.data(), 0) == 1;
  } else {
    const std::string& text = what.prepared != nullptr ? what.prepared->text : what.text;
    done = PQsendQueryParams(to, text.c_str(), parameters, nullptr, values.data(), lengths.data(),
                             formats.data(), 0) == 1;
  }
  // Counted first: this also writes, and a failure to write does not mean that nothing was sent.
  unended_.push_back(fresh);
  if (!done || PQpipelineSync(to) == 0) return tl::unexpected(trouble());
  return std::monostate{};
}

base::result<bool> wire::flush() {
  const int left = PQflush(handle_->connection);
  if (left < 0) return tl::unexpected(trouble());
  return left == 0;
}

base::result<std::monostate> wire::receive(std::vector<reply>& replies) {
  PGconn* const from = handle_->connection;
  const bool readable = PQconsumeInput(from) == 1;
  int blanks = 0;
  while (!unended_.empty() && PQisBusy(from) == 0 && blanks < 3) {
    const result_owner one(PQgetResult(from));
    if (!one) {
      ++blanks;
      continue;
    }
    blanks = 0;
    if (PQresultStatus(one.get()) == PGRES_PIPELINE_SYNC) {
      // Only now is the transaction committed: what came before it is no answer yet.
      replies.push_back(half_ ? std::move(*half_) : reply{});
      half_.reset();
      unended_.pop_front();
      continue;
    }
    if (field(one.get(), PG_DIAG_SEVERITY_NONLOCALIZED) == "FATAL") {
      last_words_ = error_in(one.get()).error;
    }
    // The first result of the two is about the preparation: if that failed, the statement is not there.
    const bool prepares = !half_ && unended_.front() != nullptr;
    merge(one.get(), half_);
    if (prepares && half_->is_error()) prepared_.erase(unended_.front());
    if (PQstatus(from) == CONNECTION_BAD) break;
  }
  if (!readable || PQstatus(from) == CONNECTION_BAD) return tl::unexpected(trouble());
  return std::monostate{};
}

void wire::take_notifications(std::vector<notification>& into) {
  while (PGnotify* const one = PQnotifies(handle_->connection)) {
    into.push_back({one->relname, one->extra == nullptr ? "" : one->extra});
    PQfreemem(one);
  }
}

bool wire::peer_has_left() const noexcept {
  pollfd look{.fd = descriptor(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace sallyport::backends::postgres

#include "backends/postgres/greeting.hpp"

#include "backends/postgres/answers.hpp"
#include "backends/postgres/schema.hpp"
#include "backends/postgres/speech.hpp"
#include "backends/sql/promises.hpp"
#include <sallyport/error.hpp>

#include <charconv>
#include <utility>

namespace sallyport::backends::postgres {
namespace {

constexpr int oldest_version = 130000;
constexpr int keep_alive_after_s = 10;

int whole_number(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Whether it says that the schema or its tables are not there, or are not ours.
bool says_missing(const reply& said) {
  return said.error_code == "42P01" || said.error_code == "3F000" || said.error_code == "42703" ||
         said.error_code == "42809";
}

}  // namespace

std::string greeting::ask_version() {
  step_ = step::asked_version;
  return "SELECT version, store FROM " + quoted(where_.schema) + ".state";
}

base::result<std::optional<std::string>> greeting::next(const reply* said) {
  if (said == nullptr) {
    return "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('server_version_num'), "
           "current_setting('fsync'), current_setting('full_page_writes'), "
           "current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), "
           "current_setting('lock_timeout'), current_setting('tcp_keepalives_idle')";
  }
  switch (step_) {
    case step::asked_facts:
      return hear_facts(*said);
    case step::set_up:
      if (said->is_error()) return tl::unexpected(failure_of(*said));
      return ask_version();
    case step::asked_version:
      return hear_version(*said);
    case step::installed:
      if (said->is_error()) {
        base::failure why = failure_of(*said);
        if (said->error_code == "42501") {
          why.detail = "the role may not make Sallyport's tables: " + said->error +
                       "; let somebody who may run what 'sallyport schema ADDRESS' prints";
        }
        return tl::unexpected(std::move(why));
      }
      return ask_version();
  }
  return base::fail(errc::unavailable, "a greeting without an end");
}

base::result<std::optional<std::string>> greeting::hear_facts(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (said.rows.size() != 1 || said.rows.front().size() != 9) {
    return base::fail(errc::store_refused, "this is no PostgreSQL server");
  }
  const auto& row = said.rows.front();
  facts_.version = whole_number(row[2]);
  facts_.fsync = row[3] == "on";
  facts_.full_page_writes = row[4] == "on";
  facts_.synchronous_commit = row[5];
  facts_.standbys = !row[6].empty();
  facts_.pooled = where_.pooler == pooling::transactions ||
                  (where_.pooler == pooling::detect && whole_number(row[0]) != process_);
  if (facts_.version < oldest_version) {
    return base::fail(errc::store_refused,
                      "it is PostgreSQL " + row[2] + ", and Sallyport needs 13 or later");
  }
  if (row[1] == "t") {
    return base::fail(errc::unavailable,
                      "it is a read-only replica; name its primary, or several hosts with "
                      "target_session_attrs=read-write");
  }
  if (facts_.pooled) return ask_version();
  step_ = step::set_up;
  // A transaction that keeps a lock's name for so long is stuck, and those behind it go on: before a
  // request's usual time-out, so that they are told why.
  std::string settings = row[7] == "0" ? "SET lock_timeout = '1500ms'; " : "";
  // The server notices within half a minute that our host is gone, with whatever a session of ours keeps
  // then, and not in two hours. 0: a unix socket, which needs none.
  if (whole_number(row[8]) > keep_alive_after_s) {
    settings += "SET tcp_keepalives_idle = " + std::to_string(keep_alive_after_s) +
                "; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
                "SET tcp_user_timeout = 25000; ";
  }
  // An error is an answer, and not the end of the session.
  settings += "SET exit_on_error = off; ";
  return settings + "SET default_transaction_isolation = 'read committed'";
}

base::result<std::optional<std::string>> greeting::hear_version(const reply& said) {
  if (said.is_error() && says_missing(said) && !made_schema_) {
    made_schema_ = true;
    step_ = step::installed;
    return schema_text(where_.schema);
  }
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (said.rows.size() != 1 || said.rows.front().size() != 2) {
    return base::fail(errc::store_refused,
                      "the table state of schema " + quoted(where_.schema) +
                          " is not as Sallyport made it; name another schema (?schema=...)");
  }
  if (said.rows.front()[0] != std::to_string(schema_version)) {
    return base::fail(errc::store_refused, "schema " + quoted(where_.schema) + " has version " +
                                               said.rows.front()[0] + ", and this program needs " +
                                               std::to_string(schema_version));
  }
  facts_.store = said.rows.front()[1];
  return std::optional<std::string>{};
}

sallyport::capabilities capabilities_of(const std::optional<server_facts>& facts,
                                        const address& where) {
  sallyport::capabilities all = sql::promises();
  all.survives_store_restart = facts && facts->fsync;
  all.caveats = {
      std::string(sql::clock_caveat),
      "A server that is restored from old data, or a replica that is promoted and lacks what was "
      "committed last, forgets locks; if it lacks more than a million grants, or was restored, "
      "tokens may come again.",
  };
  if (!facts) {
    all.caveats.emplace_back(sql::unreached_caveat);
    return all;
  }
  if (facts->pooled) {
    all.caveats.emplace_back(
        "A pooler stands before the server, so there are no notices: waiters ask every quarter of "
        "a "
        "second.");
  }
  if (!facts->fsync || !facts->full_page_writes) {
    all.caveats.emplace_back(
        "fsync or full_page_writes is off: after a crash of its machine the server may have "
        "forgotten "
        "anything, tokens among it.");
  }
  if (!where.durable) {
    all.caveats.emplace_back(
        "durable=no: a crash of the server forgets the locks of its last moments, and two may hold "
        "one. Tokens jump and do not come again.");
  }
  if (!facts->standbys) {
    all.caveats.emplace_back(
        "No standby is synchronous: if there are standbys, a fail-over can forget a lock that was "
        "just granted.");
  }
  return all;
}

}  // namespace sallyport::backends::postgres

#include "base/random.hpp"
#include "fence/pause.hpp"
#include "fence/retry.hpp"
#include "fence/row_state.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sallyport::optimistic {

namespace {

constexpr lease_clock::duration longest_time_limit = std::chrono::hours{24};
constexpr lease_clock::duration longest_pause_limit = std::chrono::minutes{1};
/// Rows that are made again start at a random version below this, so that no late writer takes one for
/// the row that was deleted. Leaves versions below 2^53, which every language can count in.
constexpr std::uint64_t first_versions = std::uint64_t{1} << 52;

[[noreturn]] void refuse(errc code, const std::string& why) {
  throw lock_error(code, "optimistic rows: " + why);
}

fence::retry::limits limits_of(const options& how) {
  constexpr auto zero = lease_clock::duration::zero();
  if (how.time_limit < zero || how.time_limit > longest_time_limit) {
    refuse(errc::bad_option, "time_limit must be between 0 and 24 h");
  }
  if (how.most_attempts == 0) refuse(errc::bad_option, "most_attempts must be 1 at least");
  if (how.first_pause < zero || how.first_pause > how.longest_pause ||
      how.longest_pause > longest_pause_limit) {
    refuse(errc::bad_option, "0 <= first_pause <= longest_pause <= 1 minute must hold");
  }
  return {.deadline = lease_clock::now() + how.time_limit,
          .most_attempts = how.most_attempts,
          .first_pause = how.first_pause,
          .longest_pause = how.longest_pause};
}

std::string new_writer(base::random& random) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out(table::writer_bytes, '0');
  for (char& each : out) each = digits[random.below(digits.size())];
  return out;
}

bool one_changed(const sql::answer& given) {
  if (given.changed > 1) {
    refuse(errc::store_refused, "several rows were written; the key needs a unique index");
  }
  return given.changed == 1;
}

std::string_view begin_of(sql::dialect whose) {
  switch (whose) {
    case sql::dialect::postgres:
      return "BEGIN";
    case sql::dialect::mariadb:
      return "START TRANSACTION";
    case sql::dialect::sqlite:
      // It will write: to find that out later could mean to be refused for good.
      return "BEGIN IMMEDIATE";
  }
  return "BEGIN";
}

/// Attempts, and the pauses between them.
class trials {
 public:
  explicit trials(const options& how)
      : retry_(limits_of(how)), stop_(how.stop), random_(base::kernel_seed()) {}

  /// Calls until it is true, and says so. False: it is enough. An attempt that threw connection_lost
  /// last is told through lost().
  bool until(const std::function<bool()>& done) {
    for (;;) {
      if (stop_.stop_requested()) return false;
      ++attempts_;
      lost_ = nullptr;
      refused_ = nullptr;
      try {
        if (done()) return true;
      } catch (const sql::conflict&) {
        ++conflicts_;
        refused_ = std::current_exception();
      } catch (const sql::connection_lost&) {
        lost_ = std::current_exception();
      }
      // Not inside the handlers: the pause is long.
      const auto pause = retry_.after_failure(lease_clock::now(), random_.unit());
      if (!pause || !fence::pause_for(*pause, stop_)) return false;
    }
  }

  void count_conflict() { ++conflicts_; }
  [[nodiscard]] std::uint32_t attempts() const { return attempts_; }
  [[nodiscard]] std::uint32_t conflicts() const { return conflicts_; }
  /// What ended the last attempt, if it was that.
  [[nodiscard]] const std::exception_ptr& lost() const { return lost_; }
  [[nodiscard]] const std::exception_ptr& refused() const { return refused_; }
  base::random& random() { return random_; }

 private:
  fence::retry retry_;
  const std::stop_token stop_;
  base::random random_;
  std::uint32_t attempts_ = 0;
  std::uint32_t conflicts_ = 0;
  std::exception_ptr lost_;
  std::exception_ptr refused_;
};

std::string sentence_of(const std::exception_ptr& failure) {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return std::string(": ") + error.what();
  } catch (...) {
    return {};
  }
}

/// One call of update().
class updating {
 public:
  updating(const sql::executor& execute, const table& rows, const sql::value& key,
           const decision& decide, const options& how)
      : execute_(execute), rows_(rows), key_(key), decide_(decide), how_(how), trials_(how) {
    if (std::holds_alternative<std::monostate>(key)) refuse(errc::bad_option, "the key is NULL");
  }

  outcome run() {
    const bool done = trials_.until([this] { return attempt(); });
    if (!done) {
      // A write whose fate is open is neither written nor given up.
      if (in_doubt_) throw unsettled(pending(), "no answer in time" + sentence_of(trials_.lost()));
      if (trials_.lost()) std::rethrow_exception(trials_.lost());
      outcome_ = {};
    }
    outcome_.attempts = trials_.attempts();
    outcome_.conflicts = trials_.conflicts();
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] pending_write pending() const {
    return {.key = key_, .version = read_version_, .writer = writer_};
  }

  /// The user's executor. While a write is in doubt, no failure may hide that.
  sql::answer execute(const sql::statement& one) {
    if (!in_doubt_) return execute_(one);
    try {
      return execute_(one);
    } catch (const sql::conflict&) {
      throw;
    } catch (const sql::connection_lost&) {
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(unsettled(pending(), std::string(": ") + error.what()));
    } catch (...) {
      std::throw_with_nested(unsettled(pending(), {}));
    }
  }

  /// True: the outcome is there.
  bool attempt() {
    std::optional<row_state> row = row_in(rows_, execute(rows_.read(key_)));
    if (!row && in_doubt_) throw unsettled(pending(), ": the row is gone");
    if (!row && how_.create) {
      execute(rows_.create(key_, new_version(), *how_.create));
      row = row_in(rows_, execute(rows_.read(key_)));
      if (!row) throw sql::conflict("the row is gone again");
    }
    if (!row) return finish(outcome::kind::no_such_row, 0, {});
    if (in_doubt_) {
      switch (fate_of(pending(), *row)) {
        case fate::written:
          return finish_written();
        case fate::open:
          // The row is as it was when `decide` saw it. The same write once more: at this version only
          // one of the two can happen.
          return send();
        case fate::dead:
          in_doubt_ = false;
          trials_.count_conflict();
          break;
        case fate::unknown:
          throw unsettled(pending(), ": the row has been written since, and does not tell by whom");
      }
    }
    return decide_on(std::move(*row));
  }

  bool decide_on(row_state row) {
    std::optional<change> decided = decide_(row.values);
    if (!decided) return finish(outcome::kind::unchanged, row.version, std::move(row.values));
    change_ = std::move(*decided);
    read_version_ = row.version;
    if (writer_.empty()) writer_ = new_writer(trials_.random());
    return send();
  }

  bool send() {
    sent_ = false;
    bool written = false;
    try {
      written = change_.also.empty() ? write() : write_in_transaction();
    } catch (const sql::connection_lost&) {
      in_doubt_ = in_doubt_ || sent_;
      throw;
    }
    if (written) return finish_written();
    // In doubt, the earlier one of two equal writes may have been the faster.
    if (!in_doubt_) trials_.count_conflict();
    return false;
  }

  bool write() {
    const sql::statement one = rows_.write(key_, read_version_, change_.values, writer_);
    sent_ = true;
    return one_changed(execute(one));
  }

  bool write_in_transaction() {
    execute({.text = std::string(begin_of(rows_.dialect()))});
    try {
      if (!write()) {
        roll_back();
        return false;
      }
      for (const sql::statement& each : change_.also) execute(each);
      execute({.text = "COMMIT"});
      return true;
    } catch (const sql::connection_lost&) {
      throw;  // the server rolls back what was not committed
    } catch (...) {
      roll_back();
      throw;
    }
  }

  /// The failure that led here is the one to be told, and a database that has rolled back already
  /// complains.
  void roll_back() noexcept {
    try {
      execute_({.text = "ROLLBACK"});
    } catch (...) {  // NOLINT(bugprone-empty-catch)
    }
  }

  std::int64_t new_version() {
    return 1 + static_cast<std::int64_t>(trials_.random().below(first_versions));
  }

  bool finish_written() {
    in_doubt_ = false;
    return finish(outcome::kind::written, read_version_ + 1, std::move(change_.values));
  }

  bool finish(outcome::kind is, std::int64_t version, values&& of_row) {
    outcome_ = {.is = is, .version = version, .values = std::move(of_row)};
    return true;
  }

  const sql::executor& execute_;
  const table& rows_;
  const sql::value& key_;
  const decision& decide_;
  const options& how_;
  trials trials_;

  // What was decided last, on which version, and under which id it is written.
  change change_;
  std::int64_t read_version_ = 0;
  std::string writer_;
  bool sent_ = false;      // the write of this attempt may have reached the database
  bool in_doubt_ = false;  // it did, perhaps, and no answer came
  outcome outcome_;
};

}  // namespace

std::string_view to_string(outcome::kind is) noexcept {
  switch (is) {
    case outcome::kind::written:
      return "written";
    case outcome::kind::unchanged:
      return "unchanged";
    case outcome::kind::no_such_row:
      return "no_such_row";
    case outcome::kind::gave_up:
      return "gave_up";
  }
  return "unknown";
}

std::string_view to_string(settlement is) noexcept {
  switch (is) {
    case settlement::written:
      return "written";
    case settlement::not_written:
      return "not_written";
    case settlement::unknown:
      return "unknown";
  }
  return "unknown";
}

unsettled::unsettled(pending_write write, const std::string& why)
    : lock_error(errc::outcome_unknown,
                 "optimistic rows: a write was sent, and whether it happened is not known" + why),
      write_(std::move(write)) {}

outcome update(const sql::executor& execute, const table& rows, const sql::value& key,
               const decision& decide, const options& how) {
  return updating{execute, rows, key, decide, how}.run();
}

settlement settle(const sql::executor& execute, const table& rows, const pending_write& write,
                  const options& how) {
  trials all{how};
  settlement out = settlement::unknown;
  const bool done = all.until([&] {
    const std::optional<row_state> row = row_in(rows, execute(rows.read(write.key)));
    if (!row) return true;
    switch (fate_of(write, *row)) {
      case fate::written:
        out = settlement::written;
        return true;
      case fate::open:
        // Not yet. Nothing can be written at this version once it is over.
        if (!one_changed(execute(rows.seal(write.key, write.version)))) return false;
        out = settlement::not_written;
        return true;
      case fate::dead:
        out = settlement::not_written;
        return true;
      case fate::unknown:
        return true;
    }
    return true;
  });
  if (done) return out;
  if (all.lost()) std::rethrow_exception(all.lost());
  if (all.refused()) std::rethrow_exception(all.refused());
  throw sql::conflict("optimistic rows: there was no time to find out what became of a write");
}

}  // namespace sallyport::optimistic

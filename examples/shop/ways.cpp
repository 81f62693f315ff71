// Selling the last piece once: four ways.

#include "ways.hpp"

#include <sallyport/optimistic.hpp>
#include <sallyport/sallyport.hpp>
#include <sallyport/sql.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <variant>

namespace {

namespace optimistic = sallyport::optimistic;
namespace sql = sallyport::sql;
using namespace std::chrono_literals;

constexpr auto patience = 5min;

/// Composes statements with the placeholders of the database: "... ? ... ?" as MariaDB and SQLite have it.
sql::statement statement(const database& own, const std::string& text,
                         std::vector<sql::value> parameters) {
  sql::statement out{.text = {}, .parameters = std::move(parameters)};
  std::size_t index = 0;
  for (const char each : text) {
    out.text += each == '?' ? sql::placeholder(own.dialect(), ++index) : std::string(1, each);
  }
  return out;
}

std::string begin(const database& own) {
  return own.dialect() == sql::dialect::sqlite ? "BEGIN IMMEDIATE" : "START TRANSACTION";
}

std::int64_t pieces_left(database& own, const std::string& item) {
  const sql::answer read = own.execute(
      statement(own, std::string("SELECT pieces FROM ") + stock_table + " WHERE item = ?", {item}));
  return std::get<std::int64_t>(read.rows.at(0).at(0));
}

/// Pieces have numbers; the last one has number 1.
sql::statement record_of_sale(const database& own, const std::string& item, std::int64_t number,
                              std::int64_t buyer) {
  return statement(own, std::string("INSERT INTO ") + sales_table + " VALUES (?, ?, ?)",
                   {item, number, buyer});
}

// 1. One statement that can't go wrong. If the rule fits into a WHERE, this is the way.
attempt_to_buy buy_by_atomic_statement(database& own, const std::string& item, std::int64_t buyer) {
  own.execute(begin(own));
  const sql::answer taken =
      own.execute(statement(own,
                            std::string("UPDATE ") + stock_table +
                                " SET pieces = pieces - 1 WHERE item = ? AND pieces > 0",
                            {item}));
  if (taken.changed == 1) {
    own.execute(record_of_sale(own, item, pieces_left(own, item) + 1, buyer));
  }
  own.execute("COMMIT");
  return {.sold = taken.changed == 1};
}

// 2. A row with a version. The rule is C++ code, nobody waits for anybody, and whoever was too slow
// decides again.
attempt_to_buy buy_by_version(database& own, const optimistic::table& stock,
                              const std::string& item, std::int64_t buyer) {
  const optimistic::outcome done = optimistic::update(
      own.executor(), stock, item,
      [&](const optimistic::values& read) -> std::optional<optimistic::change> {
        const std::int64_t left = std::get<std::int64_t>(read.at(0));
        if (left == 0) return std::nullopt;
        return optimistic::change{.values = {left - 1},
                                  .also = {record_of_sale(own, item, left, buyer)}};
      },
      {.time_limit = patience});
  if (done.is == optimistic::outcome::kind::written) {
    return {.sold = true, .conflicts = done.conflicts};
  }
  if (done.is == optimistic::outcome::kind::unchanged) return {.conflicts = done.conflicts};
  throw std::runtime_error("no sale: " + std::string(to_string(done.is)));
}

// 3. A lock, and its token in the row. For jobs that do more than one row can say, while nobody else may. A
// holder shows its token before it reads, and the statement that writes asks whether a newer one came since: a
// holder that was late is refused, also while the newer one is still thinking.
attempt_to_buy buy_under_lock(database& own, sallyport::mutex& lock, const std::string& item,
                              std::int64_t buyer) {
  const std::string stock = stock_table;
  for (attempt_to_buy out;; ++out.conflicts) {
    const auto lease = lock.try_acquire_for(patience);
    if (!lease) throw std::runtime_error("the lock did not come free");
    const auto token = static_cast<std::int64_t>(lease->token().value());
    const sql::answer shown = own.execute(
        statement(own, "UPDATE " + stock + " SET fence = ? WHERE item = ? AND fence <= ?",
                  {token, item, token}));
    if (shown.changed == 0) continue;  // a newer holder was here: this lease was lost. Once more

    const std::int64_t left = pieces_left(own, item);
    if (left == 0) return out;
    own.execute(begin(own));
    const sql::answer taken = own.execute(
        statement(own, "UPDATE " + stock + " SET pieces = ? WHERE item = ? AND fence = ?",
                  {left - 1, item, token}));
    if (taken.changed == 0) {
      own.execute("ROLLBACK");
      continue;
    }
    own.execute(record_of_sale(own, item, left, buyer));
    own.execute("COMMIT");
    out.sold = true;
    return out;
  }
}

// 4. How not to do it: read, think, write. What others sold in between is sold again.
attempt_to_buy buy_carelessly(database& own, const std::string& item, std::int64_t buyer) {
  const std::int64_t left = pieces_left(own, item);
  if (left == 0) return {};
  own.execute(begin(own));
  own.execute(statement(own,
                        std::string("UPDATE ") + stock_table + " SET pieces = ? WHERE item = ?",
                        {left - 1, item}));
  own.execute(record_of_sale(own, item, left, buyer));
  own.execute("COMMIT");
  return {.sold = true};
}

}  // namespace

const std::vector<way>& all_ways() {
  static const std::vector<way> ways{
      {"atomic", "SET pieces = pieces - 1 WHERE pieces > 0",
       [](database& own, const std::string&) -> seller {
         return [&own](const std::string& item, std::int64_t buyer) {
           return buy_by_atomic_statement(own, item, buyer);
         };
       }},
      {"optimistic", "row with a version, no lock",
       [](database& own, const std::string&) -> seller {
         const optimistic::table stock{
             own.dialect(),
             {.table = stock_table, .key = "item", .values = {"pieces"}, .writers = "writers"}};
         return [&own, stock](const std::string& item, std::int64_t buyer) {
           return buy_by_version(own, stock, item, buyer);
         };
       }},
      {"fenced", "lock, and its token in the statement",
       [](database& own, const std::string& store) -> seller {
         const auto client = sallyport::client::open(store);
         const auto locks = std::make_shared<std::map<std::string, sallyport::mutex>>();
         return [&own, client, locks](const std::string& item, std::int64_t buyer) {
           const auto lock = locks->try_emplace(item, client, "shop/" + item).first;
           return buy_under_lock(own, lock->second, item, buyer);
         };
       }},
      {"careless", "read, think, write: wrong",
       [](database& own, const std::string&) -> seller {
         return [&own](const std::string& item, std::int64_t buyer) {
           return buy_carelessly(own, item, buyer);
         };
       }},
  };
  return ways;
}

#include "database.hpp"
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <cstdint>
#include <cstdlib>
#include <libpq-fe.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace {

namespace sql = sallyport::sql;

constexpr Oid bigint_type = 20;

using result = std::unique_ptr<PGresult, decltype(&PQclear)>;

class postgres_database final : public database {
 public:
  explicit postgres_database(const std::string& address)
      : connection_(PQconnectdb(address.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) {
      throw std::runtime_error(PQerrorMessage(connection_.get()));
    }
    // "There was no such table to drop" is for people.
    PQsetNoticeProcessor(
        connection_.get(), [](void*, const char*) {}, nullptr);
  }

  [[nodiscard]] sql::dialect dialect() const override { return sql::dialect::postgres; }

  sql::answer execute(const sql::statement& one) override {
    if (PQstatus(connection_.get()) != CONNECTION_OK) PQreset(connection_.get());
    std::vector<std::string> kept;
    std::vector<Oid> types;
    std::vector<const char*> values;
    std::vector<int> lengths;
    std::vector<int> formats;
    kept.reserve(one.parameters.size());  // `values` points into it
    for (const sql::value& each : one.parameters) {
      const auto* const number = std::get_if<std::int64_t>(&each);
      const auto* const text = std::get_if<std::string>(&each);
      kept.push_back(number != nullptr ? std::to_string(*number) : text != nullptr ? *text : "");
      types.push_back(number != nullptr ? bigint_type : 0);
      values.push_back(number == nullptr && text == nullptr ? nullptr : kept.back().data());
      lengths.push_back(static_cast<int>(kept.back().size()));
      // Texts as they are, with their length: a text parameter would end at its first zero byte.
      formats.push_back(text != nullptr ? 1 : 0);
    }
    return read(
        result{PQexecParams(connection_.get(), one.text.c_str(), static_cast<int>(kept.size()),
                            types.data(), values.data(), lengths.data(), formats.data(), 0),
               PQclear});
  }

 private:
  sql::answer read(const result& given) const {
    const auto status = PQresultStatus(given.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) fail(given);
    sql::answer out;
    for (int row = 0; row < PQntuples(given.get()); ++row) {
      auto& cells = out.rows.emplace_back();
      for (int column = 0; column < PQnfields(given.get()); ++column) {
        cells.push_back(value_at(given.get(), row, column));
      }
    }
    // libpq counts the rows of a SELECT, too.
    if (status == PGRES_COMMAND_OK) {
      out.changed = std::strtoull(PQcmdTuples(given.get()), nullptr, 10);
    }
    return out;
  }

  [[noreturn]] void fail(const result& given) const {
    const char* const field = PQresultErrorField(given.get(), PG_DIAG_SQLSTATE);
    const std::string_view state = field == nullptr ? "" : field;
    const std::string why = PQerrorMessage(connection_.get());
    if (state == "40001" || state == "40P01") throw sql::conflict(why);
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw sql::connection_lost(why);
    throw std::runtime_error(why);
  }

  /// This shop reads whole numbers and texts.
  static sql::value value_at(PGresult* given, int row, int column) {
    if (PQgetisnull(given, row, column) == 1) return std::monostate{};
    const char* const text = PQgetvalue(given, row, column);
    if (PQftype(given, column) == bigint_type) return std::int64_t{std::atoll(text)};
    return std::string(text, static_cast<std::size_t>(PQgetlength(given, row, column)));
  }

  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

}  // namespace

std::unique_ptr<database> connect_to_postgres(const std::string& address) {
  return std::make_unique<postgres_database>(address);
}

#include "database.hpp"
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <cstddef>
#include <cstdint>
#include <errmsg.h>
#include <memory>
#include <mysql.h>
#include <mysqld_error.h>
#include <regex>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace {

namespace sql = sallyport::sql;

using connection = std::unique_ptr<MYSQL, decltype(&mysql_close)>;
using prepared = std::unique_ptr<MYSQL_STMT, decltype(&mysql_stmt_close)>;

connection open(const std::string& address) {
  static const std::regex shape{
      R"(mariadb://([^:@/]+)(?::([^@/]*))?@([^:@/]+)(?::(\d{1,5}))?/(\w+))"};
  std::smatch parts;
  if (!std::regex_match(address, parts, shape)) {
    throw std::runtime_error("not mariadb://user[:password]@host[:port]/database");
  }
  connection made{mysql_init(nullptr), mysql_close};
  mysql_options(made.get(), MYSQL_SET_CHARSET_NAME, "utf8mb4");
  const unsigned port = parts[4].matched ? static_cast<unsigned>(std::stoul(parts[4])) : 0;
  if (mysql_real_connect(made.get(), parts[3].str().c_str(), parts[1].str().c_str(),
                         parts[2].str().c_str(), parts[5].str().c_str(), port, nullptr,
                         CLIENT_FOUND_ROWS) == nullptr) {
    throw std::runtime_error(mysql_error(made.get()));
  }
  return made;
}

[[noreturn]] void fail(unsigned code, const std::string& why) {
  switch (code) {
    case ER_LOCK_WAIT_TIMEOUT:
    case ER_LOCK_DEADLOCK:
    case ER_CHECKREAD:
      throw sql::conflict(why);
    case CR_SERVER_GONE_ERROR:
    case CR_SERVER_LOST:
      throw sql::connection_lost(why);
    default:
      throw std::runtime_error(why);
  }
}

void check(int failed, MYSQL_STMT* statement) {
  if (failed != 0) fail(mysql_stmt_errno(statement), mysql_stmt_error(statement));
}

/// With prepared statements: numbers travel as 64-bit numbers, and texts are never part of the SQL.
class mariadb_database final : public database {
 public:
  explicit mariadb_database(std::string address)
      : address_(std::move(address)), connection_(open(address_)) {}

  [[nodiscard]] sql::dialect dialect() const override { return sql::dialect::mariadb; }

  sql::answer execute(const sql::statement& one) override {
    if (!connection_) connection_ = open(address_);
    try {
      const prepared made{mysql_stmt_init(connection_.get()), mysql_stmt_close};
      check(mysql_stmt_prepare(made.get(), one.text.data(), one.text.size()), made.get());
      run(made.get(), one.parameters);
      return read(made.get());
    } catch (const sql::connection_lost&) {
      connection_.reset();
      throw;
    }
  }

 private:
  static void run(MYSQL_STMT* made, std::vector<sql::value> parameters) {
    std::vector<MYSQL_BIND> binds(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      binds[i].buffer_type = MYSQL_TYPE_NULL;
      if (auto* const number = std::get_if<std::int64_t>(&parameters[i])) {
        binds[i].buffer_type = MYSQL_TYPE_LONGLONG;
        binds[i].buffer = number;
      } else if (auto* const text = std::get_if<std::string>(&parameters[i])) {
        binds[i].buffer_type = MYSQL_TYPE_STRING;
        binds[i].buffer = text->data();
        binds[i].buffer_length = text->size();
      }
    }
    if (!binds.empty()) check(mysql_stmt_bind_param(made, binds.data()), made);
    const my_bool lengths_too = 1;
    mysql_stmt_attr_set(made, STMT_ATTR_UPDATE_MAX_LENGTH, &lengths_too);
    check(mysql_stmt_execute(made), made);
  }

  struct cell {
    bool whole = false;
    std::int64_t number = 0;
    std::string text{};
    my_bool null = 0;
  };

  static sql::answer read(MYSQL_STMT* made) {
    sql::answer out;
    const std::unique_ptr<MYSQL_RES, decltype(&mysql_free_result)> columns{
        mysql_stmt_result_metadata(made), mysql_free_result};
    if (!columns) {
      out.changed = mysql_stmt_affected_rows(made);
      return out;
    }
    check(mysql_stmt_store_result(made), made);
    std::vector<cell> cells(mysql_num_fields(columns.get()));
    std::vector<MYSQL_BIND> binds(cells.size());
    std::vector<unsigned long> lengths(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const MYSQL_FIELD& field = mysql_fetch_fields(columns.get())[i];
      cells[i].whole =
          field.type == MYSQL_TYPE_LONGLONG;  // this shop reads whole numbers and texts
      cells[i].text.resize(field.max_length);
      binds[i].is_null = &cells[i].null;
      binds[i].length = &lengths[i];
      binds[i].buffer_type = cells[i].whole ? MYSQL_TYPE_LONGLONG : MYSQL_TYPE_STRING;
      binds[i].buffer =
          cells[i].whole ? static_cast<void*>(&cells[i].number) : cells[i].text.data();
      binds[i].buffer_length = cells[i].whole ? sizeof(std::int64_t) : cells[i].text.size();
    }
    check(mysql_stmt_bind_result(made, binds.data()), made);
    int more = 0;
    while ((more = mysql_stmt_fetch(made)) == 0) {
      auto& row = out.rows.emplace_back();
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (cells[i].null != 0) {
          row.emplace_back();
        } else if (cells[i].whole) {
          row.emplace_back(cells[i].number);
        } else {
          row.emplace_back(cells[i].text.substr(0, lengths[i]));
        }
      }
    }
    if (more != MYSQL_NO_DATA) check(more, made);
    return out;
  }

  const std::string address_;
  connection connection_;
};

}  // namespace

std::unique_ptr<database> connect_to_mariadb(const std::string& address) {
  return std::make_unique<mariadb_database>(address);
}

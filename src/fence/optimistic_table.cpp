#include <sallyport/error.hpp>
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::optimistic {

namespace {

/// Marks what is a parameter: a text could be either.
struct bound {
  sql::value what;
};

/// A statement in the making: text and parameters grow together, in the order of the placeholders.
class composer {
 public:
  explicit composer(sql::dialect whose) : whose_(whose) {}

  composer& operator<<(std::string_view text) {
    made_.text += text;
    return *this;
  }
  composer& operator<<(const bound& parameter) {
    made_.parameters.push_back(parameter.what);
    made_.text += sql::placeholder(whose_, made_.parameters.size());
    return *this;
  }
  [[nodiscard]] sql::statement take() { return std::move(made_); }

 private:
  const sql::dialect whose_;
  sql::statement made_;
};

/// What a seal leaves among the writers: no write has this id.
const std::string no_writer(table::writer_bytes, '-');

/// `column = ` the writer in front of those before it, the oldest dropped.
void push_writer(composer& into, sql::dialect whose, const std::string& column,
                 std::string_view writer) {
  const std::string kept = std::to_string(table::writers_bytes);
  const bound id{std::string(writer)};
  into << ", " << column << " = ";
  switch (whose) {
    case sql::dialect::postgres:
      into << "left(CAST(" << id << " AS text) || COALESCE(" << column << ", ''), " << kept << ")";
      return;
    case sql::dialect::mariadb:
      into << "LEFT(CONCAT(" << id << ", COALESCE(" << column << ", '')), " << kept << ")";
      return;
    case sql::dialect::sqlite:
      into << "substr(" << id << " || COALESCE(" << column << ", ''), 1, " << kept << ")";
      return;
  }
}

std::string list_of(const std::vector<std::string>& names, std::string_view before) {
  std::string out;
  for (const std::string& each : names) {
    if (!out.empty()) out += ", ";
    out += std::string(before) + each;
  }
  return out;
}

[[noreturn]] void refuse(const std::string& why) {
  throw lock_error(errc::bad_option, "optimistic rows: " + why);
}

}  // namespace

table::table(sql::dialect whose, const layout& names) : whose_(whose) {
  if (names.values.empty() || names.values.size() > max_values) {
    refuse("a table has 1 to " + std::to_string(max_values) + " columns of values, not " +
           std::to_string(names.values.size()));
  }
  std::vector<std::string> all = names.values;
  all.push_back(names.key);
  all.push_back(names.version);
  if (!names.writers.empty()) all.push_back(names.writers);
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end()) {
    refuse("the column '" + *twice + "' has two parts to play");
  }
  table_ = sql::quoted(whose, names.table);
  if (!names.schema.empty()) table_ = sql::quoted(whose, names.schema) + "." + table_;
  key_ = sql::quoted(whose, names.key);
  for (const std::string& each : names.values) values_.push_back(sql::quoted(whose, each));
  version_ = sql::quoted(whose, names.version);
  if (!names.writers.empty()) writers_ = sql::quoted(whose, names.writers);
}

void table::check_values(const values& given) const {
  if (given.size() == values_.size()) return;
  refuse(std::to_string(given.size()) + " values for " + std::to_string(values_.size()) +
         " columns");
}

sql::statement table::read(const sql::value& key) const {
  composer made{whose_};
  // With "r." in front: SQLite takes a quoted name that is no column for a text.
  made << "SELECT " << list_of(values_, "r.") << ", r." << version_;
  if (remembers_writers()) made << ", r." << writers_;
  made << " FROM " << table_ << " AS r WHERE r." << key_ << " = " << bound{key};
  return made.take();
}

sql::statement table::write(const sql::value& key, std::int64_t version, const values& to,
                            std::string_view writer) const {
  check_values(to);
  if (writer.size() != writer_bytes) {
    refuse("a writer's id has " + std::to_string(writer_bytes) + " characters");
  }
  composer made{whose_};
  made << "UPDATE " << table_ << " SET ";
  for (std::size_t i = 0; i < values_.size(); ++i)
    made << values_[i] << " = " << bound{to[i]} << ", ";
  made << version_ << " = " << version_ << " + 1";
  if (remembers_writers()) push_writer(made, whose_, writers_, writer);
  made << " WHERE " << key_ << " = " << bound{key} << " AND " << version_ << " = "
       << bound{version};
  return made.take();
}

sql::statement table::create(const sql::value& key, std::int64_t version,
                             const values& first) const {
  check_values(first);
  composer made{whose_};
  made << "INSERT INTO " << table_ << " (" << key_ << ", " << list_of(values_, "") << ", "
       << version_ << (remembers_writers() ? ", " + writers_ : "") << ") VALUES (" << bound{key};
  for (const sql::value& each : first) made << ", " << bound{each};
  made << ", " << bound{version} << (remembers_writers() ? ", ''" : "") << ")";
  // MariaDB's INSERT IGNORE would also pass over values that do not fit.
  if (whose_ == sql::dialect::mariadb) {
    made << " ON DUPLICATE KEY UPDATE " << key_ << " = " << key_;
  } else {
    made << " ON CONFLICT (" << key_ << ") DO NOTHING";
  }
  return made.take();
}

sql::statement table::seal(const sql::value& key, std::int64_t version) const {
  composer made{whose_};
  made << "UPDATE " << table_ << " SET " << version_ << " = " << version_ << " + 1";
  if (remembers_writers()) push_writer(made, whose_, writers_, no_writer);
  made << " WHERE " << key_ << " = " << bound{key} << " AND " << version_ << " = "
       << bound{version};
  return made.take();
}

}  // namespace sallyport::optimistic

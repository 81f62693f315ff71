#include "backends/mariadb/schema.hpp"

#include "backends/mariadb/speech.hpp"
#include "backends/sql/numbers.hpp"

#include <array>

namespace sallyport::backends::mariadb {
namespace {

constexpr std::array tables{"lock", "queue", "state", "stripe"};
constexpr std::array procedures{"acquire", "break_lock", "downgrade", "leave", "look",
                                "renew",   "set_value",  "settle",    "sweep"};
constexpr std::string_view end_of_statement = "\n//\n";

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

std::string schema_text(const std::string& prefix) {
  std::string text = schema_template;
  replace_all(text, "{p}", prefix);
  replace_all(text, "{version}", std::to_string(schema_version));
  replace_all(text, "{most}", std::to_string(sql::most_contenders_at_once));
  return text;
}

/// A text as SQL writes it. REQUIRES: schema_mode.
std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char each : text) {
    if (each == '\'' || each == '\\') out += each;
    out += each;
  }
  return out + "'";
}

template <class Names>
std::string listed(const std::string& prefix, const Names& names) {
  std::string out;
  for (const char* const each : names) out += (out.empty() ? "'" : ", '") + prefix + each + "'";
  return "(" + out + ")";
}

}  // namespace

std::vector<std::string> schema_statements(const std::string& prefix) {
  const std::string text = schema_text(prefix);
  std::vector<std::string> all;
  std::size_t begin = 0;
  for (auto end = text.find(end_of_statement); end != std::string::npos;
       end = text.find(end_of_statement, begin)) {
    all.push_back(text.substr(begin, end - begin));
    begin = end + end_of_statement.size();
  }
  all.push_back(text.substr(begin));
  return all;
}

std::string question_for_foreigners(const std::string& prefix) {
  return "SELECT CONCAT('the table ', table_name) FROM information_schema.tables WHERE "
         "table_schema "
         "= DATABASE() AND table_name IN " +
         listed(prefix, tables) +
         " AND table_comment NOT LIKE 'Sallyport: %' UNION ALL SELECT CONCAT('the procedure ', "
         "routine_name) FROM information_schema.routines WHERE routine_schema = DATABASE() AND "
         "routine_type = 'PROCEDURE' AND routine_name IN " +
         listed(prefix, procedures) + " AND routine_comment NOT LIKE 'Sallyport: %' LIMIT 1";
}

std::string schema_script(const std::string& prefix, const std::string& database,
                          const std::string& user) {
  const std::string who = literal(user.empty() ? "the_user" : user) + "@'%'";
  const std::string begin = user.empty() ? "-- " : "";
  std::string script = "USE " + quoted(database) + ";\n" + schema_mode + ";\n\nDELIMITER //\n";
  for (const std::string& each : schema_statements(prefix)) {
    script += each;
    script += end_of_statement;
  }
  script += "DELIMITER ;\n\n-- What a user needs that takes locks and need not own any of this.\n";
  const auto grant = [&](const char* right, const char* name) {
    script += begin;
    script += right;
    script += quoted(database) + "." + quoted(prefix + name);
    script += " TO " + who + ";\n";
  };
  for (const char* const each : tables) grant("GRANT SELECT, INSERT, UPDATE, DELETE ON ", each);
  for (const char* const each : procedures) grant("GRANT EXECUTE ON PROCEDURE ", each);
  return script;
}

}  // namespace sallyport::backends::mariadb

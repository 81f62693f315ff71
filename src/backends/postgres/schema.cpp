#include "backends/postgres/schema.hpp"

#include "backends/postgres/speech.hpp"
#include "backends/sql/numbers.hpp"

namespace sallyport::backends::postgres {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

std::string schema_text(std::string_view schema) {
  std::string text = schema_template;
  replace_all(text, "{schema_in_text}", quoted(schema));
  replace_all(text, "{schema_text}", "'" + std::string(schema) + "'");
  replace_all(text, "{schema}", quoted(schema));
  replace_all(text, "{version}", std::to_string(schema_version));
  replace_all(text, "{most}", std::to_string(sql::most_contenders_at_once));
  return text;
}

std::string schema_script(std::string_view schema, std::string_view role) {
  const std::string where = quoted(schema);
  const std::string who = role.empty() ? "the_role" : quoted(role);
  const std::string begin = role.empty() ? "-- " : "";
  std::string script = "BEGIN;\n\n" + schema_text(schema) + "\n";
  script += "-- What a role needs that takes locks and need not own any of this.\n";
  script += begin + "GRANT USAGE ON SCHEMA " + where + " TO " + who + ";\n";
  script += begin + "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + where +
            " TO " + who + ";\n";
  script += begin + "GRANT SELECT, USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA " + where + " TO " +
            who + ";\n";
  script += begin + "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA " + where + " TO " + who + ";\n";
  return script + "\nCOMMIT;\n";
}

}  // namespace sallyport::backends::postgres

#include "fence/sql_words.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace sallyport::fence {
namespace {

using sql::dialect;
using sql::statement;

[[noreturn]] void refuse_sqlite() {
  throw lock_error(errc::not_supported,
                   "fencing gate: sqlite's triggers can't see who writes; use sql_gate, or "
                   "sql_row_gate");
}

/// Everything that the texts name, checked and quoted.
struct named {
  std::string gate;      // the table of numbers
  std::string judge;     // the function or procedure beside it
  std::string table;     // the guarded table
  std::string written;   // the same as a literal, for messages
  std::string resource;  // a literal: the resource, or what stands before the column's value
  std::string column;    // empty: the whole table
  table_name plain;      // for the triggers' names
  bool gate_has_schema = false;  // gate and judge are named with it
};

std::string beside(dialect whose, const table_name& table, const std::string& before,
                   const std::string& after) {
  const std::string name = before + table.name + after;
  if (name.size() > sql::max_identifier_bytes) {
    throw lock_error(errc::bad_option,
                     "fencing gate: the table's name is too long: '" + name + "' has " +
                         std::to_string(name.size()) + " bytes; at most " +
                         std::to_string(sql::max_identifier_bytes) + " are taken");
  }
  return quoted_table(whose, {.schema = table.schema, .name = name});
}

named names_of(dialect whose, const sql_trigger_options& options) {
  const table_name gate = split_table(options.gate_table);
  const table_name table = split_table(options.table);
  const bool by_row = !options.resource_column.empty();
  named all{.gate = quoted_table(whose, gate),
            .judge = beside(whose, gate, "", "_judge"),
            .table = quoted_table(whose, table),
            .written = literal(whose, table.name),
            .resource = {},
            .column = by_row ? sql::quoted(whose, options.resource_column) : "",
            .plain = table,
            .gate_has_schema = !gate.schema.empty()};
  std::string resource = options.resource;
  if (resource.empty()) resource = table.name + (by_row ? "/" : "");
  check_resource(resource);
  all.resource = literal(whose, resource);
  return all;
}

/// Puts values for @names@, in one go: what a value holds is left alone.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  while (!text.empty()) {
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& each) {
      return text.starts_with("@" + std::string(each.first) + "@");
    });
    if (found == values.end()) {
      out += text.front();
      text.remove_prefix(1);
    } else {
      out += found->second;
      text.remove_prefix(found->first.size() + 2);
    }
  }
  return out;
}

/// A word between two such signs that does not occur in the text.
std::string fresh_mark(char sign, const std::string& word, const std::string& text) {
  std::string mark = sign + word + sign;
  for (int number = 1; text.find(mark) != std::string::npos; ++number) {
    mark = sign + word + std::to_string(number) + sign;
  }
  return mark;
}

/// A body in quotes that do not occur in it.
std::string dollar_quoted(const std::string& body, const std::string& word = "fence") {
  const std::string tag = fresh_mark('$', word, body);
  return tag + body + tag;
}

/// A statement that makes a function, `head` and then `body` as a literal. Both name gate and judge
/// with their schema, and the functions have a path of their own: whatever the path of a writer says
/// ("$user" is the *writer's* schema), and whatever temporary table it has, the numbers are those of
/// the table that was made here. Where the caller named no schema it is the first of the caller's
/// path, which only the server knows: `home` stands for it.
std::string postgres_function(const std::string& head, const std::string& body,
                              const std::string& home) {
  const std::string done =
      "\nDECLARE\n  home constant text := coalesce(quote_ident(current_schema()), '');\nBEGIN\n"
      "  EXECUTE replace(" +
      dollar_quoted(head + "\nLANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS ") + ", '" +
      home + "', home)\n    || quote_literal(replace(" + dollar_quoted(body) + ", '" + home +
      "', home));\nEND\n";
  return "DO " + dollar_quoted(done, "do");
}

constexpr std::string_view postgres_judge_head =
    "CREATE OR REPLACE FUNCTION @judge@(shown_resource text, written text) RETURNS void";
// Reads and locks before it writes: who writes a thousand rows under one pass changes the row of
// numbers once.
constexpr std::string_view postgres_judge_body = R"sql(
DECLARE
  shown text := current_setting('sallyport.pass', true);
  shown_token numeric;
  shown_lock text;
  kept record;
BEGIN
  IF shown IS NULL OR shown = '' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP001',
      MESSAGE = format('table "%s" is fenced, and this transaction has declared no pass', written),
      HINT = 'Hold the lock, and declare its token in the transaction that writes: '
        'BEGIN; SELECT set_config(''sallyport.pass'', ''exclusive TOKEN LOCK'', true); ...';
  END IF;
  IF shown !~ '^(exclusive|shared) [0-9]{1,19} .' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP004',
      MESSAGE = format('table "%s" is fenced, and the declared pass is none', written),
      HINT = 'sallyport.pass is "exclusive TOKEN LOCK" or "shared TOKEN LOCK".';
  END IF;
  IF shown_resource IS NULL OR octet_length(shown_resource) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION USING ERRCODE = 'SP004',
      MESSAGE = format('table "%s" is fenced by a column, and this row has none of 1 to 255 bytes in it',
                       written);
  END IF;
  shown_token := split_part(shown, ' ', 2)::numeric;
  shown_lock := substr(shown, length(split_part(shown, ' ', 1)) + length(split_part(shown, ' ', 2)) + 3);
  IF shown_token NOT BETWEEN 1 AND 9223372036854775807 THEN
    RAISE EXCEPTION USING ERRCODE = 'SP004',
      MESSAGE = format('table "%s" is fenced, and %s is no token', written, shown_token);
  END IF;

  SELECT * INTO kept FROM @gate@ AS g WHERE g.resource = shown_resource FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO @gate@ (resource, lock_name, newest_exclusive, newest_shared)
      VALUES (shown_resource, shown_lock, 0, 0) ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT kept FROM @gate@ AS g WHERE g.resource = shown_resource FOR UPDATE;
  END IF;
  IF kept.lock_name <> shown_lock THEN
    RAISE EXCEPTION USING ERRCODE = 'SP003',
      MESSAGE = format('table "%s": the numbers of "%s" belong to the lock "%s", not to "%s"',
                       written, shown_resource, kept.lock_name, shown_lock);
  END IF;
  IF shown_token < kept.newest_exclusive
     OR (shown LIKE 'exclusive %' AND shown_token <= kept.newest_shared) THEN
    RAISE EXCEPTION USING ERRCODE = 'SP002',
      MESSAGE = format('table "%s": token %s is stale for "%s": a newer holder was here', written,
                       shown_token, shown_resource),
      HINT = 'The lease was lost. Take the lock again, read again, start over.';
  END IF;
  IF shown LIKE 'exclusive %' THEN
    IF shown_token > kept.newest_exclusive THEN
      UPDATE @gate@ SET newest_exclusive = shown_token WHERE resource = shown_resource;
    END IF;
  ELSIF shown_token > kept.newest_shared THEN
    UPDATE @gate@ SET newest_shared = shown_token WHERE resource = shown_resource;
  END IF;
END
)sql";

constexpr std::string_view postgres_row_body = R"sql(
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP004',
      MESSAGE = format('table "%s" is fenced row by row, and TRUNCATE names none', @written@),
      HINT = 'DELETE the rows, or drop the triggers first.';
  END IF;
  IF TG_OP <> 'INSERT' THEN
    PERFORM @judge@((@resource@ || OLD.@column@::text) COLLATE "C", @written@);
  END IF;
  -- Byte by byte: a column's type or collation may take two resources for one.
  IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE'
     AND NEW.@column@::text COLLATE "C" IS DISTINCT FROM OLD.@column@::text COLLATE "C") THEN
    PERFORM @judge@((@resource@ || NEW.@column@::text) COLLATE "C", @written@);
  END IF;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  RETURN NEW;
END
)sql";

constexpr std::string_view postgres_table_body = R"sql(
BEGIN
  PERFORM @judge@(@resource@, @written@);
  RETURN NULL;
END
)sql";

std::vector<std::pair<std::string_view, std::string>> marks_of(const named& all) {
  return {{"gate", all.gate},       {"judge", all.judge},       {"table", all.table},
          {"written", all.written}, {"resource", all.resource}, {"column", all.column}};
}

std::vector<std::string> postgres_triggers(named all) {
  const std::string function = beside(dialect::postgres, all.plain, "fence_", "");
  const std::string home =
      fresh_mark('@', "home", all.gate + all.resource + all.written + all.column + function);
  if (!all.gate_has_schema) {
    all.gate.insert(0, home + ".");
    all.judge.insert(0, home + ".");
  }
  const auto marks = marks_of(all);
  const bool by_row = !all.column.empty();
  const auto trigger = [&](const std::string& name, const std::string& events,
                           const std::string& each) {
    return "CREATE TRIGGER " + name + " BEFORE " + events + " ON " + all.table + "\nFOR EACH " +
           each + " EXECUTE FUNCTION " + function + "()";
  };
  std::vector<std::string> out{
      postgres_function(filled(postgres_judge_head, marks), filled(postgres_judge_body, marks),
                        home),
      postgres_function("CREATE OR REPLACE FUNCTION " + function + "() RETURNS trigger",
                        filled(by_row ? postgres_row_body : postgres_table_body, marks), home)};
  // A table that was fenced the other way before is left with one way.
  out.push_back("DROP TRIGGER IF EXISTS sallyport_fence ON " + all.table);
  out.push_back("DROP TRIGGER IF EXISTS sallyport_fence_truncate ON " + all.table);
  if (by_row) {
    out.push_back(trigger("sallyport_fence", "INSERT OR UPDATE OR DELETE", "ROW"));
    out.push_back(trigger("sallyport_fence_truncate", "TRUNCATE", "STATEMENT"));
  } else {
    out.push_back(
        trigger("sallyport_fence", "INSERT OR UPDATE OR DELETE OR TRUNCATE", "STATEMENT"));
  }
  return out;
}

// A pass is compared as the bytes that the client sent, as admit's parameters are.
constexpr std::string_view mariadb_judge = R"sql(
CREATE OR REPLACE PROCEDURE @judge@(IN shown_resource VARBINARY(1024), IN written VARCHAR(64) CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  DECLARE shown BLOB DEFAULT @sallyport_pass;
  DECLARE shown_mode VARBINARY(16);
  DECLARE shown_token BIGINT UNSIGNED;
  DECLARE shown_lock VARBINARY(2048);
  DECLARE kept_lock VARBINARY(2048);
  DECLARE kept_exclusive, kept_shared BIGINT UNSIGNED;
  DECLARE why TEXT CHARACTER SET utf8mb4;
  IF shown IS NULL OR shown = '' THEN
    SET why = LEFT(CONCAT('table ', written, ' is fenced, and no pass is declared; hold the lock, and declare its token: ',
      'START TRANSACTION; SET @sallyport_pass = ''exclusive TOKEN LOCK''; ...; COMMIT; SET @sallyport_pass = NULL'), 400);
    SIGNAL SQLSTATE 'SP001' SET MESSAGE_TEXT = why;
  END IF;
  IF shown NOT REGEXP '^(exclusive|shared) [0-9]{1,19} .' OR LENGTH(shown) > 2078 THEN
    SET why = LEFT(CONCAT('table ', written,
      ' is fenced, and @sallyport_pass is none: it is "exclusive TOKEN LOCK" or "shared TOKEN LOCK"'), 400);
    SIGNAL SQLSTATE 'SP004' SET MESSAGE_TEXT = why;
  END IF;
  IF shown_resource IS NULL OR LENGTH(shown_resource) NOT BETWEEN 1 AND 255 THEN
    SET why = LEFT(CONCAT('table ', written, ' is fenced by a column, and this row has none of 1 to 255 bytes in it'), 400);
    SIGNAL SQLSTATE 'SP004' SET MESSAGE_TEXT = why;
  END IF;
  SET shown_mode = SUBSTRING_INDEX(shown, ' ', 1);
  SET shown_token = CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(shown, ' ', 2), ' ', -1) AS UNSIGNED);
  SET shown_lock = SUBSTRING(shown, LENGTH(SUBSTRING_INDEX(shown, ' ', 2)) + 2);
  IF shown_token NOT BETWEEN 1 AND 9223372036854775807 THEN
    SET why = LEFT(CONCAT('table ', written, ' is fenced, and ', shown_token, ' is no token'), 400);
    SIGNAL SQLSTATE 'SP004' SET MESSAGE_TEXT = why;
  END IF;

  INSERT INTO @gate@ (resource, lock_name, newest_exclusive, newest_shared)
    VALUES (shown_resource, shown_lock, 0, 0) ON DUPLICATE KEY UPDATE resource = shown_resource;
  SELECT lock_name, newest_exclusive, newest_shared INTO kept_lock, kept_exclusive, kept_shared
    FROM @gate@ WHERE resource = shown_resource FOR UPDATE;
  IF kept_lock <> shown_lock THEN
    SET why = LEFT(CONCAT('table ', written, ': the numbers of ', CONVERT(shown_resource USING utf8mb4),
      ' belong to another lock: ', CONVERT(kept_lock USING utf8mb4)), 400);
    SIGNAL SQLSTATE 'SP003' SET MESSAGE_TEXT = why;
  END IF;
  IF shown_token < kept_exclusive OR (shown_mode = 'exclusive' AND shown_token <= kept_shared) THEN
    SET why = LEFT(CONCAT('table ', written, ': token ', shown_token, ' is stale for ',
      CONVERT(shown_resource USING utf8mb4), ': a newer holder was here; take the lock again and start over'), 400);
    SIGNAL SQLSTATE 'SP002' SET MESSAGE_TEXT = why;
  END IF;
  IF shown_mode = 'exclusive' THEN
    IF shown_token > kept_exclusive THEN
      UPDATE @gate@ SET newest_exclusive = shown_token WHERE resource = shown_resource;
    END IF;
  ELSEIF shown_token > kept_shared THEN
    UPDATE @gate@ SET newest_shared = shown_token WHERE resource = shown_resource;
  END IF;
END)sql";

constexpr std::array<std::string_view, 3> mariadb_events{"insert", "update", "delete"};

std::string mariadb_trigger_name(const named& all, std::string_view event) {
  return beside(dialect::mariadb, all.plain, "fence_", "_" + std::string(event));
}

std::vector<std::string> mariadb_triggers(const named& all) {
  std::vector<std::string> out{filled(mariadb_judge, marks_of(all)).substr(1)};
  const auto judged = [&](std::string_view row) {
    if (all.column.empty())
      return "CALL " + all.judge + "(" + all.resource + ", " + all.written + ")";
    return "CALL " + all.judge + "(CONCAT(CONVERT(" + all.resource + " USING utf8mb4), CONVERT(" +
           std::string(row) + "." + all.column + " USING utf8mb4)), " + all.written + ")";
  };
  for (const std::string_view event : mariadb_events) {
    std::string body = judged(event == "insert" ? "NEW" : "OLD");
    if (event == "update" && !all.column.empty()) {
      // Byte by byte: a column's collation may take two resources for one.
      body.insert(0, "BEGIN\n  ");
      body += ";\n  IF NOT (BINARY NEW." + all.column + " <=> BINARY OLD." + all.column;
      body += ") THEN\n    " + judged("NEW") + ";\n  END IF;\nEND";
    }
    std::string& made = out.emplace_back("CREATE OR REPLACE TRIGGER ");
    made += mariadb_trigger_name(all, event) + " BEFORE " + std::string(event);
    made += " ON " + all.table + "\nFOR EACH ROW " + body;
  }
  return out;
}

std::vector<statement> without_parameters(const std::vector<std::string>& texts) {
  std::vector<statement> out;
  out.reserve(texts.size());
  for (const std::string& each : texts) out.push_back({.text = each, .parameters = {}});
  return out;
}

}  // namespace

std::vector<statement> sql_trigger_ddl(dialect whose, const sql_trigger_options& options) {
  const named all = names_of(whose, options);
  std::vector<statement> out = sql_gate::schema(whose, options.gate_table);
  std::vector<std::string> texts;
  switch (whose) {
    case dialect::postgres:
      texts = postgres_triggers(all);
      break;
    case dialect::mariadb:
      texts = mariadb_triggers(all);
      break;
    case dialect::sqlite:
      refuse_sqlite();
  }
  for (statement& each : without_parameters(texts)) out.push_back(std::move(each));
  return out;
}

std::vector<statement> sql_trigger_removal(dialect whose, const sql_trigger_options& options) {
  const named all = names_of(whose, options);
  std::vector<std::string> texts;
  switch (whose) {
    case dialect::postgres:
      texts = {"DROP TRIGGER IF EXISTS sallyport_fence ON " + all.table,
               "DROP TRIGGER IF EXISTS sallyport_fence_truncate ON " + all.table,
               "DROP FUNCTION IF EXISTS " + beside(whose, all.plain, "fence_", "") + "()"};
      break;
    case dialect::mariadb:
      for (const std::string_view event : mariadb_events) {
        texts.push_back("DROP TRIGGER IF EXISTS " + mariadb_trigger_name(all, event));
      }
      break;
    case dialect::sqlite:
      refuse_sqlite();
  }
  return without_parameters(texts);
}

std::string sql_script(dialect whose, const std::vector<statement>& all) {
  std::string out;
  for (const statement& each : all) {
    if (whose != dialect::mariadb) {
      out += each.text + ";\n\n";
      continue;
    }
    // The client cuts at its delimiter also inside of a body.
    std::string end = "//";
    while (each.text.find(end) != std::string::npos) end += '/';
    for (const std::string_view part :
         {std::string_view("DELIMITER "), std::string_view(end), std::string_view("\n"),
          std::string_view(each.text), std::string_view("\n"), std::string_view(end),
          std::string_view("\nDELIMITER ;\n\n")}) {
      out += part;
    }
  }
  return out;
}

statement declare_pass(dialect whose, const pass& shown) {
  const std::int64_t token = checked_token(shown);
  std::string words = std::string(to_string(shown.mode)) + " " + std::to_string(token) + " ";
  words += shown.lock;
  switch (whose) {
    case dialect::postgres:
      return {.text = "SELECT set_config('sallyport.pass', $1, true)", .parameters = {words}};
    case dialect::mariadb:
      return {.text = "SET @sallyport_pass = ?", .parameters = {words}};
    case dialect::sqlite:
      break;
  }
  refuse_sqlite();
}

statement withdraw_pass(dialect whose) {
  switch (whose) {
    case dialect::postgres:
      return {.text = "SELECT set_config('sallyport.pass', '', true)", .parameters = {}};
    case dialect::mariadb:
      return {.text = "SET @sallyport_pass = NULL", .parameters = {}};
    case dialect::sqlite:
      break;
  }
  refuse_sqlite();
}

}  // namespace sallyport::fence

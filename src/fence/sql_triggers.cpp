#include "fence/sql_words.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_sql.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <variant>

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
  std::string gate;          // the table of numbers
  std::string judge;         // the function or procedure beside it
  std::string table;         // the guarded table
  std::string written;       // the same as a literal, for messages
  std::string resource;      // a literal: the resource, or what stands before the column's value
  std::string column;        // empty: the whole table
  std::string plain_column;  // the same without quotes
  table_name plain;          // for the triggers' names
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
            .plain_column = options.resource_column,
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

// Before a row goes it is judged as it was; after it was written, as it is now: another trigger may have
// changed it in between.
constexpr std::string_view postgres_row_body = R"sql(
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'SP004',
      MESSAGE = format('table "%s" is fenced row by row, and TRUNCATE names none', @written@),
      HINT = 'DELETE the rows, or drop the triggers first.';
  END IF;
  IF TG_WHEN = 'AFTER' THEN
    PERFORM @judge@((@resource@ || NEW.@column@::text) COLLATE "C", @written@);
    RETURN NULL;
  END IF;
  PERFORM @judge@((@resource@ || OLD.@column@::text) COLLATE "C", @written@);
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

// The guarded table, and whatever inherits from it and can be written to by its own name: children,
// partitions, theirs. The table itself comes first: row triggers of a partitioned one have copies on its
// partitions, which go and come with them.
constexpr std::string_view postgres_all_parts = R"sql(
  FOR part IN
    WITH RECURSIVE parts(number, depth) AS (
      SELECT guarded::oid, 0 WHERE guarded IS NOT NULL
      UNION SELECT i.inhrelid, depth + 1 FROM pg_catalog.pg_inherits AS i JOIN parts ON i.inhparent = number)
    SELECT number::regclass FROM parts GROUP BY number ORDER BY min(depth), number
  LOOP)sql";

// Also those of a version that had other ones. A part that is fenced by itself keeps its triggers.
constexpr std::string_view postgres_drop_triggers = R"sql(
    FOR name IN SELECT tgname FROM pg_catalog.pg_trigger WHERE tgrelid = part
      AND tgname IN ('sallyport_fence', 'sallyport_fence_written', 'sallyport_fence_moved', 'sallyport_fence_truncate')
      AND (part = guarded OR tgfoid = to_regprocedure(judge))
    LOOP
      EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, part);
    END LOOP;)sql";

constexpr std::string_view postgres_table_triggers = R"sql(
    EXECUTE format('CREATE TRIGGER sallyport_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s '
      'FOR EACH STATEMENT EXECUTE FUNCTION %s', part, judge);)sql";

constexpr std::string_view postgres_row_triggers = R"sql(
    EXECUTE format('CREATE TRIGGER sallyport_fence_truncate BEFORE TRUNCATE ON %s '
      'FOR EACH STATEMENT EXECUTE FUNCTION %s', part, judge);
    CONTINUE WHEN part <> guarded AND (SELECT relispartition FROM pg_catalog.pg_class WHERE oid = part);
    EXECUTE format('CREATE TRIGGER sallyport_fence BEFORE UPDATE OR DELETE ON %s '
      'FOR EACH ROW EXECUTE FUNCTION %s', part, judge);
    EXECUTE format('CREATE TRIGGER sallyport_fence_written AFTER INSERT ON %s '
      'FOR EACH ROW EXECUTE FUNCTION %s', part, judge);
    -- Byte by byte: a column's type or collation may take two resources for one.
    EXECUTE format('CREATE TRIGGER sallyport_fence_moved AFTER UPDATE ON %s FOR EACH ROW '
      'WHEN (NEW.%I::text COLLATE "C" IS DISTINCT FROM OLD.%I::text COLLATE "C") EXECUTE FUNCTION %s',
      part, fenced_by, fenced_by, judge);)sql";

std::string postgres_function_of(const named& all) {
  return beside(dialect::postgres, all.plain, "fence_", "") + "()";
}

/// A DO statement in which `guarded` is the table (a literal as `table` says), `judge` its trigger
/// function and `fenced_by` the column.
std::string postgres_block(const named& all, const std::string& table, const std::string& body) {
  const auto text = [](const std::string& value) { return literal(dialect::postgres, value); };
  return "DO " +
         dollar_quoted("\nDECLARE\n  guarded constant regclass := " + table +
                           ";\n  judge constant text := " + text(postgres_function_of(all)) +
                           ";\n  fenced_by constant text := " + text(all.plain_column) +
                           ";\n  part regclass;\n  name text;\nBEGIN" + body + "\nEND\n",
                       "do");
}

std::string postgres_drop_all() {
  return std::string(postgres_all_parts) + std::string(postgres_drop_triggers) + "\n  END LOOP;";
}

std::vector<std::string> postgres_triggers(named all) {
  const std::string function = postgres_function_of(all);
  const std::string home =
      fresh_mark('@', "home", all.gate + all.resource + all.written + all.column + function);
  if (!all.gate_has_schema) {
    all.gate.insert(0, home + ".");
    all.judge.insert(0, home + ".");
  }
  const auto marks = marks_of(all);
  const bool by_row = !all.column.empty();
  // No table becomes a part in the meantime, and nobody writes while there are no triggers.
  const std::string body =
      "\n  EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', guarded);" +
      postgres_drop_all() + std::string(postgres_all_parts) +
      std::string(by_row ? postgres_row_triggers : postgres_table_triggers) + "\n  END LOOP;";
  return {postgres_function(filled(postgres_judge_head, marks), filled(postgres_judge_body, marks),
                            home),
          postgres_function("CREATE OR REPLACE FUNCTION " + function + " RETURNS trigger",
                            filled(by_row ? postgres_row_body : postgres_table_body, marks), home),
          postgres_block(all, literal(dialect::postgres, all.table) + "::regclass", body)};
}

std::vector<std::string> postgres_removal(const named& all) {
  return {postgres_block(all, "to_regclass(" + literal(dialect::postgres, all.table) + ")",
                         postgres_drop_all()),
          "DROP FUNCTION IF EXISTS " + postgres_function_of(all)};
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

// Where nothing is rolled back, what was refused after it was written stays.
constexpr std::string_view mariadb_check = R"sql(
BEGIN NOT ATOMIC
  IF NOT EXISTS (SELECT 1 FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine
      WHERE t.table_schema = @home@ AND t.table_name = @written@ AND e.transactions = 'YES') THEN
    SIGNAL SQLSTATE 'SP004' SET MESSAGE_TEXT = 'the table is not there, or has no transactions, so it can not be fenced: ALTER TABLE ... ENGINE = InnoDB';
  END IF;
END)sql";

// A row is judged as it was before it goes, and as it is now after it was written: another trigger may
// have changed it in between.
constexpr std::array<std::string_view, 4> mariadb_endings{"insert", "update", "delete", "moved"};

std::string mariadb_trigger_name(const named& all, std::string_view ending) {
  return beside(dialect::mariadb, all.plain, "fence_", "_" + std::string(ending));
}

std::vector<std::string> mariadb_triggers(const named& all) {
  const bool by_row = !all.column.empty();
  const std::string home =
      all.plain.schema.empty() ? "DATABASE()" : literal(dialect::mariadb, all.plain.schema);
  std::vector<std::string> out{
      filled(mariadb_check, {{"home", home}, {"written", all.written}}).substr(1),
      filled(mariadb_judge, marks_of(all)).substr(1)};
  const auto judged = [&](std::string_view row) {
    if (!by_row) return "CALL " + all.judge + "(" + all.resource + ", " + all.written + ")";
    return "CALL " + all.judge + "(CONCAT(CONVERT(" + all.resource + " USING utf8mb4), CONVERT(" +
           std::string(row) + "." + all.column + " USING utf8mb4)), " + all.written + ")";
  };
  const auto add = [&](std::string_view ending, std::string_view moment, const std::string& body) {
    out.push_back("CREATE OR REPLACE TRIGGER " + mariadb_trigger_name(all, ending) + " " +
                  std::string(moment) + " ON " + all.table + "\nFOR EACH ROW " + body);
  };
  add("insert", by_row ? "AFTER INSERT" : "BEFORE INSERT", judged("NEW"));
  add("update", "BEFORE UPDATE", judged("OLD"));
  add("delete", "BEFORE DELETE", judged("OLD"));
  if (by_row) {
    // Byte by byte: a column's collation may take two resources for one.
    add("moved", "AFTER UPDATE",
        "IF NOT (BINARY NEW." + all.column + " <=> BINARY OLD." + all.column + ") THEN\n  " +
            judged("NEW") + ";\nEND IF");
  } else {
    out.push_back("DROP TRIGGER IF EXISTS " + mariadb_trigger_name(all, "moved"));
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
      texts = postgres_removal(all);
      break;
    case dialect::mariadb:
      for (const std::string_view ending : mariadb_endings) {
        texts.push_back("DROP TRIGGER IF EXISTS " + mariadb_trigger_name(all, ending));
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

std::string sql_text(dialect whose, const statement& one) {
  const auto written = [&](std::size_t index) -> std::string {
    const sql::value& value = one.parameters.at(index);
    if (const auto* const number = std::get_if<std::int64_t>(&value))
      return std::to_string(*number);
    if (const auto* const text = std::get_if<std::string>(&value)) return literal(whose, *text);
    return "NULL";
  };
  std::string out;
  std::size_t next = 0;
  char quote = 0;
  for (std::size_t at = 0; at < one.text.size(); ++at) {
    const char each = one.text[at];
    if (quote != 0) {
      if (each == quote) quote = 0;
    } else if (each == '\'' || each == '"' || each == '`') {
      quote = each;
    } else if (each == '?' || each == '$') {
      out += written(next++);
      while (at + 1 < one.text.size() && one.text[at + 1] >= '0' && one.text[at + 1] <= '9') ++at;
      continue;
    }
    out += each;
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

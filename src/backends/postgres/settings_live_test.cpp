#include "backends/postgres/test_live_store.hpp"
#include "backends/sql/test_live_settings.hpp"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// What administrators set for a role, and in postgresql.conf.
namespace sallyport::sql_live {

std::span<const odd_setting> session_settings() {
  static const std::vector<odd_setting> all{
      {"bytea_output", {"escape"}},
      {"standard_conforming_strings", {"off"}},
      {"backslash_quote", {"off"}},
      {"escape_string_warning", {"on"}},
      {"quote_all_identifiers", {"on"}},
      {"array_nulls", {"off"}},
      {"transform_null_equals", {"on"}},
      {"DateStyle", {"'SQL, DMY'", "German"}},
      {"IntervalStyle", {"sql_standard", "iso_8601", "postgres_verbose"}},
      {"TimeZone", {"'<+0545>-05:45'", "'America/St_Johns'"}},
      {"extra_float_digits", {"-15", "3"}},
      {"search_path", {"''", "pg_temp, public", "nowhere"}},
      {"default_transaction_isolation", {"'repeatable read'", "serializable"}},
      {"default_transaction_deferrable", {"on"}},
      {"statement_timeout", {"'5s'"}},
      {"lock_timeout", {"'3s'", "'500ms'"}},
      {"idle_in_transaction_session_timeout", {"'300ms'"}},
      {"idle_session_timeout", {"'1s'"}},
      {"synchronous_commit", {"off", "local", "remote_apply"}},
      {"client_encoding", {"LATIN1", "SQL_ASCII", "EUC_JP"}},
      {"client_min_messages", {"debug1", "error"}},
      {"row_security", {"off"}},
      {"jit", {"on"}},
      {"jit_above_cost", {"0"}},
      {"plan_cache_mode", {"force_generic_plan", "force_custom_plan"}},
      {"enable_indexscan", {"off"}},
      {"enable_bitmapscan", {"off"}},
      {"enable_nestloop", {"off"}},
      {"enable_sort", {"off"}},
      {"enable_hashagg", {"off"}},
      {"force_parallel_mode", {"on"}},
      {"from_collapse_limit", {"1"}},
      {"work_mem", {"'64kB'"}},
      {"log_statement", {"'all'"}},
      {"log_min_duration_statement", {"0"}},
      {"session_replication_role", {"replica", "local"}},
      {"check_function_bodies", {"off"}},
      {"exit_on_error", {"on"}},
      {"track_activities", {"off"}},
      {"commit_delay", {"2000"}},
      {"default_toast_compression", {"lz4"}},
      {"plpgsql.variable_conflict", {"error", "use_column"}},
      {"plpgsql.extra_errors", {"'all'"}},
      {"role", {"odd_owner"}},
  };
  return all;
}

std::span<const odd_setting> server_settings() {
  static const std::vector<odd_setting> all{
      {"max_locks_per_transaction", {"10"}},
      {"fsync", {"off"}},
      {"full_page_writes", {"off"}},
      {"wal_level", {"logical"}},
      {"autovacuum", {"off"}},
      {"shared_buffers", {"'128kB'"}},
      {"old_snapshot_threshold", {"'1min'"}},
      {"track_commit_timestamp", {"on"}},
      {"shared_preload_libraries", {"auto_explain", "pg_stat_statements"}},
  };
  return all;
}

std::unique_ptr<sql_server> start_server_with(const std::vector<chosen_setting>& settings) {
  kit::postgres_options options;
  for (const auto& each : settings) {
    std::string value = each.value;
    std::erase(value, '\'');
    options.settings.push_back(each.name + "=" + value);
  }
  auto server = std::make_unique<kit::postgres_server>(std::move(options));
  server->rows("CREATE ROLE odd_owner; GRANT CREATE ON DATABASE postgres TO odd_owner");
  // Of what the server's own user makes.
  for (const std::string what : {"SCHEMAS", "TABLES", "SEQUENCES", "FUNCTIONS"}) {
    server->rows("ALTER DEFAULT PRIVILEGES GRANT ALL ON " + what + " TO odd_owner");
  }
  return server;
}

void make_user_with(const sql_server& server, const std::string& user,
                    const std::vector<chosen_setting>& settings) {
  std::string sql = "CREATE ROLE " + user + " LOGIN IN ROLE odd_owner";
  for (const auto& each : settings) {
    sql += "; ALTER ROLE " + user + " SET " + each.name + " TO " + each.value;
  }
  server.rows(sql);
}

}  // namespace sallyport::sql_live

#include "backends/mariadb/test_live_store.hpp"
#include "backends/sql/test_live_settings.hpp"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// What administrators set for the sessions of those who have no special rights (init_connect), and in
// the server's option file.
namespace sallyport::sql_live {

std::span<const odd_setting> session_settings() {
  static const std::vector<odd_setting> all{
      {"sql_mode",
       {"''", "'ANSI,NO_BACKSLASH_ESCAPES'", "'ORACLE,EMPTY_STRING_IS_NULL'",
        "'TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,SIMULTANEOUS_ASSIGNMENT,"
        "NO_UNSIGNED_SUBTRACTION,ONLY_FULL_GROUP_BY,IGNORE_SPACE'"}},
      {"sql_select_limit", {"0", "1"}},
      {"max_join_size", {"1", "1000"}},
      {"sql_safe_updates", {"1"}},
      {"autocommit", {"0"}},
      {"tx_isolation", {"'SERIALIZABLE'", "'READ-UNCOMMITTED'"}},
      {"time_zone", {"'+05:45'", "'-12:00'"}},
      {"character_set_client", {"latin1", "sjis", "gbk"}},
      {"character_set_connection", {"latin1", "ucs2", "binary"}},
      {"character_set_results", {"utf16", "NULL", "latin1"}},
      {"collation_connection", {"utf8mb4_bin", "utf8mb4_turkish_ci"}},
      {"innodb_lock_wait_timeout", {"0", "1"}},
      {"lock_wait_timeout", {"1"}},
      {"wait_timeout", {"1"}},
      {"net_read_timeout", {"1"}},
      {"max_statement_time", {"2"}},
      {"group_concat_max_len", {"4"}},
      {"sql_auto_is_null", {"1"}},
      {"completion_type", {"'CHAIN'", "'RELEASE'"}},
      {"default_storage_engine", {"MyISAM", "Aria", "MEMORY"}},
      {"innodb_strict_mode", {"0"}},
      {"foreign_key_checks", {"0"}},
      {"unique_checks", {"0"}},
      {"div_precision_increment", {"0", "30"}},
      {"max_sort_length", {"8", "64"}},
      {"tmp_memory_table_size", {"0"}},
      {"max_heap_table_size", {"16384"}},
      {"join_cache_level", {"0", "8"}},
      {"optimizer_switch", {"'derived_merge=off,materialization=off,semijoin=off'"}},
      {"max_error_count", {"0"}},
      {"sql_notes", {"0"}},
      {"sql_warnings", {"1"}},
      {"max_recursive_iterations", {"4"}},
      {"standard_compliant_cte", {"0"}},
      {"timestamp", {"1000000000"}},
      {"low_priority_updates", {"1"}},
      {"session_track_schema", {"1"}},
      {"session_track_system_variables", {"'*'"}},
      {"session_track_transaction_info", {"'CHARACTERISTICS'"}},
      {"lc_time_names", {"'de_DE'"}},
      {"lc_messages", {"'de_DE'"}},
      {"old_mode", {"''", "'NO_PROGRESS_INFO'"}},
      {"innodb_compression_default", {"1"}},
  };
  return all;
}

/// @: the server takes it only when it runs.
std::span<const odd_setting> server_settings() {
  static const std::vector<odd_setting> all{
      {"lower_case_table_names", {"1"}},
      {"character-set-server", {"latin1", "utf16", "utf8mb4"}},
      {"sql_mode", {"ANSI", "ORACLE", "EMPTY_STRING_IS_NULL"}},
      {"@sql_select_limit", {"1"}},
      {"@max_join_size", {"1"}},
      {"default_storage_engine", {"Aria", "MyISAM"}},
      {"explicit_defaults_for_timestamp", {"0"}},
      {"innodb_default_row_format", {"compact"}},
      {"innodb_rollback_on_timeout", {"1"}},
      {"transaction_isolation", {"SERIALIZABLE"}},
      {"innodb_flush_log_at_trx_commit", {"0", "2"}},
      {"query_cache_size", {"1048576"}},
      {"query_cache_type", {"1"}},
      {"log_bin", {"binlog"}},
      {"binlog_format", {"ROW", "MIXED"}},
      {"max_allowed_packet", {"65536"}},
      {"skip_name_resolve", {"1"}},
      {"innodb_force_primary_key", {"1"}},
      {"log_warnings", {"9"}},
      {"thread_handling", {"pool-of-threads"}},
      {"autocommit", {"0"}},
      {"completion_type", {"1"}},
      {"@sql_safe_updates", {"1"}},
  };
  return all;
}

std::unique_ptr<sql_server> start_server_with(const std::vector<chosen_setting>& settings) {
  kit::mariadb_options options;
  std::vector<std::string> later;
  for (const auto& each : settings) {
    const std::string text = each.name + "=" + each.value;
    if (text.starts_with('@')) {
      later.push_back("SET GLOBAL " + text.substr(1));
    } else {
      options.settings.push_back(text);
    }
  }
  auto server = std::make_unique<kit::mariadb_server>(std::move(options));
  for (const std::string& each : later) server->rows(each);
  return server;
}

void make_user_with(const sql_server& server, const std::string& user,
                    const std::vector<chosen_setting>& settings) {
  make_user(server, user);
  std::string sql = "SET GLOBAL init_connect = \"SET SESSION ";
  for (const auto& each : settings) {
    if (&each != &settings.front()) sql += ", ";
    sql += each.name + " = " + each.value;
  }
  const auto probe = server.connect();
  probe->rows("SET SESSION sql_mode = ''");
  probe->rows(sql + "\"");
}

}  // namespace sallyport::sql_live

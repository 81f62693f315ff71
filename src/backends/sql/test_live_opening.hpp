#pragma once

#include "backends/sql/test_live_store.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::sql_live {

// ---- what each server says in its own way: the backend's opening_live_test.cpp ---------------------

/// With the users `locked`, who has the password "open sesame" and may make tables, and `app`, who
/// comes in and may do nothing else.
[[nodiscard]] std::unique_ptr<sql_server> start_server_with_users();
/// What `sallyport schema` prints, run by who may do everything.
void run_script(const sql_server& server, const std::string& script);
/// In which others may make their tables.
void make_space(const sql_server& server, const std::string& space);
/// Other ways to write address_at().
[[nodiscard]] std::vector<std::string> other_addresses(const sql_server& server);
/// How many tables and the like there are in it.
[[nodiscard]] std::size_t count_tables(const sql_server& server, const std::string& space);
/// Each of our rows that is there from the beginning is there once.
[[nodiscard]] testing::AssertionResult made_once(const sql_server& server,
                                                 const std::string& space);
/// By which words of an error its cause is known.
struct error_words {
  std::string missing_right;  // the server's own number, as the next one
  std::string no_such_database;
  std::string strange_state;  // a table `state` with other columns
};
[[nodiscard]] const error_words& errors();
/// Where there is no such database.
[[nodiscard]] std::string address_of_nowhere(const sql_server& server);

/// One server for all tests about who is let in.
class Opening : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = start_server_with_users(); }
  static void TearDownTestSuite() { server_.reset(); }

  static inline std::unique_ptr<sql_server> server_;
};

}  // namespace sallyport::sql_live

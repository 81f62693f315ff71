#pragma once

#include "backends/sql/test_live_store.hpp"
#include "base/random.hpp"

#include <string>

/// What each server says in its own way of the rules: the backend's rules_live_test.cpp.
namespace sallyport::sql_live {

/// Triggers that refuse what must not be, and write down every grant, in the order in which the name's
/// grants were made: in a table history with n, name, mode, first_token and last_token.
void set_watchman(const sql_server& server);
/// A call of one of the procedures, with a few names and contenders and short leases.
[[nodiscard]] std::string random_call(base::random& random);
/// What the server says of a deadlock.
[[nodiscard]] std::string word_for_deadlock();

}  // namespace sallyport::sql_live

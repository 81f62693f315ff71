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

// ---- crowds ----------------------------------------------------------------------------------------

/// So many readers in the queue of a shared_mutex, each of which is alive, or has lapsed.
void add_readers(const sql_server& server, const std::string& name, int count, bool alive);
/// So many readers of a shared_mutex that hold it, by a lease that has ended.
void add_dead_holders(const sql_server& server, const std::string& name, int count);
/// A call that does nothing but take away what lapsed of a name, and let in who may enter; what it
/// answers.
[[nodiscard]] std::string settle(const sql_server& server, const std::string& name);
/// A writer's attempt to enter without waiting; what it answers.
[[nodiscard]] std::string try_to_write(const sql_server& server, const std::string& name);
/// One call that looks after all names; what it answers.
[[nodiscard]] std::string sweep_once(const sql_server& server);

}  // namespace sallyport::sql_live

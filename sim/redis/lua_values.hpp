#pragma once

#include "backends/redis/reply.hpp"

#include <string>
#include <string_view>

struct lua_State;

namespace sallyport::sim::redis {

/// Pushes what a script gets for the answer of a command: nil becomes false, a status {ok=...}, an
/// error {err=...}.
void push_reply(lua_State* lua, const backends::redis::reply& answer);

/// Pushes {err="ERR text"}.
void push_error(lua_State* lua, std::string_view text);
/// Pushes {err=text}, or {err="ERR text"} where the text is one word and so has no code.
void push_coded_error(lua_State* lua, std::string_view text);

/// What a client gets for the value at the top of the stack: numbers are truncated, a table ends at
/// its first nil, false is nil and true is 1. The value stays where it is.
backends::redis::reply reply_from_lua(lua_State* lua);

/// Statuses and errors travel as lines: line ends become spaces.
std::string one_line(std::string text);

}  // namespace sallyport::sim::redis

#include "sim/redis/lua_values.hpp"

#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <cstddef>
#include <lua.hpp>
#include <optional>
#include <utility>

namespace sallyport::sim::redis {
namespace {

// Deeper answers are refused, long before Lua's own stack ends.
constexpr int deepest_answer = 1000;

void push_text(lua_State* lua, std::string_view text) {
  lua_pushlstring(lua, text.data(), text.size());
}

void push_field(lua_State* lua, const char* name, std::string_view text) {
  lua_createtable(lua, 0, 1);
  push_text(lua, text);
  lua_setfield(lua, -2, name);
}

std::string text_at_top(lua_State* lua) {
  std::size_t length = 0;
  const char* const text = lua_tolstring(lua, -1, &length);
  return {text, length};
}

// The field of the table at the top, where it has this type; the field is left on the stack then.
bool push_raw_field(lua_State* lua, const char* name, int type) {
  lua_pushstring(lua, name);
  lua_rawget(lua, -2);
  if (lua_type(lua, -1) == type) return true;
  lua_pop(lua, 1);
  return false;
}

reply convert(lua_State* lua, int depth);

reply convert_table(lua_State* lua, int depth) {
  if (push_raw_field(lua, "err", LUA_TSTRING)) {
    auto text = text_at_top(lua);
    lua_pop(lua, 1);
    return error_reply(one_line(std::move(text)));
  }
  if (push_raw_field(lua, "ok", LUA_TSTRING)) {
    auto text = text_at_top(lua);
    lua_pop(lua, 1);
    return status_reply(one_line(std::move(text)));
  }
  if (push_raw_field(lua, "double", LUA_TNUMBER)) {
    auto text = format_double(lua_tonumber(lua, -1));
    lua_pop(lua, 1);
    return text_reply(std::move(text));
  }
  auto answer = array_reply();
  for (int index = 1;; ++index) {
    lua_rawgeti(lua, -1, index);
    const bool end = lua_isnil(lua, -1);
    if (!end) answer.elements.push_back(convert(lua, depth + 1));
    lua_pop(lua, 1);
    if (end) return answer;
  }
}

reply convert(lua_State* lua, int depth) {
  if (depth > deepest_answer || lua_checkstack(lua, 4) == 0) {
    return error_reply("ERR reached lua stack limit");
  }
  switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
      return text_reply(text_at_top(lua));
    case LUA_TBOOLEAN:
      return lua_toboolean(lua, -1) != 0 ? integer_reply(1) : nil_reply();
    case LUA_TNUMBER:
      return integer_reply(truncate(lua_tonumber(lua, -1)));
    case LUA_TTABLE:
      return convert_table(lua, depth);
    default:
      return nil_reply();
  }
}

}  // namespace

void push_reply(lua_State* lua, const reply& answer) {
  switch (answer.what) {
    case reply::kind::nil:
      lua_pushboolean(lua, 0);
      return;
    case reply::kind::integer:
      lua_pushnumber(lua, static_cast<lua_Number>(answer.integer));
      return;
    case reply::kind::text:
      push_text(lua, answer.text);
      return;
    case reply::kind::status:
      push_field(lua, "ok", answer.text);
      return;
    case reply::kind::error:
      push_field(lua, "err", answer.text);
      return;
    case reply::kind::array: {
      lua_createtable(lua, static_cast<int>(answer.elements.size()), 0);
      int index = 0;
      for (const auto& each : answer.elements) {
        push_reply(lua, each);
        lua_rawseti(lua, -2, ++index);
      }
      return;
    }
  }
}

void push_error(lua_State* lua, std::string_view text) {
  lua_createtable(lua, 0, 1);
  lua_pushliteral(lua, "ERR ");
  push_text(lua, text);
  lua_concat(lua, 2);
  lua_setfield(lua, -2, "err");
}

void push_coded_error(lua_State* lua, std::string_view text) {
  if (text.find(' ') == std::string_view::npos) {
    push_error(lua, text);
  } else {
    push_field(lua, "err", text);
  }
}

reply reply_from_lua(lua_State* lua) { return convert(lua, 0); }

std::string one_line(std::string text) {
  for (auto& byte : text) {
    if (byte == '\r' || byte == '\n') byte = ' ';
  }
  return text;
}

}  // namespace sallyport::sim::redis

#include "sim/redis/script_host.hpp"

#include "base/check.hpp"
#include "sim/redis/lua_values.hpp"
#include "sim/redis/sha1.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <utility>

namespace sallyport::sim::redis {
namespace {

constexpr int hook_interval = 100'000;

// What scripts see in Redis 7.0, without what script_host leaves out; pcall and _G are made here.
constexpr std::array<const char*, 24> allowed_globals{
    "_VERSION", "assert",     "coroutine", "error",  "getmetatable", "ipairs",
    "load",     "loadstring", "math",      "next",   "pairs",        "rawequal",
    "rawget",   "rawset",     "redis",     "select", "setmetatable", "string",
    "table",    "tonumber",   "tostring",  "type",   "unpack",       "xpcall"};
constexpr std::array<const char*, 5> libraries{"coroutine", "math", "redis", "string", "table"};

struct named_function {
  const char* name;
  lua_CFunction function;
};

// Without memory there is no simulation; and an error that Lua raised for it would jump over
// destructors.
void* allocate(void*, void* block, std::size_t, std::size_t size) {
  if (size == 0) {
    std::free(block);
    return nullptr;
  }
  void* const made = std::realloc(block, size);
  SALLYPORT_CHECK(made != nullptr);
  return made;
}

int refuse_write(lua_State* lua) { return luaL_error(lua, "Attempt to modify a readonly table"); }

int refuse_unknown_global(lua_State* lua) {
  return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                    lua_tostring(lua, 2));
}

// rawset goes past metatables, so what they protect has to be known here: it has one that is locked.
int careful_rawset(lua_State* lua) {
  luaL_checktype(lua, 1, LUA_TTABLE);
  luaL_checkany(lua, 2);
  luaL_checkany(lua, 3);
  if (luaL_getmetafield(lua, 1, "__metatable") != 0) return refuse_write(lua);
  lua_settop(lua, 3);
  lua_rawset(lua, 1);
  return 1;
}

// As in Redis 7.0, where errors are tables: whoever catches one gets its text.
int pcall_with_texts(lua_State* lua) {
  luaL_checkany(lua, 1);
  const int status = lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0);
  lua_pushboolean(lua, status == 0 ? 1 : 0);
  lua_insert(lua, 1);
  if (status != 0 && lua_istable(lua, -1)) {
    lua_getfield(lua, -1, "err");
    if (lua_isstring(lua, -1)) {
      lua_replace(lua, -2);
    } else {
      lua_pop(lua, 1);
    }
  }
  return lua_gettop(lua);
}

// Makes a table of every error, and says in it where it came from.
int describe_error(lua_State* lua) {
  if (!lua_istable(lua, 1)) {
    lua_getglobal(lua, "tostring");
    lua_pushvalue(lua, 1);
    lua_call(lua, 1, 1);
    lua_newtable(lua);
    lua_pushliteral(lua, "ERR ");
    lua_pushvalue(lua, -3);
    lua_concat(lua, 2);
    lua_setfield(lua, -2, "err");
  } else {
    lua_pushvalue(lua, 1);
  }
  lua_Debug place{};
  bool known = lua_getstack(lua, 1, &place) != 0 && lua_getinfo(lua, "Sl", &place) != 0;
  if (known && std::strcmp(place.what, "C") == 0) {
    known = lua_getstack(lua, 2, &place) != 0 && lua_getinfo(lua, "Sl", &place) != 0;
  }
  if (known) {
    lua_pushstring(lua, place.source);
    lua_setfield(lua, -2, "source");
    lua_pushinteger(lua, place.currentline);
    lua_setfield(lua, -2, "line");
  }
  return 1;
}

int make_status(lua_State* lua) {
  if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
    push_error(lua, "wrong number or type of arguments");
    return 1;
  }
  lua_createtable(lua, 0, 1);
  lua_pushvalue(lua, 1);
  lua_setfield(lua, -2, "ok");
  return 1;
}

int make_error(lua_State* lua) {
  if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
    push_error(lua, "wrong number or type of arguments");
    return 1;
  }
  const char* const text = lua_tostring(lua, 1);
  push_coded_error(lua, *text == '-' ? text + 1 : text);
  return 1;
}

void push_sha1(lua_State* lua) {
  std::size_t length = 0;
  const char* const text = lua_tolstring(lua, 1, &length);
  const auto hex = sha1_hex(text == nullptr ? std::string_view{} : std::string_view(text, length));
  lua_pushlstring(lua, hex.data(), hex.size());
}

int make_sha1(lua_State* lua) {
  if (lua_gettop(lua) != 1) {
    push_error(lua, "wrong number of arguments");
    return lua_error(lua);
  }
  push_sha1(lua);
  return 1;
}

void open_library(lua_State* lua, const char* name, lua_CFunction open) {
  lua_pushcfunction(lua, open);
  lua_pushstring(lua, name);
  lua_call(lua, 1, 0);
}

}  // namespace

// Errors of Lua are jumps: in these functions nothing with a destructor may be alive when one is
// raised.
struct script_host::glue {
  static script_host& host(lua_State* lua) {
    return *static_cast<script_host*>(lua_touserdata(lua, lua_upvalueindex(1)));
  }

  static int call_or_raise(lua_State* lua) { return host(lua).call(lua) ? 1 : lua_error(lua); }

  static int call_or_return(lua_State* lua) {
    host(lua).call(lua);
    return 1;
  }

  static void count(lua_State* lua, lua_Debug*) {
    lua_getfield(lua, LUA_REGISTRYINDEX, "host");
    auto& host = *static_cast<script_host*>(lua_touserdata(lua, -1));
    lua_pop(lua, 1);
    host.instructions_left_ -= hook_interval;
    if (host.instructions_left_ < 0) luaL_error(lua, "script ran too long");
  }
};

script_host::script_host() : lua_(lua_newstate(allocate, nullptr)) {
  SALLYPORT_CHECK(lua_ != nullptr);
  open_library(lua_, "", luaopen_base);
  open_library(lua_, LUA_TABLIBNAME, luaopen_table);
  open_library(lua_, LUA_STRLIBNAME, luaopen_string);
  open_library(lua_, LUA_MATHLIBNAME, luaopen_math);
  lua_pushlightuserdata(lua_, this);
  lua_setfield(lua_, LUA_REGISTRYINDEX, "host");
  build_globals();
  lua_sethook(lua_, glue::count, LUA_MASKCOUNT, hook_interval);
}

script_host::~script_host() { lua_close(lua_); }

// Replaces the table at the top by an empty one that reads from it and cannot be written.
void script_host::protect(const char* name) {
  lua_getfield(lua_, -1, name);
  lua_createtable(lua_, 0, 0);
  lua_createtable(lua_, 0, 3);
  lua_pushvalue(lua_, -3);
  lua_setfield(lua_, -2, "__index");
  lua_pushcfunction(lua_, refuse_write);
  lua_setfield(lua_, -2, "__newindex");
  lua_pushboolean(lua_, 0);
  lua_setfield(lua_, -2, "__metatable");
  lua_setmetatable(lua_, -2);
  lua_setfield(lua_, -3, name);
  lua_pop(lua_, 1);
}

void script_host::build_globals() {
  lua_getglobal(lua_, "math");
  for (const char* const name : {"random", "randomseed"}) {
    lua_pushnil(lua_);
    lua_setfield(lua_, -2, name);
  }
  lua_pop(lua_, 1);
  lua_createtable(lua_, 0, 5);
  for (const auto& [name, function] :
       {named_function{"call", glue::call_or_raise}, named_function{"pcall", glue::call_or_return},
        named_function{"status_reply", make_status}, named_function{"error_reply", make_error},
        named_function{"sha1hex", make_sha1}}) {
    lua_pushlightuserdata(lua_, this);
    lua_pushcclosure(lua_, function, 1);
    lua_setfield(lua_, -2, name);
  }
  lua_setglobal(lua_, "redis");
  lua_register(lua_, "rawset", careful_rawset);

  // The table that scripts see is empty; it reads from one that only holds what is allowed.
  lua_createtable(lua_, 0, 32);
  for (const char* const name : allowed_globals) {
    lua_getglobal(lua_, name);
    lua_setfield(lua_, -2, name);
  }
  lua_pushcfunction(lua_, pcall_with_texts);
  lua_setfield(lua_, -2, "pcall");
  for (const char* const name : libraries) protect(name);
  lua_createtable(lua_, 0, 1);
  lua_pushcfunction(lua_, refuse_unknown_global);
  lua_setfield(lua_, -2, "__index");
  lua_setmetatable(lua_, -2);
  lua_createtable(lua_, 0, 1);
  lua_pushvalue(lua_, -2);
  lua_setfield(lua_, -2, "_G");
  protect("_G");
  lua_getfield(lua_, -1, "_G");
  lua_pushvalue(lua_, -1);
  lua_setfield(lua_, -4, "_G");
  lua_replace(lua_, LUA_GLOBALSINDEX);
  lua_pop(lua_, 1);
  globals_ = luaL_ref(lua_, LUA_REGISTRYINDEX);
}

script_host::loaded script_host::load(std::string_view body) {
  if (const auto found = scripts_.find(body); found != scripts_.end()) {
    return {found->second.get(), {}};
  }
  if (luaL_loadbuffer(lua_, body.data(), body.size(), "@user_script") != 0) {
    loaded failed{nullptr, std::string("ERR Error compiling script (new function): ") +
                               lua_tostring(lua_, -1)};
    lua_pop(lua_, 1);
    return failed;
  }
  auto compiled =
      std::make_unique<script>(script{sha1_hex(body), luaL_ref(lua_, LUA_REGISTRYINDEX)});
  const auto* const kept = compiled.get();
  scripts_.emplace(std::string(body), std::move(compiled));
  return {kept, {}};
}

void script_host::set_global_list(const char* name, arguments texts) {
  lua_createtable(lua_, static_cast<int>(texts.size()), 0);
  int index = 0;
  for (const auto text : texts) {
    lua_pushlstring(lua_, text.data(), text.size());
    lua_rawseti(lua_, -2, ++index);
  }
  lua_setfield(lua_, -2, name);
}

reply script_host::run(const script& what, arguments keys, arguments values,
                       command_runner& commands) {
  SALLYPORT_CHECK(commands_ == nullptr);
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, globals_);
  set_global_list("KEYS", keys);
  set_global_list("ARGV", values);
  lua_pop(lua_, 1);
  commands_ = &commands;
  instructions_left_ = instruction_limit;
  lua_pushcfunction(lua_, describe_error);
  lua_rawgeti(lua_, LUA_REGISTRYINDEX, what.function);
  const int status = lua_pcall(lua_, 0, 1, -2);
  commands_ = nullptr;
  auto answer = status == 0 ? reply_from_lua(lua_) : result_of_failure(what);
  lua_settop(lua_, 0);
  return answer;
}

reply script_host::result_of_failure(const script& what) {
  if (!lua_istable(lua_, -1)) {
    const char* const text = lua_tostring(lua_, -1);
    return error_reply("ERR Error running script " + what.sha1 + ", " +
                       (text == nullptr ? "execution failure" : text));
  }
  const auto field = [&](const char* name) {
    lua_getfield(lua_, -1, name);
    const char* const text = lua_tostring(lua_, -1);
    std::string copied = text == nullptr ? "" : text;
    lua_pop(lua_, 1);
    return copied;
  };
  auto text = field("err");
  const auto source = field("source");
  const auto line = field("line");
  if (text.empty()) text = "ERR unknown error";  // the real one crashes
  if (!source.empty() && !line.empty()) {
    text += " script: " + what.sha1 + ", on " + source + ":" + line + ".";
  }
  return error_reply(one_line(std::move(text)));
}

// Leaves the result at the top of the stack; false when it is an error.
bool script_host::call(lua_State* lua) {
  const auto count = static_cast<std::size_t>(lua_gettop(lua));
  if (count == 0) {
    push_error(lua, "Please specify at least one argument for this redis lib call");
    return false;
  }
  given_.clear();
  numbers_.clear();
  numbers_.reserve(count);  // views point into it
  for (int i = 1; i <= static_cast<int>(count); ++i) {
    const int type = lua_type(lua, i);
    if (type == LUA_TNUMBER) {
      given_.push_back(format_double(lua_tonumber(lua, i), numbers_.emplace_back()));
    } else if (type == LUA_TSTRING) {
      std::size_t length = 0;
      const char* const text = lua_tolstring(lua, i, &length);
      given_.emplace_back(text, length);
    } else {
      push_error(lua, "Lua redis lib command arguments must be strings or integers");
      return false;
    }
  }
  if (commands_ == nullptr) {
    push_error(lua, "redis.call/pcall can only be called inside a script invocation");
    return false;
  }
  const auto answer = commands_->call_from_script(given_);
  push_reply(lua, answer);
  return !answer.is_error();
}

}  // namespace sallyport::sim::redis

#pragma once

#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

struct lua_State;

namespace sallyport::sim::redis {

/// Runs the scripts of Redis 7.0: Lua 5.1 with redis.call, redis.pcall, redis.error_reply,
/// redis.status_reply and redis.sha1hex, the same conversions between Lua's values and replies, and
/// globals that cannot be written. Left out: cjson, cmsgpack, struct and bit, and what would make two
/// runs differ (collectgarbage, gcinfo, math.random).
///
/// It keeps compiled scripts and nothing else: a script leaves no trace in it, so many servers, and
/// one seed after another, may use one host, and need not compile again.
/// Thread safety: none.
class script_host {
 public:
  /// A script that runs longer than so many instructions ends with an error.
  static constexpr int instruction_limit = 20'000'000;

  /// Carries out what a script asks for.
  class command_runner {
   public:
    virtual reply call_from_script(arguments given) = 0;

   protected:
    ~command_runner() = default;
  };

  /// A script that compiles. Lives as long as its host.
  struct script {
    std::string sha1;
    int function = 0;  ///< a reference in Lua's registry
  };

  struct loaded {
    const script* compiled = nullptr;
    std::string error;  ///< where it does not compile
  };

  script_host();
  ~script_host();
  script_host(const script_host&) = delete;
  script_host& operator=(const script_host&) = delete;

  /// Compiles the script, or finds it again.
  loaded load(std::string_view body);

  /// REQUIRES: not called from inside a script.
  reply run(const script& what, arguments keys, arguments values, command_runner& commands);

 private:
  struct glue;  // the functions that Lua calls

  struct view_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };

  void protect(const char* name);
  void build_globals();
  void set_global_list(const char* name, arguments texts);
  bool call(lua_State* lua);
  reply result_of_failure(const script& what);

  lua_State* lua_;
  int globals_ = 0;  // a reference to the table behind the one that scripts see
  // By their text: hashing that for every SCRIPT LOAD would cost more than all other commands.
  std::unordered_map<std::string, std::unique_ptr<script>, view_hash, std::equal_to<>> scripts_;

  // While a script runs.
  command_runner* commands_ = nullptr;
  int instructions_left_ = 0;
  std::vector<std::string_view> given_;
  std::vector<number_buffer> numbers_;
};

}  // namespace sallyport::sim::redis

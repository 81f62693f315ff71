#pragma once

#include "base/random.hpp"
#include "tests/redis_model/redis_pair.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::redis_model {

/// A command that somebody made up.
struct made_command {
  words text;
  order how = order::exact;
};

/// Makes up commands: mostly good ones, on few keys, so that they meet; some with wrong options,
/// numbers and counts of arguments; some from inside a script.
/// Thread safety: none.
class random_commands {
 public:
  explicit random_commands(base::random& luck) : luck_(luck) {}

  made_command next();
  /// Small steps, long ones, some back.
  std::chrono::microseconds step();

 private:
  template <class... Texts>
  std::string one_of(Texts... texts);
  std::string key();
  std::string field();
  std::string text();
  std::string integer();
  std::string milliseconds();
  std::string moment();
  std::string score();
  std::string limit();
  std::string index();

  words plain();
  words on_text();
  words on_key();
  words on_hash();
  words on_sorted_set();
  words range();
  words on_server();
  words expiry();
  words set();
  words add_to_sorted_set();
  words conversion();
  made_command from_script();
  void spoil(words& command);
  void add_sometimes(words& command, double chance, std::string word);
  void add_many(words& command, std::string (random_commands::*make)());

  base::random& luck_;
};

}  // namespace sallyport::redis_model

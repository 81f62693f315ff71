#pragma once

#include "backends/redis/reply.hpp"
#include "sim/redis/memory_redis.hpp"

#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::sim::redis {

/// A reply as one line: nil, 5, "text", +status, -ERROR (its first word), [1, [2]].
inline std::string to_line(const reply& answer) {
  switch (answer.what) {
    case reply::kind::nil:
      return "nil";
    case reply::kind::integer:
      return std::to_string(answer.integer);
    case reply::kind::text:
      return '"' + answer.text + '"';
    case reply::kind::status:
      return '+' + answer.text;
    case reply::kind::error:
      return '-' + std::string(answer.error_word());
    case reply::kind::array:
      break;
  }
  std::string line = "[";
  for (std::size_t i = 0; i < answer.elements.size(); ++i) {
    line += (i == 0 ? "" : ", ") + to_line(answer.elements[i]);
  }
  return line + ']';
}

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word == "''" ? "" : word);
  return words;
}

/// A server and its clock, for tests.
struct test_server {
  static constexpr std::chrono::milliseconds start{1'000'000};

  script_host host;
  memory_redis server{host};
  std::chrono::microseconds now = start;

  /// Words are set apart by spaces; '' is an empty one.
  std::string operator()(const std::string& line) {
    return to_line(server.execute(words_of(line), now));
  }
  std::string script(const std::string& body, const std::string& call = "0") {
    auto command = words_of(call);
    command.insert(command.begin(), {"EVAL", body});
    return to_line(server.execute(command, now));
  }
};

}  // namespace sallyport::sim::redis

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What is said to an SQL server and what it says back, as values. Nothing here is a server's own.
namespace sallyport::backends::sql {

/// A statement that is prepared once a connection and used often. Lives as long as its users.
struct statement {
  std::string name;
  std::string text;
};

struct parameter {
  std::string bytes;
  bool binary = false;  ///< the bytes themselves; otherwise the server reads them as text
};

/// One statement with its parameters: one transaction.
struct call {
  const statement* prepared = nullptr;  ///< null: `text` is said, once
  std::string text;
  std::vector<parameter> parameters;

  void bytes(std::string_view value) { parameters.push_back({std::string(value), true}); }
  void number(std::int64_t value) { parameters.push_back({std::to_string(value), false}); }
  void truth(bool value) { parameters.push_back({value ? "t" : "f", false}); }
  void words(std::string value) { parameters.push_back({std::move(value), false}); }
  /// About what it takes in a buffer.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t sum = text.size() + 64;
    for (const parameter& each : parameters) sum += each.bytes.size() + 8;
    return sum;
  }
};

/// What the server answered: rows, or an error of its own, which has undone the transaction.
struct reply {
  std::string error_code;  ///< the server's own; empty: no error
  std::string error;       ///< in the server's words, with its hint
  std::vector<std::vector<std::string>> rows;

  [[nodiscard]] bool is_error() const noexcept { return !error_code.empty(); }
};

}  // namespace sallyport::backends::sql

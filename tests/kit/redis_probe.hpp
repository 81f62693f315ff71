#pragma once

#include "tests/kit/waiting.hpp"

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace sallyport::kit {

/// What Redis answered. Errors that the server tells are answers, too.
struct redis_reply {
  enum class kind { nil, integer, text, status, error, array };

  kind is = kind::nil;
  std::string text;                // text, status and error
  std::int64_t integer = 0;        // integer
  std::vector<redis_reply> items;  // array

  [[nodiscard]] bool is_error() const noexcept { return is == kind::error; }
  [[nodiscard]] bool is_nil() const noexcept { return is == kind::nil; }
  /// The status OK.
  [[nodiscard]] bool is_ok() const { return is == kind::status && text == "OK"; }
  /// The texts of an array, "" for items that have none.
  [[nodiscard]] std::vector<std::string> texts() const;
};

std::ostream& operator<<(std::ostream& out, const redis_reply& reply);

/// Where a server listens: a port of 127.0.0.1, or the path of a unix socket; and who asks.
struct redis_address {
  std::uint16_t port = 0;
  std::string unix_path;  // used when not empty
  std::string user;       // with a password; empty: the default user
  std::string password;   // empty: no AUTH is sent
};

/// A small blocking client with which tests look at a server from outside, without a line of the
/// backend under test. Every wait is bounded; a connection that fails is thrown as kit_error, and
/// then stays unusable.
/// Thread safety: none; one probe a thread.
class redis_probe {
 public:
  using words = std::vector<std::string>;

  /// Connects and authenticates.
  explicit redis_probe(const redis_address& address, lease_clock::duration within = patience);
  redis_probe(const redis_probe&) = delete;
  redis_probe& operator=(const redis_probe&) = delete;
  ~redis_probe();

  /// Sends a command and waits for its answer, whatever it is.
  redis_reply command(const words& command, lease_clock::duration within = patience);
  /// As `command`, but an error answer is thrown as kit_error.
  redis_reply expect(const words& command, lease_clock::duration within = patience);

  /// The halves of `command`: for pipelines, blocking commands and subscriptions.
  void send(const words& command);
  redis_reply receive(lease_clock::duration within = patience);
  /// Whether an answer or message comes within that time; it is not taken.
  [[nodiscard]] bool readable(lease_clock::duration within);

  /// One field of INFO ("role", "connected_slaves"), "" when there is none.
  std::string info(std::string_view field);

 private:
  /// Reads what is there into the reader; false: nothing came until `give_up`.
  bool read_some(lease_clock::time_point give_up);
  bool take_reply();
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;  // for messages
  int socket_ = -1;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
  std::vector<redis_reply> ready_;  // at most one: looked for by readable(), not yet received
};

}  // namespace sallyport::kit

#pragma once

#include "backends/local/descriptor.hpp"
#include "backends/local/lock_rules.hpp"
#include "base/result.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

/// How one client tells another: a named pipe for each, in the store's folder. What comes through
/// it is a hint; the truth is in the records.
namespace sallyport::backends::local {

/// The message for a notice; at most PIPE_BUF bytes, so it arrives whole or not at all.
[[nodiscard]] std::string encode(const notice& one);
/// Takes the first message off the bytes; nothing when it is not whole. `spoiled` is set when the
/// bytes are no messages. Safe on any input.
[[nodiscard]] std::optional<notice> decode(std::string_view& bytes, bool& spoiled);

/// The name of a client's pipe.
[[nodiscard]] std::string inbox_name(client_number client);

/// The reading end. The pipe's file goes with it.
/// Thread safety: none.
class inbox {
 public:
  static base::result<inbox> make(int folder, client_number client, mode_t mode);

  inbox(inbox&&) noexcept = default;
  inbox& operator=(inbox&&) noexcept = default;
  ~inbox();

  /// Readable when there are notices.
  [[nodiscard]] int descriptor_number() const noexcept { return pipe_.number(); }
  /// Appends what has come, without waiting. False: something was not understood, so something may
  /// be missing.
  bool receive(std::vector<notice>& notices);

 private:
  inbox(descriptor pipe, int folder, std::string name)
      : pipe_(std::move(pipe)), folder_(folder), name_(std::move(name)) {}

  descriptor pipe_;
  int folder_;
  std::string name_;
};

/// The writing ends of other clients' pipes, kept open.
/// Thread safety: none.
class outboxes {
 public:
  static constexpr std::size_t most_open = 128;

  explicit outboxes(int folder) : folder_(folder) {}
  /// Never waits: what does not fit is lost, and found at the waiter's next heartbeat.
  void post(client_number to, const notice& what);
  void forget(client_number client) { open_.erase(client); }

 private:
  const int folder_;
  std::unordered_map<client_number, descriptor> open_;
};

}  // namespace sallyport::backends::local

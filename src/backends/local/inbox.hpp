#pragma once

#include "backends/local/descriptor.hpp"
#include "backends/local/lock_rules.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

/// How one client tells another: a named pipe for each, in the store's folder. What comes through
/// it is a hint; the truth is in the records.
namespace sallyport::backends::local {

/// Whose the pipes are.
enum class pipes : std::uint8_t {
  made_by_clients,  ///< each client makes its own, named after its number, and removes it
  ready_made        ///< they are there for good, and a client takes one that nobody has
};

/// The message for a notice; at most PIPE_BUF bytes, so it arrives whole or not at all.
[[nodiscard]] std::string encode(const notice& one);
/// Takes the first message off the bytes; nothing when it is not whole. `spoiled` is set when the
/// bytes are no messages. Safe on any input.
[[nodiscard]] std::optional<notice> decode(std::string_view& bytes, bool& spoiled);

/// How many clients a store with ready-made pipes has at the most.
inline constexpr std::uint64_t ready_made_pipes = 4096;
/// The folder that they lie in.
inline constexpr const char* pipes_folder = "inbox";

/// The name of a client's pipe. The number of a client with a ready-made one leads to it: divided by
/// their number it leaves the pipe's own.
[[nodiscard]] std::string inbox_name(client_number client, pipes of);

/// The reading end. A pipe that a client made goes with it; a ready-made one is free again.
/// Thread safety: none.
class inbox {
 public:
  static base::result<inbox> make(int folder, client_number client, mode_t mode);
  /// Takes a ready-made pipe that no other client has: it is locked (flock) for as long.
  static base::result<inbox> take(int folder);

  inbox(inbox&&) noexcept = default;
  inbox& operator=(inbox&&) noexcept = default;
  ~inbox();

  /// Which of the ready-made pipes it is. REQUIRES: it was taken.
  [[nodiscard]] std::uint64_t taken_pipe() const noexcept { return taken_pipe_; }
  /// Readable when there are notices.
  [[nodiscard]] int descriptor_number() const noexcept { return pipe_.number(); }
  /// Appends what has come, without waiting. False: something was not understood, so something may
  /// be missing.
  bool receive(std::vector<notice>& notices);

 private:
  inbox(descriptor pipe, int folder, std::string name)
      : pipe_(std::move(pipe)), folder_(folder), name_(std::move(name)) {}

  inbox(descriptor pipe, std::uint64_t taken_pipe)
      : pipe_(std::move(pipe)), taken_pipe_(taken_pipe) {}

  descriptor pipe_;
  int folder_ = -1;
  std::string name_;  // empty: a ready-made one
  std::uint64_t taken_pipe_ = 0;
};

/// The writing ends of other clients' pipes, kept open.
/// Thread safety: none.
class outboxes {
 public:
  static constexpr std::size_t most_open = 128;

  outboxes(int folder, pipes of) : folder_(folder), pipes_(of) {}
  /// Never waits: what does not fit is lost, and found at the waiter's next heartbeat.
  void post(client_number to, const notice& what);
  void forget(client_number client) { open_.erase(client); }

 private:
  const int folder_;
  const pipes pipes_;
  std::unordered_map<client_number, descriptor> open_;
};

}  // namespace sallyport::backends::local

#pragma once

#include <sallyport/fence.hpp>
#include <sallyport/fence_pass.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::fence {

/// A gate for data that lives in Redis: the check and the guarded commands are one script, which
/// the server runs without letting anything else in between. It sends nothing itself: it says the
/// words of one EVAL, for whatever client the program has, and reads the number in the answer.
///
///     const redis_gate gate{"{orders}:fence"};
///     const auto words = gate.command(lease, {{"SET", "{orders}:balance", "150"}},
///                                     {"{orders}:balance"});
///     // send the words; the answer is an array whose first element goes to verdict_of()
///
/// The rule is that of `gate`, for the numbers that the server keeps in a hash under the gate's
/// key. What differs from the other gates:
/// - The guarded action is a list of commands, sent as data; it can't be C++ code. What it needs to
///   know has to be read before, under the same lease and after the gate has seen its token: with a
///   guarded GET. Until then an older holder may still write what the reader then overwrites.
/// - Commands run in order. The first that fails is the last that runs; what ran before it stays
///   done, since Redis does not roll back, and so does the raised number: the attempt was made.
/// - The numbers are exactly as durable as the data: same server, same append-only file, same
///   replication stream. A fail-over that loses the newest write loses its number with it.
///
/// The key has no time to live and must stay: whoever deletes it (or lets an eviction policy do so)
/// deletes the memory of who was late; guarded commands have to leave it alone. In a cluster, the gate's key and all keys of the commands
/// have to be in one slot: give them one {tag}.
///
/// Thread safety: immutable. Invariants on the server: as gate.
class redis_gate {
 public:
  /// A command or a list of keys; any bytes.
  using words = std::vector<std::string>;

  /// The most words that one guarded command may have: the script unpacks them onto Lua's stack.
  static constexpr std::size_t max_words = 4096;

  /// A gate whose numbers are kept under `key`, for `lock` only, or (empty) for the lock that the
  /// key remembers, or else the first that passes. Throws lock_error: bad_option when the key is
  /// empty, bad_name when the lock is longer than gate::max_lock_bytes.
  explicit redis_gate(std::string key, std::string lock = {});

  /// The words of one command that judges `shown` and, if it passes, runs the `guarded` commands,
  /// all in one step. `keys` are the keys that they use, for a cluster and for permissions.
  ///
  /// The answer is an array: the number for verdict_of(), then, if it passed, the answer of each
  /// command that ran; an error among them is the last. An error instead of an array (the gate's
  /// key holds something else, or is damaged; no memory; a replica that takes no writes) means that
  /// none of the guarded commands ran. When no answer comes, send the same words again only if the
  /// commands may run twice: the same pass passes again.
  ///
  /// Throws lock_error: no_fencing when the pass carries no token, bad_name when its lock has not 1
  /// to gate::max_lock_bytes bytes, bad_option when a guarded command is empty or too long.
  [[nodiscard]] words command(const pass& shown, const std::vector<words>& guarded,
                              const words& keys) const;

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease>
  [[nodiscard]] words command(const Lease& lease, const std::vector<words>& guarded,
                              const words& keys) const {
    const pass shown = lease.fence_pass();
    return command(shown, guarded, keys);
  }

  /// The words of one command that binds the gate to another lock, as gate::rebind says. The answer is
  /// an array, its first element the number for verdict_of(). A gate that nobody has passed yet is
  /// bound to nobody: wrong_lock. Throws lock_error as gate::rebind.
  [[nodiscard]] words rebind(const std::string& from, const pass& shown,
                             rebinding kind = rebinding::keeps_numbers) const;

  /// What the first element of the answer means. Throws lock_error (store_refused) for a number
  /// that no gate answers.
  static verdict verdict_of(std::int64_t first_element);

 private:
  const std::string key_;
  const std::string lock_;  // empty: not bound by this object
};

}  // namespace sallyport::fence

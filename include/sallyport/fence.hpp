#pragma once

#include <sallyport/fence_pass.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

/// The inner gate: the guarded resource's side of fencing. A lease can end while its holder is
/// paused and does not know it; the gate in front of the resource refuses such a late holder,
/// because it has seen a newer one.
namespace sallyport::fence {

/// What a gate answered. Being late is a value, never an exception.
enum class [[nodiscard]] verdict : std::uint8_t{
    passed,  ///< the action ran, inside the gate
    stale,   ///< a newer grant was here before: the action did not run, and this grant will never
             ///< pass again
    wrong_lock,  ///< the gate's numbers belong to another lock: the action did not run
};

[[nodiscard]] std::string_view to_string(verdict answer) noexcept;

/// What becomes of a gate's numbers when it is bound to another lock.
enum class [[nodiscard]] rebinding : std::uint8_t{
    /// They stay, and the new lock's token has to be newer than they are. Right where the tokens go on:
    /// the lock was renamed, or its store is known by another name now.
    keeps_numbers,
    /// They begin anew with the token that is shown. Right where the new lock's tokens are smaller
    /// because its store began anew.
    restarts_numbers,
};

/// An action to run inside a gate. It returns nothing: a returned future, coroutine or lazy value
/// would do its work after the gate was left. Hand results out through a captured reference.
template <class Action>
concept guarded_action = std::invocable<Action&> && std::is_void_v<std::invoke_result_t<Action&>>;

/// Anything that can show a pass: sallyport::lease, or a type of your own.
template <class Lease>
concept shows_pass = requires(const Lease& lease) {
  { lease.fence_pass() } -> std::convertible_to<pass>;
};

/// Stands in front of one resource and lets an action through only under a grant that no newer one
/// has overtaken.
///
/// The rule. A gate keeps two numbers, the newest exclusive token W and the newest shared token S
/// it has let through. An exclusive token t passes iff t >= W and t > S; a shared token s passes
/// iff s >= W. Passing raises W to t, or S to max(S, s). The gate also remembers which lock its
/// numbers come from (the first that passed, or the one named at construction) and refuses every
/// other.
///
/// The action runs inside the check: while it runs, no conflicting action runs and no newer grant
/// passes. Exclusive actions run alone; shared actions may run together. The number is raised
/// before the action starts and stays raised when the action throws: the attempt was made.
///
/// Thread safety: run() may be called from any thread at any time. An action must not call run() on
/// its own gate: it would wait for itself. Ownership: the gate must outlive its running actions; it
/// keeps neither passes nor actions. Invariants: (1) W and S never sink. (2) An action runs only
/// after the gate has remembered its token.
class gate {
 public:
  /// The longest pass::lock that a gate takes.
  static constexpr std::size_t max_lock_bytes = 2048;

  virtual ~gate() = default;
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  /// Judges `shown` and, if it passes, runs `action` on the calling thread while the gate is held.
  /// Throws whatever `action` throws. Throws lock_error, and has not run `action`, when the pass
  /// carries no token (no_fencing) or no lock of 1 to max_lock_bytes bytes (bad_name), or when the
  /// gate itself is broken.
  template <guarded_action Action>
  verdict run(const pass& shown, Action&& action) {
    return run_inside(shown, std::function<void()>(std::ref(action)));
  }

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease, guarded_action Action>
  verdict run(const Lease& lease, Action&& action) {
    return run_inside(lease.fence_pass(), std::function<void()>(std::ref(action)));
  }

  /// Binds the gate to another lock: `shown` is an exclusive pass of the new one, `from` what it is
  /// bound to now. The explicit act for a store that is known by another name than before (moved,
  /// restored, emptied), or a lock that was renamed. Do it while you hold the new lock.
  ///
  /// Afterwards no pass of the old lock passes, whatever its token: its name is not the gate's any more.
  /// Of the new lock none passes that is older than `shown`. So the one thing to be sure of is that
  /// everybody who still works under the old lock may be refused.
  ///
  /// Waits until no action runs. passed: the gate is bound to the new lock, also if it was before (then
  /// `shown` is judged as by run(), and nothing else changes), so that it may be repeated. stale: with
  /// keeps_numbers, the gate has seen a newer token than `shown`. wrong_lock: it is bound to neither.
  /// Unless it passed, nothing was changed.
  ///
  /// Throws lock_error as run() does; also bad_name when `from` is no lock, bad_option when it is the
  /// new one, or when the pass is a shared one.
  verdict rebind(const std::string& from, const pass& shown,
                 rebinding kind = rebinding::keeps_numbers) {
    return rebind_inside(from, shown, kind);
  }

  /// Which lock the gate's numbers come from; empty: none yet. Throws lock_error when the gate is broken.
  [[nodiscard]] std::string bound_lock() { return read_bound_lock(); }

 protected:
  gate() = default;

 private:
  virtual verdict run_inside(const pass& shown, const std::function<void()>& action) = 0;
  virtual verdict rebind_inside(const std::string& from, const pass& shown, rebinding kind) = 0;
  virtual std::string read_bound_lock() = 0;
};

/// A gate for a resource that lives in this process, and a stand-in for other gates in tests. It
/// forgets everything when it is destroyed: a resource that outlives the process needs a gate that
/// does so too. Waits as long as conflicting actions run, like a std::shared_mutex; whoever comes
/// after a waiting writer waits behind it, so that readers do not starve writers.
class memory_gate final : public gate {
 public:
  /// A gate bound by the first pass that it lets through.
  memory_gate();
  /// A gate for `lock` only. Throws lock_error (bad_name) unless it has 1 to max_lock_bytes bytes.
  explicit memory_gate(std::string lock);
  ~memory_gate() override;

 private:
  struct state;

  verdict run_inside(const pass& shown, const std::function<void()>& action) override;
  verdict rebind_inside(const std::string& from, const pass& shown, rebinding kind) override;
  std::string read_bound_lock() override;

  std::unique_ptr<state> state_;
};

/// How a file_gate behaves. Use designated initialisers; the constructor validates.
struct file_gate_options {
  /// Binds the gate to this lock. Empty: the lock that the file remembers, or else the first that
  /// passes.
  std::string lock{};
  /// How long run() and the constructor wait for others that use the file, before they fail with
  /// unavailable. Between 0 (do not wait) and 24 h.
  std::chrono::milliseconds wait_limit{std::chrono::seconds{10}};
  /// Make the file if it is missing. Set to false where a missing file means that somebody deleted
  /// it, and with it the memory of who was late.
  bool create = true;
  /// Programs that an action starts hold the gate, too: they inherit its file, and when this process
  /// is killed inside the action, the gate stays shut until the last of them has ended. When the
  /// action returns, the gate is left, whoever still runs. Every program that any thread starts
  /// meanwhile inherits it, so this is for processes that do nothing else.
  bool inheritable = false;
};

/// A gate for a resource that several processes use, kept in a small file of its own beside the
/// resource (never the resource itself). The numbers are on disk before the action runs; when they
/// can't be put there, it does not run.
///
/// Costs: a few system calls for each run(). A write and an fsync only when the numbers change, and
/// one more fsync in each process that meets a number it did not put on disk itself; a holder that
/// works on under its token pays neither.
///
/// While an action runs, its process holds a lock of the kernel on the file (F_OFD_SETLK), which
/// ends with the process. A process that is stopped inside an action therefore stops the gate for
/// others (unavailable after wait_limit) until it goes on or is killed. Actions that throw, or
/// whose process dies, leave the number raised.
///
/// The file is made with mode 0600; widen it with chmod and chgrp when other users share the gate.
/// It must stay in place: a gate whose file was removed or replaced fails (unavailable) rather than
/// start to count anew. The folder must be on a file system with working locks and fsync for all
/// who use it.
///
/// Thread safety: as gate; actions of threads that share a file_gate also happen before one
/// another. Objects on the same path, in one process or several, exclude each other like threads
/// do. After fork() both sides may use the gate, but a child that is forked inside an action does
/// not hold the gate.
class file_gate final : public gate {
 public:
  /// Opens the gate at `path`, or makes it. Throws lock_error, with nothing changed, when the path
  /// can't hold a gate (bad_option: the folder is missing, a symbolic link, not a regular file,
  /// bound to another lock), when the file is not a gate's or is damaged (store_refused), and when
  /// the system refuses (unavailable: permission, space, disk).
  explicit file_gate(const std::filesystem::path& path, const file_gate_options& options = {});
  ~file_gate() override;

 private:
  class keeper;

  verdict run_inside(const pass& shown, const std::function<void()>& action) override;
  verdict rebind_inside(const std::string& from, const pass& shown, rebinding kind) override;
  std::string read_bound_lock() override;

  std::unique_ptr<keeper> keeper_;
};

}  // namespace sallyport::fence

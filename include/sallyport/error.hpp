#pragma once

#include <string>
#include <system_error>

namespace sallyport {

/// Why a call failed. "Somebody else has it" is not here: busy is a value (an empty optional),
/// never an error.
enum class errc {
  /// the store could not be reached, or refused before doing anything: nothing happened
  unavailable = 1,
  outcome_unknown,   ///< the request was sent and no answer came: it may or may not have happened
  wrong_kind,        ///< the name is in use as another kind of lock
  bad_name,          ///< not 1-255 bytes of UTF-8 without control characters
  bad_option,        ///< an option is outside what this store allows
  bad_uri,           ///< the store's address could not be understood
  unknown_scheme,    ///< no backend in this build serves the address
  not_supported,     ///< this backend does not claim the capability that was asked for
  no_fencing,        ///< this grant carries no fencing token
  lease_lost,        ///< the lease can no longer be trusted
  not_held,          ///< nothing is held by this handle
  would_deadlock,    ///< the name is already held by this client, or named twice
  too_many_waiters,  ///< a bound on waiting callers was reached
  store_refused,     ///< the store answered with an error of its own; the message quotes it
  token_mismatch,    ///< the lock is held under another token than the one observed
  no_such_lock,      ///< nobody holds a lock of that name
  closed,            ///< the client was closed
  forked,  ///< the handle was inherited through fork(); open a client of your own in the child
  module_unusable,  ///< the backend's module is not installed, or cannot be loaded
  no_thread,        ///< the process may start no more threads: nothing happened
  /// the process could have no more memory: nothing happened, or what happened was taken back
  not_enough_memory,
};

const std::error_category& lock_category() noexcept;
std::error_code make_error_code(errc code) noexcept;

/// What the throwing calls throw when a store is broken or a rule was not kept. what() names cause
/// and remedy.
class lock_error : public std::system_error {
 public:
  using std::system_error::system_error;
};

/// What the throwing form of a call would have thrown, for those who called its twin: the code, and
/// the sentence that says which server, which option, and what it answered
/// ("redis at 10.0.0.7:6379: Connection refused"), where std::error_code::message() has only the
/// words of its kind. To be called on the thread of the call that set `error`, before its next call;
/// later, or with any other code, the sentence is the code's own. The value can be kept, logged and
/// thrown anywhere. REQUIRES: `error` is an error.
[[nodiscard]] lock_error to_lock_error(const std::error_code& error);

}  // namespace sallyport

template <>
struct std::is_error_code_enum<sallyport::errc> : std::true_type {};

#include "backend_api/lock_category.hpp"
#include <sallyport/error.hpp>

#include <atomic>

namespace sallyport {
namespace {

// Cause first, then what the caller can do about it.
const char* sentence(errc code) noexcept {
  switch (code) {
    case errc::unavailable:
      return "the store could not be reached and nothing was changed; check its address and try "
             "again";
    case errc::outcome_unknown:
      return "the request was sent but no answer came, so it may have taken effect; retry, or look "
             "with `who`";
    case errc::wrong_kind:
      return "the name is in use as another kind of lock; use another name or the same kind "
             "everywhere";
    case errc::bad_name:
      return "the name is not acceptable; use 1 to 255 bytes of UTF-8 without control characters";
    case errc::bad_option:
      return "an option is not acceptable here; the message before this says what is";
    case errc::bad_uri:
      return "the store's address could not be understood; write scheme://host:port";
    case errc::unknown_scheme:
      return "no backend of this build serves the address; check the scheme, or build with that "
             "backend";
    case errc::not_supported:
      return "this store does not claim the capability that was asked for; choose another store or "
             "do without";
    case errc::no_fencing:
      return "this grant carries no fencing token; use a mutex on a store that promises fencing";
    case errc::lease_lost:
      return "the lease can no longer be trusted; stop the guarded work and acquire again";
    case errc::not_held:
      return "nothing is held by this handle; acquire before you use it";
    case errc::would_deadlock:
      return "the name is already held by this client or named twice; release it first, or use "
             "recursive_mutex";
    case errc::too_many_waiters:
      return "too many callers already wait for this name; try later, or raise "
             "max_waiters_per_name";
    case errc::store_refused:
      return "the store answered with an error of its own; its message says what to change";
    case errc::token_mismatch:
      return "the lock is held under another token than the one observed; look again before you "
             "act";
    case errc::no_such_lock:
      return "nobody holds a lock of that name; check the name with `ls`";
    case errc::closed:
      return "the client was closed; open a new one";
    case errc::forked:
      return "the handle was inherited through fork(); open a client of your own in the child";
    case errc::module_unusable:
      return "the store's backend is a module of its own, which could not be used; install it and "
             "what it needs";
    case errc::no_thread:
      return "the process could not start a thread, and nothing was done; raise its limit (ulimit "
             "-u, "
             "a container's pids limit) or run fewer threads";
    case errc::not_enough_memory:
      return "the process could get no more memory, and nothing was acquired; raise its limit or "
             "use "
             "less, then try again";
  }
  return nullptr;
}

class lock_category_type final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "sallyport"; }

  [[nodiscard]] std::string message(int value) const override {
    const char* const known = sentence(static_cast<errc>(value));
    return known != nullptr ? known : "unknown error " + std::to_string(value);
  }

  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    if (value == static_cast<int>(errc::no_thread)) {
      return std::errc::resource_unavailable_try_again;
    }
    if (value == static_cast<int>(errc::not_enough_memory)) return std::errc::not_enough_memory;
    return {value, *this};
  }
};

constinit std::atomic<const std::error_category*> shared{nullptr};

}  // namespace

const std::error_category& lock_category() noexcept {
  if (const auto* const of_the_program = shared.load()) return *of_the_program;
  static const lock_category_type category;
  return category;
}

void backend_api::share_lock_category(const std::error_category& of_the_program) noexcept {
  shared.store(&of_the_program);
}

std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), lock_category()};
}

}  // namespace sallyport

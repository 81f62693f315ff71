#pragma once

#include "base/mutex.hpp"
#include "client/client_state.hpp"
#include <sallyport/lease.hpp>
#include <sallyport/options.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace sallyport::detail {

/// Which thread holds what through lock()/unlock(). Kept by thread, so that a late unlock() of a
/// thread whose lease was lost never ends the hold of the thread that came after it.
/// Thread safety: all members.
class thread_holds {
 public:
  void push(lease held);
  /// Takes out the calling thread's newest hold. REQUIRES: there is one (unlock without lock is a
  /// programmer's error).
  [[nodiscard]] lease pop();
  [[nodiscard]] std::optional<lease_view> newest() const;

 private:
  mutable base::mutex mutex_;
  std::vector<std::pair<std::thread::id, lease>> all_ SALLYPORT_GUARDED_BY(mutex_);
};

/// What the lock classes have in common: a client, what to ask for, and the holds of
/// lock()/unlock().
/// Thread safety: all members.
class lock_core {
 public:
  lock_core(const client& store, const lock_name& name, lock_kind kind, lock_mode mode,
            std::uint32_t permits, const lock_options& options)
      : client_(store.state()), spec_(client_->make_spec(name, kind, mode, permits, options)) {}

  [[nodiscard]] const runtime::lock_spec& spec() const noexcept { return *spec_; }
  [[nodiscard]] const std::shared_ptr<const runtime::lock_spec>& shared_spec() const noexcept {
    return spec_;
  }
  [[nodiscard]] client_state& owner() const noexcept { return *client_; }
  [[nodiscard]] const std::shared_ptr<client_state>& shared_owner() const noexcept {
    return client_;
  }
  [[nodiscard]] thread_holds& holds() noexcept { return holds_; }

  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until,
                                          const std::stop_token& stop, std::string_view value,
                                          std::error_code& error) noexcept;
  /// For lock() and its timed kin: true when held now. Throws lock_error.
  [[nodiscard]] bool lock_until(lease_clock::time_point until);
  void unlock() noexcept;

 private:
  const std::shared_ptr<client_state> client_;
  const std::shared_ptr<const runtime::lock_spec> spec_;
  thread_holds holds_;
};

}  // namespace sallyport::detail

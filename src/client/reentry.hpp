#pragma once

#include "base/mutex.hpp"
#include "client/lock_core.hpp"
#include "core/reentrancy.hpp"
#include "runtime/lease_record.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace sallyport::detail {

/// One grant of a recursive lock and how often its owner is in. Its leases share it.
/// Thread safety: all members.
class reentry {
 public:
  reentry(std::shared_ptr<client_state> client, std::shared_ptr<runtime::lease_record> record,
          std::uint64_t owner);

  [[nodiscard]] core::reentrancy::entry enter(std::uint64_t owner);
  /// One lease of this grant ends; the last gives it back.
  release_result leave() noexcept;
  [[nodiscard]] std::uint32_t depth() const;
  [[nodiscard]] const std::shared_ptr<runtime::lease_record>& record() const noexcept {
    return record_;
  }

 private:
  const std::shared_ptr<client_state> client_;
  const std::shared_ptr<runtime::lease_record> record_;
  mutable base::mutex mutex_;
  core::reentrancy count_ SALLYPORT_GUARDED_BY(mutex_);
};

/// One lease of a recursive lock: its share of the grant, and the record that is its own once it has
/// been given back while others go on. It is made on entering, so that giving back needs no memory.
class entry {
 public:
  explicit entry(std::shared_ptr<reentry> grant)
      : grant_(std::move(grant)),
        after_(grant_->record()->spec, grant_->record()->token, grant_->record()->permits,
               grant_->record()->granted_at) {
    after_.store_id = grant_->record()->store_id;
  }

  [[nodiscard]] reentry& grant() noexcept { return *grant_; }
  [[nodiscard]] runtime::lease_record& after() noexcept { return after_; }

 private:
  const std::shared_ptr<reentry> grant_;
  runtime::lease_record after_;
};

/// A recursive lock: the present grant, if any, and how to get one.
class recursive_core {
 public:
  recursive_core(const client& store, const lock_name& name, const lock_options& options)
      : lock_(store, name, lock_kind::mutex, lock_mode::exclusive, 1, options) {}

  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until,
                                          const std::stop_token& stop,
                                          std::error_code& error) noexcept;
  [[nodiscard]] std::uint32_t depth() const;
  [[nodiscard]] lock_core& lock() noexcept { return lock_; }

 private:
  /// The lease of an owner that was counted as in once more.
  [[nodiscard]] std::optional<lease> enter_again(const std::shared_ptr<reentry>& present,
                                                 std::error_code& error) noexcept;

  lock_core lock_;
  mutable base::mutex mutex_;
  std::shared_ptr<reentry> present_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::detail

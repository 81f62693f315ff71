#include "client/reentry.hpp"

#include <sallyport/error.hpp>

#include <atomic>
#include <new>
#include <utility>

namespace sallyport::detail {
namespace {

/// Names the calling thread; never used twice, unlike std::thread::id.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t mine = ++last;
  return mine;
}

}  // namespace

reentry::reentry(std::shared_ptr<client_state> client,
                 std::shared_ptr<runtime::lease_record> record, std::uint64_t owner)
    : client_(std::move(client)), record_(std::move(record)) {
  const base::mutex_lock held{mutex_};
  count_.entered(owner);
}

core::reentrancy::entry reentry::enter(std::uint64_t owner) {
  const bool valid = client_->make_view(record_).valid();
  const base::mutex_lock held{mutex_};
  return count_.enter(owner, valid);
}

release_result reentry::leave() noexcept {
  {
    const base::mutex_lock held{mutex_};
    if (count_.leave() == core::reentrancy::exit::still_in) return release_result::released;
  }
  return client_->release(*record_);
}

std::uint32_t reentry::depth() const {
  const base::mutex_lock held{mutex_};
  return count_.count();
}

std::optional<lease> recursive_core::enter_again(const std::shared_ptr<reentry>& present,
                                                 std::error_code& error) noexcept {
  try {
    return lock_.owner().make_lease(present->record(), std::make_shared<entry>(present));
  } catch (const std::bad_alloc&) {
    static_cast<void>(present->leave());
    report(error, errc::not_enough_memory);
    return std::nullopt;
  }
}

std::optional<lease> recursive_core::wait(lease_clock::time_point until,
                                          const std::stop_token& stop,
                                          std::error_code& error) noexcept {
  error.clear();
  const std::uint64_t me = this_thread_number();
  std::shared_ptr<reentry> present;
  {
    const base::mutex_lock held{mutex_};
    present = present_;
  }
  try {
    if (present && lock_.owner().alive()) {
      switch (present->enter(me)) {
        case core::reentrancy::entry::acquire:
          break;
        case core::reentrancy::entry::reentered:
          return enter_again(present, error);
        case core::reentrancy::entry::lost:
          report(error, errc::lease_lost,
                 "re-entry refused: the lease on '" + lock_.spec().name.text() + "' was lost");
          return std::nullopt;
        case core::reentrancy::entry::too_deep:
          report(error, errc::bad_option,
                 "'" + lock_.spec().name.text() + "' was entered too often");
          return std::nullopt;
      }
    }
  } catch (const std::bad_alloc&) {
    report(error, errc::not_enough_memory);
    return std::nullopt;
  }
  auto record = lock_.owner().acquire(lock_.shared_spec(), until, stop, {}, error);
  if (!record) return std::nullopt;
  std::shared_ptr<entry> first;
  std::shared_ptr<reentry> fresh;
  try {
    fresh = std::make_shared<reentry>(lock_.shared_owner(), record, me);
    first = std::make_shared<entry>(fresh);
  } catch (const std::bad_alloc&) {
    static_cast<void>(lock_.owner().release(*record));
    report(error, errc::not_enough_memory);
    return std::nullopt;
  }
  {
    const base::mutex_lock held{mutex_};
    present_ = std::move(fresh);
  }
  return lock_.owner().make_lease(std::move(record), std::move(first));
}

std::uint32_t recursive_core::depth() const {
  std::shared_ptr<reentry> present;
  {
    const base::mutex_lock held{mutex_};
    present = present_;
  }
  return present ? present->depth() : 0;
}

}  // namespace sallyport::detail

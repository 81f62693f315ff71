#include "base/check.hpp"
#include "client/client_state.hpp"
#include "client/reentry.hpp"
#include "runtime/lease_record.hpp"
#include <sallyport/lease.hpp>

#include <utility>

namespace sallyport {

using runtime::lease_record;

std::string_view to_string(lease_state state) noexcept {
  switch (state) {
    case lease_state::held:
      return "held";
    case lease_state::suspect:
      return "suspect";
    case lease_state::lost:
      return "lost";
    case lease_state::released:
      return "released";
  }
  return "unknown";
}

std::string_view to_string(release_result result) noexcept {
  switch (result) {
    case release_result::released:
      return "released";
    case release_result::already_lost:
      return "already lost";
    case release_result::unknown:
      return "unknown";
  }
  return "unknown";
}

lease_view::lease_view(std::shared_ptr<detail::client_state> client,
                       std::shared_ptr<lease_record> record) noexcept
    : client_(std::move(client)), record_(std::move(record)) {}

bool lease_view::dead_by_fork() const noexcept { return !client_->alive(); }

lease_state lease_view::state() const noexcept {
  SALLYPORT_CHECK(record_ != nullptr);
  const auto told = [this] {
    switch (record_->state.load()) {
      case lease_record::phase::held:
        return lease_state::held;
      case lease_record::phase::suspect:
        return lease_state::suspect;
      case lease_record::phase::lost:
        return lease_state::lost;
      case lease_record::phase::released:
        return lease_state::released;
    }
    return lease_state::lost;
  };
  const lease_state first = told();
  if (first == lease_state::lost || first == lease_state::released) return first;
  if (dead_by_fork()) return lease_state::lost;
  if (lease_clock::now() < record_->deadline.load()) return first;
  // Past the deadline, though the watchdog has not come round to it. Whether a renewal made it just
  // in time is for the engine to say, so that nobody who was told "lost" is told "held" later.
  client_->engine().settle(*record_);
  return told();
}

bool lease_view::valid() const noexcept {
  const lease_state now = state();
  return now == lease_state::held || now == lease_state::suspect;
}

lease_clock::time_point lease_view::deadline() const noexcept { return record_->deadline.load(); }

std::chrono::milliseconds lease_view::length() const noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(record_->spec->times.lease_length);
}

std::stop_token lease_view::lost() const {
  if (dead_by_fork()) {
    std::stop_source fired;
    fired.request_stop();
    return fired.get_token();
  }
  return client_->engine().lost_token(*record_);
}

bool lease_view::release_wanted() const noexcept { return record_->release_wanted.load(); }

bool lease_view::fenced() const noexcept {
  return record_->spec->kind != lock_kind::semaphore && client_->can().fencing;
}

fencing_token lease_view::token() const {
  if (!fenced()) {
    throw lock_error(make_error_code(errc::no_fencing),
                     "the grant of '" + name().text() +
                         "' carries no fencing token: a semaphore's permit, or a store that does "
                         "not promise them");
  }
  return record_->token;
}

lock_mode lease_view::mode() const noexcept { return record_->mode.load(); }

const lock_name& lease_view::name() const noexcept { return record_->spec->name; }

fence::pass lease_view::fence_pass() const {
  return {*record_->store_id + '|' + name().text(), token(), mode()};
}

std::optional<store_entry> lease_view::entry() const {
  if (dead_by_fork()) return std::nullopt;
  const auto holder = client_->engine().holder_of(*record_);
  return holder ? client_->store().entry_of(*holder) : std::nullopt;
}

void lease_view::ensure_valid() const {
  if (!valid()) {
    throw lock_error(make_error_code(errc::lease_lost),
                     "the lease on '" + name().text() + "' is " + std::string(to_string(state())));
  }
}

lease::lease(std::shared_ptr<detail::client_state> client, std::shared_ptr<lease_record> record,
             std::shared_ptr<detail::entry> entry) noexcept
    : lease_view(std::move(client), std::move(record)), entry_(std::move(entry)) {}

lease& lease::operator=(lease&& other) noexcept {
  if (this != &other) {
    lease old = std::move(*this);  // released when it goes out of scope
    entry_ = std::move(other.entry_);
    lease_view::operator=(std::move(other));
  }
  return *this;
}

lease::~lease() {
  if (!record_) return;
  const auto state = record_->state.load();
  const bool ended = state == lease_record::phase::released || state == lease_record::phase::lost;
  if (!ended || entry_) static_cast<void>(release());
}

release_result lease::release() noexcept {
  SALLYPORT_CHECK(record_ != nullptr);
  if (!entry_) return client_->release(*record_);
  // The grant goes on for the other entries; this lease alone is over.
  const auto entry = std::move(entry_);
  lease_record& mine = entry->after();
  const bool was_valid = valid();
  const release_result result =
      dead_by_fork() ? release_result::already_lost : entry->grant().leave();
  mine.state.store(was_valid ? lease_record::phase::released : lease_record::phase::lost);
  mine.deadline.store(record_->deadline.load());
  mine.release_wanted.store(record_->release_wanted.load());
  record_ = std::shared_ptr<lease_record>(entry, &mine);
  return was_valid ? result : release_result::already_lost;
}

void lease::confirm() noexcept {
  SALLYPORT_CHECK(record_ != nullptr);
  if (!dead_by_fork()) client_->claim(*record_);
}

void lease::downgrade(std::error_code& error) noexcept { client_->downgrade(*record_, error); }

void lease::downgrade() {
  std::error_code error;
  downgrade(error);
  if (error) detail::throw_failure(error);
}

}  // namespace sallyport

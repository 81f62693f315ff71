#pragma once

#include "backends/local/lock_rules.hpp"
#include "base/check.hpp"
#include "base/planted.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The inside of lock_rules: what one operation does to the records of one name. Nobody else
// includes this.
namespace sallyport::backends::local {

/// What a transaction fails with when a record is not what was written.
[[nodiscard]] base::failure damaged(std::string_view what);

inline constexpr std::int64_t never_lapses = time_point::max().time_since_epoch().count();

/// Of such a lock there is at most one holder, which stands in the lock's own record.
[[nodiscard]] inline bool one_holder_at_most(lock_kind kind) noexcept {
  return kind == lock_kind::mutex || kind == lock_kind::election;
}

[[nodiscard]] inline bool sound(const lock_record& one) noexcept {
  return one.kind <= lock_kind::election && one.barring <= one.holders;
}
[[nodiscard]] inline bool sound(const holding_record& one) noexcept {
  return one.mode <= lock_mode::shared;
}
[[nodiscard]] inline bool sound(const ticket_record& one) noexcept {
  return one.mode <= lock_mode::shared;
}

/// One operation on one name, from its look-up to its end: then what changed is written back, a
/// name without content leaves the table, and watchers are told once, however much changed.
class lock_rules::operation {
 public:
  struct placed_ticket {
    contender_number number;
    ticket_record record;
  };

  operation(lock_rules& rules, std::string_view name)
      : rules_(rules), name_(name), key_(record_key::lock(name)) {
    const auto value = records().get(key_);
    if (!value) return;
    in_table_ = true;
    read(*value);
  }
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;
  ~operation() {
    if (changed_) tell_watchers();
    if (unserved_) rules_.unserved_.emplace_back(name_);
    write_back();
  }

  [[nodiscard]] lock_record& lock() noexcept { return lock_; }
  [[nodiscard]] bool in_use() const noexcept { return lock_.holders > 0 || lock_.waiters > 0; }
  [[nodiscard]] time_point now() const noexcept { return rules_.world_.now; }
  [[nodiscard]] bool compatible(lock_mode mode) const noexcept {
    switch (lock_.kind) {
      case lock_kind::mutex:
      case lock_kind::election:
        return lock_.holders == 0;
      case lock_kind::shared_mutex:
        return mode == lock_mode::shared ? lock_.barring == 0 : lock_.holders == 0;
      case lock_kind::semaphore:
        return lock_.holders < lock_.permits;
    }
    SALLYPORT_CHECK(false);
  }
  /// Somebody stands in the way of one more contender of this mode.
  [[nodiscard]] bool barred(lock_mode mode) const noexcept {
    return lock_.waiters > 0 || !compatible(mode);
  }

  void begin_use(lock_kind kind, std::uint32_t permits) {
    lock_ = {};
    lock_.kind = kind;
    lock_.permits = kind == lock_kind::semaphore ? std::max(permits, 1U) : 1U;
    lock_.may_lapse_at = never_lapses;
    dirty_ = true;
  }

  // Holders.
  std::optional<holding_record> find_holder(contender_number number, const holder_id& id);
  void add_holder(const holding_record& added, std::string_view value);
  void save_holder(const holding_record& one);
  /// Without serving the queue.
  void drop_holder(const holding_record& one);
  template <class Visit>  // bool visit(const holding_record&): go on?
  void for_each_holder(Visit visit);
  [[nodiscard]] std::string& sole_value() noexcept { return sole_value_; }

  // The queue.
  std::optional<placed_ticket> find_live_ticket(contender_number number, const holder_id& id);
  contender_number enqueue(const ticket_record& added, std::string_view value);
  void save_ticket(const placed_ticket& one);
  void drop_ticket(contender_number number);
  std::optional<placed_ticket> first_ticket() {
    return ticket_at(records().at_or_after(record_key::ticket(name_)));
  }
  std::optional<placed_ticket> ticket_after(contender_number number) {
    return ticket_at(records().at_or_after(record_key::ticket(name_, number + 1)));
  }
  std::optional<placed_ticket> ticket_before(contender_number number) {
    return ticket_at(records().before(record_key::ticket(name_, number)));
  }

  void settle();
  /// Removes dead holders, from up to `limit`, and serves those in the queue who live.
  void clear_dead(client_number asker, std::size_t limit = most_holders_watched);
  void serve(bool looking_for_dead = false);
  /// The queue was not served to its end.
  [[nodiscard]] bool unserved() const noexcept { return unserved_; }
  /// Tells those once more who may not have been told, because who should have died before it could.
  void remind();
  void mark_changed() noexcept { changed_ = true; }
  /// The counts of lock() were changed from outside.
  void rewrite() noexcept { dirty_ = true; }
  void tell(client_number client, notice_kind kind, const holder_id& id) {
    rules_.world_.notices.push_back({client, kind, id, std::nullopt, {}});
  }
  void tell_to_look(const std::optional<placed_ticket>& one) {
    if (base::planted(base::defect::look_not_sent)) return;
    if (one) tell(one->record.client, notice_kind::look, one->record.id);
  }

  /// What a waiter is answered, after those who died before it are gone; nothing when that made it
  /// a holder. `looked`: dead holders were cleared just now.
  std::optional<backend_api::waiting> wait(contender_number number, const ticket_record& mine,
                                           duration ticket_length, bool looked,
                                           std::vector<client_number>& in_the_way);

 private:
  table& records() noexcept { return rules_.world_.records; }
  bool dead(client_number client) { return rules_.world_.kernel.dead(client, records()); }
  void read(std::string_view value);
  void write_back();
  void hand_over(const placed_ticket& next);
  void tell_watchers();
  time_point entry_by_lapse(lock_mode mode);
  std::optional<placed_ticket> ticket_at(const std::optional<table::entry>& found);
  /// Whether anybody at all could enter now.
  [[nodiscard]] bool open_to_somebody() const noexcept {
    return compatible(lock_.kind == lock_kind::shared_mutex ? lock_mode::shared
                                                            : lock_mode::exclusive);
  }
  static bool barring(const holding_record& one) noexcept {
    return one.tombstone != 0 || one.mode == lock_mode::exclusive;
  }

  lock_rules& rules_;
  const std::string_view name_;
  const record_key key_;
  lock_record lock_;
  std::optional<holding_record> sole_;  // the holder of a mutex or election
  std::string sole_value_;
  bool in_table_ = false;
  bool dirty_ = false;
  bool changed_ = false;
  bool unserved_ = false;
};

template <class Visit>
void lock_rules::operation::for_each_holder(Visit visit) {
  if (one_holder_at_most(lock_.kind)) {
    if (sole_) visit(holding_record{*sole_});
    return;
  }
  const record_key first = record_key::holder(name_);
  auto at = records().at_or_after(first);
  while (at && at->key.starts_with(first.range())) {
    const auto one = read_record<holding_record>(at->value);
    if (!one || !sound(*one)) {
      records().fail(damaged("a holder's record"));
      return;
    }
    const contender_number number = number_of(at->key);
    if (!visit(*one)) return;
    at = records().at_or_after(record_key::holder(name_, number + 1));
  }
}

}  // namespace sallyport::backends::local

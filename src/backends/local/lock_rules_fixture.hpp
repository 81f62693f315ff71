#pragma once

#include "backends/local/lock_rules.hpp"
#include "backends/local/map_table.hpp"
#include "base/check.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::local {

/// What a test asks for; everything else is the fixture's.
struct wish {
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  duration lease_length = std::chrono::seconds{30};
  duration claim_window = std::chrono::seconds{3};
  duration ticket_length = std::chrono::seconds{12};
  bool may_wait = true;
  std::uint32_t permits = 1;
  std::uint32_t token_count = 1;
  std::uint32_t local_waiters = 0;
  std::string_view value = {};
};

/// The kernel, as the test wants it.
class told_liveness final : public liveness {
 public:
  bool dead(client_number who, table& inside) override {
    ++asked;
    return !inside.get(record_key::client(who)) || dead_ones.contains(who);
  }
  std::set<client_number> dead_ones;
  std::uint64_t asked = 0;
};

/// The disk, as the test wants it.
class told_reserve final : public token_reserve {
 public:
  base::result<std::uint64_t> reserve(std::uint64_t beyond) override {
    if (failing) return base::fail(errc::store_refused, "the disk is full");
    durable = std::max(durable, beyond) + block;
    return durable;
  }
  std::uint64_t durable = 0;
  std::uint64_t block = 100;
  bool failing = false;
};

/// The rules over records in memory, with a clock that the test moves. A contender is a small
/// number, its holder id; it belongs to the client of the same number unless enrol() said
/// otherwise. Keeps, as a session does, what each contender was told. Every operation clears
/// `notices` first and is a transaction of its own; all but looks audit the records afterwards.
class hand_driven_rules {
 public:
  /// What a session remembers of a contender.
  struct contender {
    client_number client = 0;
    contender_number number = 0;
    std::vector<client_number> in_the_way{};
    bool told_to_look = false;  ///< since it asked for the last time
  };

  explicit hand_driven_rules(std::uint64_t floor = 0) {
    reserve.durable = floor;
    map_table fresh(records);
    lock_rules::initialise(fresh, floor);
    fresh.commit();
  }

  /// Makes this contender one of the client that has another contender.
  void enrol(std::uint64_t who, std::uint64_t beside) { of(who).client = of(beside).client; }
  client_number client_of(std::uint64_t who) { return of(who).client; }
  /// The whole process of this contender is killed.
  void kill(std::uint64_t who) { kernel.dead_ones.insert(client_of(who)); }

  base::result<backend_api::acquire_answer> acquire(std::uint64_t who, const lock_name& name,
                                                    const wish& w = {}) {
    contender& mine = asks(who);
    auto answer = transact([&](lock_rules& rules) {
      return rules.acquire(
          {name, w.kind, w.mode, id(who), w.lease_length, w.claim_window, w.ticket_length,
           w.may_wait, w.permits, w.token_count, w.local_waiters, w.value, now},
          mine.client, mine.number);
    });
    if (!answer) return tl::unexpected(answer.error());
    if (!*answer) return tl::unexpected(answer->error());
    remember(mine, **answer);
    audit();
    return (*answer)->answer;
  }
  base::result<backend_api::renew_answer> renew(std::uint64_t who, const lock_name& name,
                                                const wish& w = {}, std::uint32_t token_count = 0) {
    contender& mine = asks(who);
    auto answer = transact([&](lock_rules& rules) {
      return rules.renew(renewal(who, name, w, token_count), mine.number);
    });
    if (!answer) return tl::unexpected(answer.error());
    remember(mine, *answer);
    audit();
    return answer->answer;
  }
  base::result<backend_api::renew_answer> downgrade(std::uint64_t who, const lock_name& name,
                                                    const wish& w) {
    const contender_number known = of(who).number;
    auto answer = transact(
        [&](lock_rules& rules) { return rules.downgrade(renewal(who, name, w, 0), known); });
    if (!answer) return tl::unexpected(answer.error());
    audit();
    if (!*answer) return tl::unexpected(answer->error());
    return (*answer)->answer;
  }
  base::result<backend_api::leave_answer> release(std::uint64_t who, const lock_name& name,
                                                  const wish& w = {}) {
    return leave(who, name, w, &lock_rules::release);
  }
  base::result<backend_api::leave_answer> withdraw(std::uint64_t who, const lock_name& name,
                                                   const wish& w = {}) {
    return leave(who, name, w, &lock_rules::withdraw);
  }
  base::result<bool> set_value(std::uint64_t who, const lock_name& name, std::string_view value) {
    const contender_number known = of(who).number;
    return audited(transact([&](lock_rules& rules) {
      return rules.set_value(renewal(who, name, {}, 0), value, known);
    }));
  }
  base::result<std::monostate> break_lock(const lock_name& name, fencing_token observed,
                                          backend_api::break_mode mode) {
    auto answer = audited(
        transact([&](lock_rules& rules) { return rules.break_lock(name, observed, mode); }));
    if (!answer) return tl::unexpected(answer.error());
    return *answer;
  }
  std::optional<lock_info> who(const lock_name& name) {
    return *transact([&](lock_rules& rules) { return rules.who(name); });
  }
  std::vector<std::string> list(std::string_view prefix, std::string_view after,
                                std::size_t limit) {
    std::vector<std::string> names;
    const auto page = transact([&](lock_rules& rules) { return rules.list(prefix, after, limit); });
    for (const lock_info& each : *page) names.push_back(each.name);
    return names;
  }
  void watch(std::uint64_t who, const lock_name& name, bool on) {
    const client_number client = of(who).client;
    (void)audited(transact([&](lock_rules& rules) {
      rules.watch(client, name, on);
      return true;
    }));
  }
  void serve_on(std::string_view name) {
    (void)audited(transact([&](lock_rules& rules) {
      rules.serve_on(name);
      return true;
    }));
  }
  std::optional<std::string> sweep(std::string_view after = {}, std::size_t limit = 1000) {
    return *audited(transact([&](lock_rules& rules) { return rules.sweep(after, limit); }));
  }
  /// What a session does about a client that died or was closed.
  bool bury(client_number client) {
    const bool there = *transact([&](lock_rules& rules) { return rules.remove_client(client); });
    const std::vector<notice> before = notices;
    sweep();
    notices.insert(notices.begin(), before.begin(), before.end());
    return there;
  }
  std::vector<client_number> dead_clients(std::uint64_t random, std::size_t limit) {
    std::vector<client_number> found;
    const auto some =
        *transact([&](lock_rules& rules) { return rules.some_clients(random, limit); });
    for (const listed_client& each : some) {
      if (kernel.dead_ones.contains(each.number)) found.push_back(each.number);
    }
    std::ranges::sort(found);
    return found;
  }

  template <class Operate>
  auto transact(Operate operate) -> base::result<std::invoke_result_t<Operate&, lock_rules&>> {
    notices.clear();
    map_table inside(records);
    lock_rules rules({inside, kernel, reserve, now, notices, "here", most_waiters});
    auto answer = operate(rules);
    rules.finish();
    unserved = rules.unserved();
    ask_again = rules.ask_again();
    if (inside.failed()) {
      notices.clear();
      return tl::unexpected(*inside.why_failed());
    }
    SALLYPORT_CHECK(rules.changed_anything() || !inside.changed());
    inside.commit();
    hear();
    return answer;
  }

  void pass(duration span) { now += span; }
  /// Without telling anybody; for tests that spoil records.
  [[nodiscard]] std::size_t count(char sort) const {
    const std::string next(1, static_cast<char>(sort + 1));
    return static_cast<std::size_t>(
        std::distance(records.lower_bound(std::string(1, sort)), records.lower_bound(next)));
  }
  [[nodiscard]] meta_record meta() const {
    return *read_record<meta_record>(records.at(std::string(record_key::meta())));
  }
  contender& of(std::uint64_t who) {
    contender& one = contenders[who];
    if (one.client != 0) return one;
    client_record process;
    process.process = {static_cast<std::int64_t>(who), 1};
    map_table inside(records);
    lock_rules rules({inside, kernel, reserve, now, notices, "here"});
    one.client = rules.add_client(process, "job");
    rules.finish();
    inside.commit();
    return one;
  }

  /// Aborts when the records contradict each other, or somebody who waits would not hear of the
  /// death of one who stands in its way.
  void audit();

  static holder_id id(std::uint64_t who) { return {1, who}; }

  map_records records;
  told_liveness kernel;
  told_reserve reserve;
  time_point now = time_point(std::chrono::hours{1});
  std::vector<notice> notices;
  std::size_t most_waiters = most_waiters_at_once;
  std::vector<std::string> unserved;  ///< of the last transaction
  bool ask_again = false;             ///< of the last transaction
  std::map<std::uint64_t, contender> contenders;

 private:
  static backend_api::renew_request renewal(std::uint64_t who, const lock_name& name, const wish& w,
                                            std::uint32_t token_count) {
    return {name, w.kind, w.mode, id(who), w.lease_length, token_count, w.local_waiters, {}};
  }
  contender& asks(std::uint64_t who) {
    contender& mine = of(who);
    mine.told_to_look = false;
    return mine;
  }
  template <class Answer>
  static void remember(contender& mine, const placed<Answer>& told) {
    if (told.number == 0) return;
    mine.number = told.number;
    mine.in_the_way = told.in_the_way;
  }
  void hear() {
    for (const notice& each : notices) {
      if (each.kind != notice_kind::look && each.kind != notice_kind::granted) continue;
      const auto found = contenders.find(each.holder.low);
      if (found != contenders.end()) found->second.told_to_look = true;
    }
  }
  template <class Leave>
  base::result<backend_api::leave_answer> leave(std::uint64_t who, const lock_name& name,
                                                const wish& w, Leave member) {
    contender& mine = of(who);
    auto answer = audited(transact([&](lock_rules& rules) {
      return (rules.*member)({name, w.kind, w.mode, id(who), now}, mine.number);
    }));
    if (answer) {
      mine.number = 0;
      mine.in_the_way.clear();
    }
    return answer;
  }
  template <class Answer>
  Answer audited(Answer answer) {
    audit();
    return answer;
  }
  void audit_name(const std::string& name, const lock_record& lock,
                  const std::vector<holding_record>& holders);
};

inline void hand_driven_rules::audit() {
  const meta_record all = meta();
  SALLYPORT_CHECK(all.last_token <= all.reserved_token && all.reserved_token <= reserve.durable);
  SALLYPORT_CHECK(count('W') == all.watches);
  std::size_t holders_seen = 0;
  std::size_t tickets_seen = 0;
  for (auto each = records.lower_bound("L"); each != records.end() && each->first[0] == 'L';
       ++each) {
    const auto& [key, value] = *each;
    const std::string name = key.substr(1);
    const lock_record lock = *read_record<lock_record>(value);
    std::vector<holding_record> holders;
    if (lock.kind == lock_kind::mutex || lock.kind == lock_kind::election) {
      if (lock.holders > 0) {
        holders.push_back(
            *read_record<holding_record>(std::string_view(value).substr(sizeof(lock_record))));
      }
    } else {
      const record_key first = record_key::holder(name);
      for (auto at = records.lower_bound(std::string_view(first));
           at != records.end() && at->first.starts_with(first.range()); ++at) {
        holders.push_back(*read_record<holding_record>(at->second));
        SALLYPORT_CHECK(holders.back().number == number_of(at->first));
        ++holders_seen;
      }
    }
    tickets_seen += lock.waiters;
    audit_name(name, lock, holders);
  }
  SALLYPORT_CHECK(holders_seen == count('H'));
  SALLYPORT_CHECK(tickets_seen == count('Q'));
}

inline void hand_driven_rules::audit_name(const std::string& name, const lock_record& lock,
                                          const std::vector<holding_record>& holders) {
  const meta_record all = meta();
  SALLYPORT_CHECK(lock.holders > 0 || lock.waiters > 0);
  SALLYPORT_CHECK(lock.holders == holders.size());
  std::uint32_t barring = 0;
  for (const holding_record& each : holders) {
    SALLYPORT_CHECK(each.expiry >= lock.may_lapse_at);
    SALLYPORT_CHECK(each.number > 0 && each.number <= all.last_number);
    SALLYPORT_CHECK(each.first_token > 0 && each.first_token <= each.last_token);
    SALLYPORT_CHECK(each.last_token <= all.last_token);
    SALLYPORT_CHECK((each.tombstone != 0) == (each.id == holder_id{}));
    if (each.tombstone != 0 || each.mode == lock_mode::exclusive) ++barring;
  }
  SALLYPORT_CHECK(barring == lock.barring);
  switch (lock.kind) {
    case lock_kind::mutex:
    case lock_kind::election:
      SALLYPORT_CHECK(holders.size() <= 1);
      break;
    case lock_kind::shared_mutex: {
      const auto writers = std::ranges::count(holders, lock_mode::exclusive, &holding_record::mode);
      SALLYPORT_CHECK(writers == 0 || holders.size() == 1);
      break;
    }
    case lock_kind::semaphore:
      SALLYPORT_CHECK(holders.size() <= lock.permits);
      break;
  }

  // Who watches whom: everybody the one before, the first all holders.
  const record_key first = record_key::ticket(name);
  std::vector<client_number> before;
  for (const holding_record& each : holders) {
    if (each.tombstone == 0) before.push_back(each.client);
  }
  std::uint64_t waiters = 0;
  for (auto at = records.lower_bound(std::string_view(first));
       at != records.end() && at->first.starts_with(first.range()); ++at) {
    ++waiters;
    const ticket_record ticket = *read_record<ticket_record>(at->second);
    const auto found = contenders.find(ticket.id.low);
    SALLYPORT_CHECK(found != contenders.end());
    const contender& mine = found->second;
    const bool lives = time_of(ticket.lapses) > now && mine.number == number_of(at->first);
    if (lives && !mine.told_to_look) {
      for (const client_number each : before) {
        SALLYPORT_CHECK(each == ticket.client ||
                        std::ranges::find(mine.in_the_way, each) != mine.in_the_way.end());
      }
    }
    before = {ticket.client};
  }
  SALLYPORT_CHECK(waiters == lock.waiters);
}

}  // namespace sallyport::backends::local

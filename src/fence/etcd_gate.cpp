#include "fence/door.hpp"
#include "fence/gate_state.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_etcd.hpp>

#include <utility>

namespace sallyport::fence {
namespace {

using field = etcd_compare::field;
using relation = etcd_compare::relation;
using operations = std::vector<etcd_operation>;

/// etcd compares values as strings of bytes: of one width, digits order as numbers do.
std::string digits_of(std::uint64_t number) {
  constexpr std::size_t width = 20;
  const std::string digits = std::to_string(number);
  return std::string(width - digits.size(), '0') + digits;
}

/// The first string behind `text`: "less than it" means "not greater than `text`".
std::string behind(std::string text) { return std::move(text) + '\0'; }

/// The keys of a gate.
struct places {
  explicit places(const std::string& key)
      : lock(key + "/lock"), exclusive(key + "/exclusive"), shared(key + "/shared") {}

  [[nodiscard]] bool have(const std::string& key) const {
    return key == lock || key == exclusive || key == shared;
  }

  const std::string lock;
  const std::string exclusive;
  const std::string shared;
};

etcd_compare compare(const std::string& key, relation is, std::string value) {
  return {.what = field::value, .is = is, .key = key, .value = std::move(value), .number = 0};
}

etcd_compare missing(const std::string& key) {
  return {.what = field::version, .is = relation::equal, .key = key, .value = {}, .number = 0};
}

etcd_operation put(const std::string& key, std::string value) {
  return {.does = etcd_operation::kind::put, .key = key, .value = std::move(value)};
}

etcd_operation txn(std::vector<etcd_compare> when, operations then) {
  return {.does = etcd_operation::kind::txn,
          .key = {},
          .value = {},
          .when = std::move(when),
          .then = std::move(then)};
}

/// What passes when the gate's keys are there.
etcd_operation over_numbers(const places& at, const pass& shown) {
  const std::string token = digits_of(shown.token.value());
  const etcd_compare same_lock = compare(at.lock, relation::equal, shown.lock);
  const etcd_compare none_newer = compare(at.exclusive, relation::less, behind(token));
  const etcd_compare raises = compare(at.shared, relation::less, token);
  if (shown.mode == lock_mode::exclusive) {
    return txn({same_lock, none_newer, raises}, {put(at.exclusive, token)});
  }
  // The third asks for nothing but that the key is there: a gate that lost it would let readers pass
  // without remembering them.
  return txn({same_lock, none_newer, compare(at.shared, relation::greater, {})},
             {txn({raises}, {put(at.shared, token)})});
}

/// The first that ever passes: none of the gate's keys is there.
etcd_operation binding(const places& at, const pass& shown) {
  const bool writes = shown.mode == lock_mode::exclusive;
  const std::string token = digits_of(shown.token.value());
  return txn({missing(at.lock), missing(at.exclusive), missing(at.shared)},
             {put(at.lock, shown.lock), put(at.exclusive, writes ? token : digits_of(0)),
              put(at.shared, writes ? digits_of(0) : token)});
}

base::result<void> check_operations(const places& at, const operations& all) {
  for (const etcd_operation& each : all) {
    if (each.does == etcd_operation::kind::txn) {
      if (auto checked = check_operations(at, each.then); !checked) return checked;
      if (auto checked = check_operations(at, each.otherwise); !checked) return checked;
    } else if (each.key.empty()) {
      return base::fail(errc::bad_option, "fencing gate: a guarded operation has no key");
    } else if (at.have(each.key)) {
      return base::fail(errc::bad_option,
                        "fencing gate: a guarded operation uses the gate's own key " + each.key);
    }
  }
  return {};
}

}  // namespace

std::vector<etcd_compare> still_holds(const store_entry& grant) {
  // Whoever breaks a lock puts a tombstone in the holder's key: the same key, on another lease.
  return {{.what = field::created, .key = grant.key, .value = {}, .number = grant.created},
          {.what = field::lease, .key = grant.key, .value = {}, .number = grant.lease}};
}

etcd_gate::etcd_gate(std::string key, std::string lock)
    : key_(std::move(key)), lock_(std::move(lock)) {
  if (key_.empty()) throw lock_error(errc::bad_option, "fencing gate: its key in etcd is empty");
  if (!lock_.empty()) value_or_throw(check_lock(lock_));
}

etcd_operation etcd_gate::transaction(const pass& shown,
                                      const std::vector<etcd_operation>& guarded) const {
  value_or_throw(check_pass(shown));
  const places at{key_};
  value_or_throw(check_operations(at, guarded));

  etcd_operation usual = over_numbers(at, shown);
  etcd_operation first = binding(at, shown);
  // The last does nothing: it tells why.
  etcd_operation why = txn({compare(at.lock, relation::equal, shown.lock)}, {});
  if (!lock_.empty() && shown.lock != lock_) {
    // A version is never below zero: nothing passes a gate that was made for another lock.
    const etcd_compare never{
        .what = field::version, .is = relation::less, .key = at.lock, .value = {}, .number = 0};
    for (etcd_operation* each : {&usual, &first, &why}) each->when = {never};
  }
  usual.then.insert(usual.then.end(), guarded.begin(), guarded.end());
  first.then.insert(first.then.end(), guarded.begin(), guarded.end());
  first.otherwise.push_back(std::move(why));
  usual.otherwise.push_back(std::move(first));
  return usual;
}

etcd_operation etcd_gate::rebind(const std::string& from, const pass& shown, rebinding kind) const {
  value_or_throw(check_rebinding(from, shown));
  const places at{key_};
  const std::string token = digits_of(shown.token.value());
  etcd_operation usual = over_numbers(at, shown);  // it was bound so before
  const etcd_compare bound = compare(at.lock, relation::equal, from);
  etcd_operation anew = txn({bound, compare(at.exclusive, relation::less, behind(token)),
                             compare(at.shared, relation::less, token)},
                            {put(at.lock, shown.lock), put(at.exclusive, token)});
  if (kind == rebinding::restarts_numbers) {
    anew = txn({bound},
               {put(at.lock, shown.lock), put(at.exclusive, token), put(at.shared, digits_of(0))});
  }
  // These do nothing: they tell why. Stale, if it is bound to either.
  etcd_operation stale = txn({bound}, {});
  stale.otherwise.push_back(txn({compare(at.lock, relation::equal, shown.lock)}, {}));
  anew.otherwise.push_back(std::move(stale));
  usual.otherwise.push_back(std::move(anew));
  return usual;
}

verdict etcd_gate::verdict_of(const std::vector<bool>& succeeded) {
  if (!succeeded.empty() && succeeded[0]) return verdict::passed;
  if (succeeded.size() > 1 && succeeded[1]) return verdict::passed;
  if (succeeded.size() > 2) {
    const bool bound = succeeded[2] || (succeeded.size() > 3 && succeeded[3]);
    return bound ? verdict::stale : verdict::wrong_lock;
  }
  throw lock_error(errc::store_refused,
                   "fencing gate: the answer of etcd is not that to a gate's transaction");
}

}  // namespace sallyport::fence

#include "backends/etcd/contention.hpp"
#include "base/planted.hpp"

#include <algorithm>
#include <utility>

// The transactions of one contender: what each asks. Their answers are in contention_answers.cpp.
namespace sallyport::backends::etcd {

namespace {

/// For steps that no request waits for.
constexpr duration own_patience = std::chrono::seconds{2};

}  // namespace

time_point contention::patience(const contender& who, time_point now) const {
  if (who.asked) return who.asked->answer_by;
  if (who.renew) return who.renew->answer_by;
  return now + own_patience;
}

void contention::send(contender& who, step what, txn order, time_point answer_by, actions& out) {
  who.doing = what;
  const errand_number number = next_errand_++;
  errands_.emplace(
      number,
      errand{.holder = who.id, .then = order.then.size(), .otherwise = order.otherwise.size()});
  out.emplace_back(txn_order{number, std::move(order), answer_by});
}

std::vector<condition> contention::mine(const contender& who) const {
  // The lease tells the key from a tombstone that somebody has put in its place.
  return {{.what = condition::field::created, .number = who.created, .key = who.key},
          {.what = condition::field::lease, .number = who.lease, .key = who.key}};
}

void contention::append_first_puts(const contender& who, bool inside,
                                   std::vector<operation>& to) const {
  if (who.what == form::election) to.emplace_back(put{who.key, who.value, who.lease});
  append_puts(who, inside, true, to);
}

void contention::append_puts(const contender& who, bool inside, bool draws,
                             std::vector<operation>& to) const {
  description said = who.card;
  said.held = inside;
  said.token = draws || who.is != phase::held ? 0 : static_cast<std::uint64_t>(who.token);
  if (who.what == form::election) {
    to.emplace_back(put{how_.keys.card(who.key), to_json(said), who.lease});
  } else {
    to.emplace_back(put{who.key, to_json(said), who.lease});
  }
}

void contention::enter(contender& who, time_point now, actions& out) {
  if (who.lease == 0 || lease_of(who) == nullptr) attach(who, now, who.asked->answer_by, out);
  const lease_state* const lease = lease_of(who);
  if (lease->is == lease_state::phase::granting) return;  // goes on when it is there
  if (who.key_spent) {
    if (who.doubtful) retire(who.lease, who.key);
    choose_key(who);
  }
  // One that is half over is kept alive at the same time.
  if (!fresh_enough(who, now)) keep(who.lease, now, out);

  who.is = phase::outside;
  who.created = 0;
  who.poked = who.recheck = false;
  who.before.clear();
  const look_up others{.key = who.folder,
                       .end = who.folder_end,
                       .limit = page_for(who.what, who.permits),
                       .youngest_first = true};
  const look_up own{.key = who.key, .keys_only = true};
  who.first_try = !who.doubtful;
  txn order;
  if (who.first_try) {
    // In, if nobody is there; else in line, or, for those who do not want to wait, not at all.
    order.when = {{.what = condition::field::created, .key = who.folder, .end = who.folder_end}};
    append_first_puts(who, true, order.then);
    if (who.asked->may_wait) {
      append_first_puts(who, false, order.otherwise);
      // An earlier try may have put it already, and somebody a tombstone in its place.
      for (operation& each : order.otherwise) std::get<put>(each).only_new = true;
      order.otherwise.emplace_back(own);
    }
    order.otherwise.emplace_back(others);
  } else {
    order.when = {{.what = condition::field::created, .key = who.key}};
    append_first_puts(who, false, order.then);
    order.then.emplace_back(own);
    order.then.emplace_back(others);
    order.otherwise = {own, others};
  }
  const bool only_if_free = who.first_try && !who.asked->may_wait;
  send(who, only_if_free ? step::trying : step::entering, std::move(order), who.asked->answer_by,
       out);
}

void contention::survey(contender& who, revision up_to, time_point now, actions& out) {
  txn order;
  order.then.emplace_back(look_up{.key = who.folder,
                                  .end = who.folder_end,
                                  .limit = page_for(who.what, who.permits),
                                  .created_at_most = up_to,
                                  .youngest_first = true});
  send(who, step::surveying, std::move(order), patience(who, now), out);
}

void contention::join(contender& who, std::uint32_t permits, time_point now, actions& out) {
  who.before.clear();
  who.first_try = false;
  const look_up own{.key = who.key, .keys_only = true};
  const look_up others{.key = who.folder,
                       .end = who.folder_end,
                       .limit = page_for(who.what, std::max(who.permits, permits)),
                       .youngest_first = true};
  txn order;
  order.when = {{.what = condition::field::created, .key = who.key}};
  append_first_puts(who, false, order.then);
  order.then.emplace_back(own);
  order.then.emplace_back(others);
  order.otherwise = {own, others};
  send(who, step::entering, std::move(order), patience(who, now), out);
}

void contention::look(contender& who, time_point now, actions& out) {
  if (who.is == phase::waiting && who.behind.empty()) {
    list(who, 0, now, out);
    return;
  }
  who.recheck = false;
  txn order;
  order.then.emplace_back(look_up{.key = who.key, .keys_only = true});
  if (who.is == phase::waiting) {
    order.then.emplace_back(look_up{.key = who.behind, .keys_only = true});
  }
  send(who, step::looking, std::move(order), patience(who, now), out);
}

void contention::list(contender& who, revision up_to, time_point now, actions& out) {
  if (up_to == 0) {
    who.before.clear();
    who.poked = who.recheck = false;
    up_to = who.created - 1;
  }
  txn order;
  order.then = {look_up{.key = who.key, .keys_only = true},
                look_up{.key = who.folder,
                        .end = who.folder_end,
                        .limit = page_for(who.what, who.permits),
                        .created_at_most = up_to,
                        .youngest_first = true}};
  send(who, step::listing, std::move(order), patience(who, now), out);
}

void contention::confirm(contender& who, time_point now, actions& out) {
  if (base::planted(base::defect::etcd_entry_not_confirmed)) {
    hold(who, who.known + 1, now, out);
    return;
  }
  who.before.clear();
  who.poked = who.recheck = false;
  txn order;
  order.when = mine(who);
  order.when.push_back({.what = condition::field::created,
                        .greater = true,
                        .number = who.created - 1,
                        .key = who.folder,
                        .end = who.folder_end});
  append_puts(who, true, true, order.then);
  order.otherwise = {look_up{.key = who.key, .keys_only = true},
                     look_up{.key = who.folder,
                             .end = who.folder_end,
                             .limit = page_for(who.what, who.permits),
                             .created_at_most = who.created - 1,
                             .youngest_first = true}};
  send(who, step::confirming, std::move(order), patience(who, now), out);
}

void contention::put_description(contender& who, step what, time_point answer_by, actions& out) {
  who.note_due = false;
  txn order;
  order.when = mine(who);
  const bool inside = who.is == phase::held || what == step::crowning;
  append_puts(who, inside, what == step::crowning || what == step::drawing, order.then);
  send(who, what, std::move(order), answer_by, out);
}

void contention::proclaim(contender& who, actions& out) {
  txn order;
  order.when = mine(who);
  order.then = {put{who.key, who.values.front().value, who.lease}};
  send(who, step::proclaiming, std::move(order), who.values.front().answer_by, out);
}

void contention::go(contender& who, step what, time_point answer_by, actions& out) {
  txn order;
  // Whoever does not know its revision never frees its key, so the lease tells enough.
  order.when = mine(who);
  if (who.created == 0) order.when.erase(order.when.begin());
  order.then = {erase{who.key}};
  if (who.what == form::election) order.then.emplace_back(erase{how_.keys.card(who.key)});
  send(who, what, std::move(order), answer_by, out);
}

}  // namespace sallyport::backends::etcd

#include "backends/redlock/membership.hpp"

#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view mark_tag = "sp2";
constexpr std::string_view quiet_tag = "sp2-quiet";
/// Between two attempts to read the others' counters, or to change a mark.
constexpr duration retry_pause = 500ms;
/// So long the others' clocks and ours go together well enough; at the usual drift for milliseconds.
constexpr duration clocks_good_for = 1min;

/// Blank-separated words; an empty last word means that there are too few.
template <std::size_t Count>
std::optional<std::array<std::string_view, Count>> split(std::string_view text) {
  std::array<std::string_view, Count> words;
  for (std::size_t i = 0; i < Count; ++i) {
    const auto end = text.find(' ');
    if ((end == std::string_view::npos) != (i + 1 == Count)) return std::nullopt;
    words[i] = text.substr(0, end);
    if (words[i].empty()) return std::nullopt;
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return words;
}

template <class Number>
bool read_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size();
}

std::int64_t microseconds_of(duration span) {
  return std::chrono::duration_cast<std::chrono::microseconds>(span).count();
}

std::string in_seconds(duration span) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(span).count();
  return std::to_string(std::max<std::int64_t>(whole, 0)) + " s";
}

}  // namespace

std::string node_mark::text() const {
  std::string made(quiet_since_us == 0 ? mark_tag : quiet_tag);
  made += ' ' + store + ' ' + std::to_string(nodes) + ' ' + std::to_string(max_lease.count()) +
          ' ' + run_id;
  if (quiet_since_us != 0) made += ' ' + std::to_string(quiet_since_us);
  return made;
}

std::optional<node_mark> node_mark::parse(std::string_view text) {
  node_mark mark;
  if (text.starts_with(quiet_tag)) {
    const auto last = text.rfind(' ');
    if (last == std::string_view::npos ||
        !read_number(text.substr(last + 1), mark.quiet_since_us) || mark.quiet_since_us == 0) {
      return std::nullopt;
    }
    text = text.substr(0, last);
  }
  const auto words = split<5>(text);
  if (!words || (*words)[0] != (mark.quiet_since_us == 0 ? mark_tag : quiet_tag)) {
    return std::nullopt;
  }
  std::int64_t lease_ms = 0;
  mark.store = (*words)[1];
  mark.run_id = (*words)[4];
  if (!read_number((*words)[2], mark.nodes) || !read_number((*words)[3], lease_ms) ||
      lease_ms <= 0) {
    return std::nullopt;
  }
  mark.max_lease = std::chrono::milliseconds{lease_ms};
  return mark;
}

membership::membership(settings how)
    : how_(std::move(how)), nodes_(how_.names.size()), max_lease_(how_.max_lease) {
  initialising_ = how_.initialise;
}

duration membership::quiet_time() const {
  if (base::planted(base::defect::rejoin_at_once)) return duration::zero();
  // Whoever holds a vote from before has counted its deadline on another clock: a tenth for that.
  return max_lease_ + max_lease_ / 10 + 1s;
}

unsigned membership::how_many(state which) const noexcept {
  return static_cast<unsigned>(std::count_if(nodes_.begin(), nodes_.end(),
                                             [&](const entry& each) { return each.is == which; }));
}

node_set membership::reachable() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < size(); ++i) {
    if (nodes_[i].is != state::unreachable) all |= only(i);
  }
  return all;
}

void membership::expect_all() noexcept {
  for (entry& each : nodes_) each.returning = true;
}

bool membership::majority_may_return() const noexcept {
  const auto hopeful = std::count_if(nodes_.begin(), nodes_.end(), [](const entry& each) {
    return each.is == state::voter || each.is == state::marking ||
           (each.is == state::unreachable && each.returning);
  });
  return static_cast<unsigned>(hopeful) >= majority();
}

bool membership::durable() const noexcept {
  return reachable() != 0 && std::all_of(nodes_.begin(), nodes_.end(), [](const entry& each) {
           return each.is == state::unreachable || each.facts.durable;
         });
}

std::string membership::mark_for(const entry& which, std::uint64_t quiet_since_us) const {
  return node_mark{store_, size(), max_lease_, which.facts.run_id, quiet_since_us}.text();
}

// ---- judging -------------------------------------------------------------------------------------

void membership::find_store() {
  if (count(voters_) >= majority()) return;  // known for good
  std::map<std::string, unsigned> found;
  for (const entry& each : nodes_) {
    if (each.is == state::unreachable) continue;
    const auto mark = node_mark::parse(each.facts.mark);
    if (mark && mark->nodes == size()) ++found[mark->store];
  }
  if (found.empty()) return;
  const auto most = std::max_element(
      found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  store_ = most->first;
  for (const entry& each : nodes_) {
    const auto mark = node_mark::parse(each.facts.mark);
    if (mark && mark->store == store_) max_lease_ = mark->max_lease;
  }
}

unsigned membership::marked() const {
  return static_cast<unsigned>(std::count_if(nodes_.begin(), nodes_.end(), [&](const entry& each) {
    const auto mark = node_mark::parse(each.facts.mark);
    return each.is != state::unreachable && mark && mark->store == store_ &&
           mark->quiet_since_us == 0;
  }));
}

void membership::judge(node_number number, time_point now, actions& out) {
  entry& which = nodes_[number];
  if (which.is == state::unreachable || which.is == state::marking) return;
  const bool again = std::any_of(nodes_.begin(), nodes_.begin() + number, [&](const entry& other) {
    return other.is != state::unreachable && !which.facts.run_id.empty() &&
           other.facts.run_id == which.facts.run_id;
  });
  if (again || which.facts.run_id.empty()) {
    which.is = again ? state::twice : state::stranger;
    return;
  }
  if (which.facts.mark.empty()) {
    if (store_.empty()) {
      which.is = state::unjudged;
    } else if (initialising_ && how_many(state::unreachable) == 0) {
      adopt(number, mark_for(which), 0, true, out);
    } else if (!is_quiet(which)) {
      be_quiet(number, std::nullopt, now, out);
    }
    return;
  }
  const auto mark = node_mark::parse(which.facts.mark);
  if (!mark || mark->store != store_ || mark->nodes != size()) {
    which.is = state::stranger;
  } else if (mark->quiet_since_us != 0) {
    if (initialising_ && how_many(state::unreachable) == 0) {
      adopt(number, mark_for(which), 0, true, out);
    } else if (!is_quiet(which)) {
      be_quiet(number, mark, now, out);
    }
  } else if (mark->run_id == which.facts.run_id) {
    which.is = state::voter;
    which.mark = which.facts.mark;
  } else if (which.facts.durable) {
    // It has restarted, and nothing that it had said was lost.
    adopt(number, mark_for(which), 0, false, out);
  } else {
    // It has restarted, and may have come back with less than it had said.
    if (!is_quiet(which)) be_quiet(number, std::nullopt, now, out);
  }
}

void membership::be_quiet(node_number number, const std::optional<node_mark>& noted, time_point now,
                          actions& out) {
  entry& which = nodes_[number];
  which.is = state::quiet;
  which.quiet_until = time_point::max();
  which.read_at = now;
  if (!clocks_known(now)) return;  // judged anew when they are
  const std::int64_t ours = microseconds_of(now.time_since_epoch());
  // What was noted in an earlier life of the node says nothing about what it did in this one.
  if (noted && noted->run_id == which.facts.run_id) {
    const duration left =
        std::chrono::microseconds{static_cast<std::int64_t>(noted->quiet_since_us) -
                                  (ours + clocks_.least_us)} +
        quiet_time();
    // More than that: the others' clocks were set back meanwhile. What is noted now counts from the
    // latest of them, so it must not be too late for the next look, however far they are apart.
    const duration apart = std::chrono::microseconds{clocks_.most_us - clocks_.least_us};
    if (left <= apart + 2 * quiet_time()) {
      which.quiet_until = now + std::max(left, duration::zero());
      return;
    }
  }
  adopt(number, mark_for(which, static_cast<std::uint64_t>(ours + clocks_.most_us)), 0, false, out);
}

bool membership::clocks_known(time_point now) const noexcept {
  return count(clocks_.read) >= majority() && now - clocks_.asked_at <= clocks_good_for;
}

bool membership::clocks_wanted() const noexcept {
  return unnoted_ones() != 0 && count(voters_) >= majority();
}

void membership::read_clocks_if_needed(time_point now, actions& out) {
  if (!clocks_wanted() || now < clocks_.asked_at + retry_pause) return;
  clocks_ = {.reading = clocks_.reading + 1, .asked_at = now};
  out.read_clocks = voters_;
  out.clock_reading = clocks_.reading;
}

void membership::adopt(node_number number, std::string mark, std::uint64_t floor, bool clock,
                       actions& out) {
  nodes_[number].is = state::marking;
  out.adopt.push_back({number, nodes_[number].facts.mark, std::move(mark), floor, clock});
}

void membership::judge_all(time_point now, actions& out) {
  find_store();
  // Locks may be held by now: whoever has no mark yet goes the long way.
  if (marked() >= majority()) initialising_ = false;
  if (store_.empty() && initialising_) begin_initialising(out);
  for (node_number i = 0; i < size(); ++i) judge(i, now, out);
  recount(now, out);
  read_clocks_if_needed(now, out);
}

void membership::begin_initialising(actions& out) {
  // All of them, or none: a node that is not reachable may have a mark and locks, and one with a
  // mark that says nothing to us belongs to somebody else.
  if (how_many(state::unreachable) + how_many(state::marking) > 0) return;
  std::set<std::string_view> servers;
  for (const entry& each : nodes_) {
    if (!each.facts.mark.empty() || each.facts.run_id.empty()) return;
    if (!servers.insert(each.facts.run_id).second) return;
  }
  // Several clients may be at it: the node whose run id is the smallest decides whose store it is.
  const auto first = std::min_element(
      nodes_.begin(), nodes_.end(),
      [](const entry& a, const entry& b) { return a.facts.run_id < b.facts.run_id; });
  const auto number = static_cast<node_number>(first - nodes_.begin());
  const node_mark mark{how_.fresh_store, size(), max_lease_, first->facts.run_id};
  adopt(number, mark.text(), 0, true, out);
}

void membership::recount(time_point now, actions& out) {
  const node_set before = voters_;
  voters_ = 0;
  for (node_number i = 0; i < size(); ++i) {
    if (nodes_[i].is == state::voter) voters_ |= only(i);
  }
  out.changed = out.changed || voters_ != before;
  if (count(voters_) >= majority()) return;
  // Without a majority we can take nobody in. But another client may have done so before, having
  // seen the node earlier: read what is quiet for us again.
  if (quiet_ones() != 0) retry_at_ = std::min(retry_at_, now + retry_pause);
  if (count(before) < majority()) return;
  majority_lost_at_ = now;
  for (node_number i = 0; i < size(); ++i) {
    if (may_have_a_mark(nodes_[i])) out.read_marks |= only(i);
  }
}

node_set membership::quiet_ones() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < size(); ++i) {
    if (is_quiet(nodes_[i])) all |= only(i);
  }
  return all;
}

node_set membership::unnoted_ones() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < size(); ++i) {
    if (nodes_[i].is == state::quiet && nodes_[i].quiet_until == time_point::max()) all |= only(i);
  }
  return all;
}

bool membership::may_have_a_mark(const entry& which) const noexcept {
  return is_quiet(which) && which.read_at < majority_lost_at_;
}

// ---- events --------------------------------------------------------------------------------------

membership::actions membership::node_up(node_number number, node_facts facts, time_point now) {
  actions out;
  entry& which = nodes_[number];
  which.facts = std::move(facts);
  which.is = state::unjudged;
  doubtful_ &= ~only(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::node_down(node_number number, base::failure why, time_point now) {
  actions out;
  nodes_[number].returning = nodes_[number].is != state::unreachable;
  nodes_[number].is = state::unreachable;
  nodes_[number].why = std::move(why);
  counted_ &= ~only(number);
  doubtful_ &= ~only(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::mark_differs(node_number number, std::string found,
                                             time_point now) {
  actions out;
  entry& which = nodes_[number];
  if (which.is != state::voter || which.mark == found) return out;
  which.facts.mark = std::move(found);
  which.is = state::unjudged;
  judge_all(now, out);
  return out;
}

membership::actions membership::adopted(node_number number, std::string mark, time_point now) {
  actions out;
  entry& which = nodes_[number];
  if (is_quiet(which)) {
    which.read_at = now;
    if (mark == which.facts.mark) return out;
  } else if (which.is != state::marking) {
    return out;
  }
  which.facts.mark = std::move(mark);
  which.is = state::unjudged;
  doubtful_ &= ~only(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::adoption_failed(node_number number, time_point now) {
  if (nodes_[number].is != state::marking) return {};
  // Whether it was done is unknown: its mark is read when it comes back, or again soon. Not at once:
  // a server that refuses to write answers quickly.
  doubtful_ |= only(number);
  retry_at_ = std::min(retry_at_, now + retry_pause);
  return {};
}

membership::actions membership::counter_read(node_number number, std::uint64_t reading,
                                             std::optional<std::uint64_t> value, time_point now) {
  actions out;
  if (reading != reading_ || how_many(state::priming) == 0) return out;
  if (!value) {
    retry_at_ = std::min(retry_at_, now + retry_pause);
    return out;
  }
  counted_ |= only(number);
  largest_counter_ = std::max(largest_counter_, *value);
  if (count(counted_ & voters_) < majority()) return out;
  for (node_number i = 0; i < size(); ++i) {
    if (nodes_[i].is != state::priming) continue;
    const bool forgets = base::planted(base::defect::rejoin_without_counter);
    adopt(i, mark_for(nodes_[i]), forgets ? 0 : largest_counter_, false, out);
  }
  return out;
}

membership::actions membership::clock_read(node_number number, std::uint64_t reading,
                                           std::optional<std::uint64_t> server_us, time_point now) {
  actions out;
  if (reading != clocks_.reading || clocks_known(now) || !server_us) return out;
  // Too long ago to say what time it is now: this client was frozen, and asks again.
  if (now > clocks_.asked_at + retry_pause) return out;
  // It read its clock at some moment between our question and now.
  const auto theirs = static_cast<std::int64_t>(*server_us);
  const std::int64_t least = theirs - microseconds_of(now.time_since_epoch());
  const std::int64_t most = theirs - microseconds_of(clocks_.asked_at.time_since_epoch());
  clocks_.least_us = clocks_.read == 0 ? least : std::min(clocks_.least_us, least);
  clocks_.most_us = clocks_.read == 0 ? most : std::max(clocks_.most_us, most);
  clocks_.read |= only(number);
  if (!clocks_known(now)) return out;
  for_each(unnoted_ones(), [&](node_number each) { nodes_[each].is = state::unjudged; });
  judge_all(now, out);
  return out;
}

void membership::prime(time_point now, actions& out) {
  bool fresh = false;
  for (entry& each : nodes_) {
    if (each.is != state::quiet || now < each.quiet_until) continue;
    each.is = state::priming;
    fresh = true;
  }
  if (how_many(state::priming) == 0) return;
  if (fresh) {
    // What was read before a node had been quiet for long enough does not count for it; nor does
    // what is just being read.
    ++reading_;
    counted_ = 0;
    largest_counter_ = 0;
  }
  if (count(voters_) >= majority()) {
    out.read_counters = voters_ & ~counted_;
    out.reading = reading_;
  } else {
    retry_at_ = std::min(retry_at_, now + retry_pause);
  }
}

membership::actions membership::on_timer(time_point now) {
  actions out;
  if (now >= retry_at_) {
    out.read_marks = doubtful_ | (count(voters_) < majority() ? quiet_ones() : 0);
    retry_at_ = out.read_marks == 0 ? time_point::max() : now + retry_pause;
  }
  read_clocks_if_needed(now, out);
  prime(now, out);
  return out;
}

time_point membership::wake_at() const noexcept {
  time_point next = retry_at_;
  if (clocks_wanted()) next = std::min(next, clocks_.asked_at + retry_pause);
  for (const entry& each : nodes_) {
    if (each.is == state::quiet) next = std::min(next, each.quiet_until);
  }
  return next;
}

// ---- words ---------------------------------------------------------------------------------------

std::vector<std::string> membership::complaints(time_point now) const {
  std::vector<std::string> all;
  for (node_number i = 0; i < size(); ++i) {
    const entry& each = nodes_[i];
    const std::string& name = how_.names[i];
    switch (each.is) {
      case state::voter:
        break;
      case state::unreachable:
        all.push_back(name + " is not reachable" +
                      (each.why.detail.empty() ? "" : " (" + each.why.detail + ")"));
        break;
      case state::unjudged:
        all.push_back(name + " was never initialised, or has lost its data");
        break;
      case state::marking:
        all.push_back(name + " is being taken in");
        break;
      case state::quiet:
      case state::priming:
        all.push_back(
            name + " has lost its data, or is new, and votes again " +
            (each.quiet_until == time_point::max()
                 ? "when the others are there, and so long after that: " + in_seconds(quiet_time())
                 : "in " + in_seconds(each.quiet_until - now)));
        break;
      case state::stranger:
        all.push_back(each.facts.run_id.empty()
                          ? name + " does not tell its run id (the user needs +info)"
                          : name + " belongs to another set of nodes");
        break;
      case state::twice:
        all.push_back(name + " is the same server as another node of the list");
        break;
    }
  }
  return all;
}

base::failure membership::trouble(time_point now) const {
  std::string text = std::to_string(count(voters_)) + " of " + std::to_string(size()) +
                     " nodes may vote, and " + std::to_string(majority()) + " are needed";
  for (const std::string& each : complaints(now)) text += "; " + each;
  const unsigned empty =
      how_many(state::unjudged) + how_many(state::quiet) + how_many(state::priming);
  const unsigned wrong = how_many(state::stranger) + how_many(state::twice);
  const bool sure = std::none_of(nodes_.begin(), nodes_.end(),
                                 [&](const entry& each) { return may_have_a_mark(each); });
  if (empty + majority() > size() && sure) {
    text +=
        ". A majority has no mark: if these nodes are new, or if all holders are gone for longer "
        "than the longest lease, say so with `sallyport init ADDRESS`";
    return {make_error_code(errc::store_refused), std::move(text)};
  }
  if (wrong + majority() > size()) {
    text += ". The list of nodes in the address is not the one that they were initialised with";
    return {make_error_code(errc::store_refused), std::move(text)};
  }
  return {make_error_code(errc::unavailable), std::move(text)};
}

}  // namespace sallyport::backends::redlock

// What people ask of a quorum: list, who, break.
#include "backends/redis/protocol.hpp"
#include "backends/redis/words.hpp"
#include "backends/redlock/session.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::break_mode;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;

namespace {

/// A waiter as one node knows it. When it came, and who it is, are the same on all nodes.
struct ticket {
  std::uint64_t came = 0;
  std::string card;
  waiter_info info;

  friend bool operator<(const ticket& a, const ticket& b) {
    return std::tie(a.came, a.card) < std::tie(b.came, b.card);
  }
};

std::optional<ticket> ticket_in(std::string_view text, std::int64_t now) {
  redis::words record(text);
  ticket found;
  found.came = record.number<std::uint64_t>();
  if (record.number() <= now) return std::nullopt;  // it has lapsed
  record.next();
  record.next();
  record.next();
  found.info.waited = std::chrono::milliseconds{std::max<std::int64_t>(now - record.number(), 0)};
  found.info.local_waiters = record.number<std::uint32_t>();
  found.card = record.rest();
  record.next();
  found.info.pid = record.number();
  found.info.host = redis::text_of(record.next());
  found.info.label = redis::text_of(record.next());
  return found;
}

/// One node's view of a name.
struct view_of_node {
  std::string id;  ///< whose vote it gives; empty: nobody's of ours
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  bool broken = false;
  lock_info info;
  std::vector<ticket> tickets;
};

std::optional<view_of_node> view_in(const reply& said, const std::string& name) {
  auto info = redis::who_answer_of(said, name);
  if (!info || !*info) return std::nullopt;
  view_of_node found;
  found.info = std::move(**info);
  const std::string& value = said.elements[3].text;
  if (value.starts_with("sp2 ")) {
    redis::words record(value);
    record.next();
    record.next();
    found.id = record.next();
    found.first = record.number<std::uint64_t>();
    found.last = record.number<std::uint64_t>();
    found.broken = record.next() == "t";
  }
  for (const reply& each : said.elements[5].elements) {
    if (auto one = ticket_in(each.text, said.elements[0].integer)) {
      found.tickets.push_back(std::move(*one));
    }
  }
  return found;
}

/// All nodes' views together.
struct common_view {
  unsigned members = 0;  ///< of the store, whether they answered or not
  std::vector<std::optional<view_of_node>> nodes;
  unsigned answered = 0;

  /// How many nodes have to say something: a majority, of which some may be among those that said
  /// nothing at all.
  [[nodiscard]] unsigned enough(unsigned majority) const {
    const unsigned silent = members - std::min(answered, members);
    return silent < majority ? majority - silent : 1;
  }

  /// The id that most nodes vote for; of their views the one with the largest token.
  [[nodiscard]] const view_of_node* holder(unsigned majority) const {
    std::map<std::string, unsigned> votes;
    for (const auto& each : nodes) {
      if (each && !each->id.empty()) ++votes[each->id];
    }
    const view_of_node* best = nullptr;
    for (const auto& each : nodes) {
      if (!each || each->id.empty() || votes[each->id] < enough(majority)) continue;
      if (best == nullptr || each->last > best->last) best = &*each;
    }
    return best;
  }

  [[nodiscard]] std::optional<lock_info> info(const std::string& name, unsigned majority) const {
    lock_info all;
    all.name = name;
    if (const view_of_node* const best = holder(majority)) {
      all.holders = best->info.holders;
      all.closed_for = best->info.closed_for;
    } else {
      // Others' clients: all that is known is that most nodes have their keys.
      unsigned foreign = 0;
      const lock_info* one = nullptr;
      for (const auto& each : nodes) {
        if (!each || !each->id.empty() || each->info.holders.empty()) continue;
        ++foreign;
        one = &each->info;
      }
      if (one != nullptr && foreign >= enough(majority)) all.holders = one->holders;
    }
    std::map<ticket, unsigned> waiters;
    for (const auto& each : nodes) {
      if (!each) continue;
      for (const ticket& one : each->tickets) ++waiters[one];
    }
    // Only who stands in line on a majority has a release's votes handed over to it.
    for (const auto& [one, seen] : waiters) {
      if (seen >= majority) all.waiters.push_back(one.info);
    }
    if (all.holders.empty() && all.waiters.empty() && all.closed_for.count() == 0) {
      return std::nullopt;
    }
    return all;
  }
};

common_view view_of(const std::vector<std::optional<reply>>& said, const std::string& name,
                    unsigned members) {
  common_view all;
  all.members = members;
  for (const auto& each : said) {
    all.nodes.push_back(each ? view_in(*each, name) : std::nullopt);
    if (each && !each->is_error()) ++all.answered;
  }
  return all;
}

}  // namespace

/// The same question to several nodes, until each has answered or can't.
class session::poll final {
 public:
  poll(std::size_t nodes, std::size_t asked,
       std::function<void(std::vector<std::optional<reply>>)> done)
      : answers_(nodes), open_(asked), done_(std::move(done)) {}

  class part final : public redis::exchange {
   public:
    part(session& home, std::shared_ptr<poll> whole, std::size_t number)
        : home_(home), whole_(std::move(whole)), number_(number) {}
    void answered(base::result<reply> said) override {
      const delivery_gate::pass pass(home_.gate_);
      if (!pass.open()) return;
      whole_->came(number_, std::move(said));
    }

   private:
    session& home_;
    const std::shared_ptr<poll> whole_;
    const std::size_t number_;
  };

 private:
  void came(std::size_t number, base::result<reply> said) {
    bool last = false;
    {
      const base::mutex_lock lock(mutex_);
      if (said) answers_[number] = std::move(*said);
      last = --open_ == 0;
    }
    if (last) done_(std::move(answers_));
  }

  base::mutex mutex_;
  std::vector<std::optional<reply>> answers_;
  std::size_t open_;
  const std::function<void(std::vector<std::optional<reply>>)> done_;
};

unsigned session::store_size() {
  const base::mutex_lock lock(mutex_);
  return machine_.nodes().size();
}

void session::ask_all(const std::function<redis::wire_command(node_number)>& command,
                      std::function<void(std::vector<std::optional<reply>>)> done) {
  hearing_.be_heard();
  node_set asked = 0;
  {
    const base::mutex_lock lock(mutex_);
    const membership& nodes = machine_.nodes();
    asked = nodes.members();
    // Perhaps some are just coming back: they are waited for.
    if (count(asked) < nodes.majority()) asked = (1U << nodes.listed()) - 1;
  }
  const auto whole = std::make_shared<poll>(members_.size(), count(asked), std::move(done));
  const time_point by = lease_clock::now() + housekeeping_patience;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if ((asked & only(static_cast<node_number>(i))) == 0) continue;
    auto one = std::make_unique<poll::part>(*this, whole, i);
    one->command = command(static_cast<node_number>(i));
    one->answer_by = by;
    members_[i]->commands().send(std::move(one));
  }
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  const unsigned members = store_size();
  const unsigned majority = majority_of(members);
  ask_all([&](node_number) { return speech_->who(name.text()); },
          [name = name.text(), members, majority, done = std::move(done)](auto said) {
            const common_view all = view_of(said, name, members);
            if (all.answered < majority) {
              done(base::fail(errc::unavailable, std::to_string(all.answered) + " of " +
                                                     std::to_string(members) + " nodes answered"));
            } else {
              done(all.info(name, majority));
            }
          });
}

void session::break_lock(const lock_name& name, fencing_token observed, break_mode mode,
                         completion<std::monostate> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  const unsigned members = store_size();
  const unsigned majority = majority_of(members);
  const auto taken_away = [members, majority, done](const std::vector<std::optional<reply>>& said) {
    unsigned yes = 0;
    for (const auto& each : said) {
      if (each && each->is_integer() && each->integer == 1) ++yes;
    }
    // Enough that the holder can't have a majority any more.
    if (yes + majority > members) {
      done(std::monostate{});
    } else {
      done(base::fail(errc::outcome_unknown,
                      std::to_string(yes) + " of " + std::to_string(members) +
                          " nodes took the lock away, which is too few; try again"));
    }
  };
  ask_all([&](node_number) { return speech_->who(name.text()); },
          [this, name = name.text(), observed, mode, members, majority, done = std::move(done),
           taken_away](auto said) {
            const common_view all = view_of(said, name, members);
            const view_of_node* const holder = all.holder(majority);
            const std::uint64_t token = observed.value();
            if (all.answered < majority) {
              done(base::fail(errc::unavailable, "too few nodes answered"));
            } else if (holder == nullptr || (holder->broken && mode == break_mode::safe)) {
              done(base::fail(errc::no_such_lock, "nobody holds it"));
            } else if (token < holder->first || token > holder->last) {
              done(base::fail(errc::token_mismatch, "it is held under another token"));
            } else {
              ask_all(
                  [&](node_number node) {
                    const auto& view = all.nodes[node];
                    // A vote that was healed has an id of its own.
                    const bool same =
                        view && (view->id == holder->id || view->last == holder->last);
                    return speech_->break_lock(name, same ? view->id : holder->id, mode);
                  },
                  taken_away);
            }
          });
}

// ---- list ----------------------------------------------------------------------------------------

/// Walks over the keys of all nodes, page by page, then asks about every name that was found.
class session::listing final : public std::enable_shared_from_this<listing> {
 public:
  listing(std::shared_ptr<session> home, std::string_view prefix, std::string_view after,
          std::size_t limit, completion<std::vector<lock_info>> done)
      : home_(std::move(home)),
        after_(after),
        limit_(limit),
        done_(std::move(done)),
        pattern_(redis::pattern_of(home_->address_.prefix + std::string(prefix))),
        cursors_(home_->members_.size(), "0") {}

  void next_page() {
    home_->ask_all(
        [&](node_number node) {
          // A node that is through is asked again, from its start; its names are known.
          return redis::plain_command({"SCAN", cursors_[node], "MATCH", pattern_, "COUNT", "500"});
        },
        [self = shared_from_this()](auto said) { self->page_came(said); });
  }

 private:
  void page_came(const std::vector<std::optional<reply>>& said) {
    bool more = false;
    unsigned answered = 0;
    for (std::size_t i = 0; i < said.size(); ++i) {
      if (!said[i] || said[i]->elements.size() != 2) {
        finished_.insert(i);
        continue;
      }
      ++answered;
      cursors_[i] = said[i]->elements[0].text;
      for (const reply& key : said[i]->elements[1].elements) {
        const std::string_view name = redis::name_in(key.text, home_->address_.prefix);
        if (name > after_ && lock_name::acceptable(name)) names_.emplace(name);
      }
      if (cursors_[i] == "0") finished_.insert(i);
      more = more || !finished_.contains(i);
    }
    if (answered < majority_of(home_->store_size())) {
      done_(base::fail(errc::unavailable, "too few nodes answered"));
    } else if (more && ++pages_ < most_pages) {
      next_page();
    } else {
      next_name();
    }
  }

  void next_name() {
    if (names_.empty() || found_.size() >= limit_) {
      done_(std::move(found_));
      return;
    }
    const lock_name name{names_.extract(names_.begin()).value()};
    home_->who(name, [self = shared_from_this()](base::result<std::optional<lock_info>> info) {
      if (!info) {
        self->done_(tl::unexpected(std::move(info.error())));
        return;
      }
      if (*info) self->found_.push_back(std::move(**info));
      self->next_name();
    });
  }

  static constexpr unsigned most_pages = 100'000;

  const std::shared_ptr<session> home_;
  const std::string after_;
  const std::size_t limit_;
  const completion<std::vector<lock_info>> done_;
  const std::string pattern_;
  std::vector<std::string> cursors_;
  std::set<std::size_t> finished_;
  std::set<std::string> names_;
  std::vector<lock_info> found_;
  unsigned pages_ = 0;
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  std::make_shared<listing>(shared_from_this(), prefix, after, limit, std::move(done))->next_page();
}

}  // namespace sallyport::backends::redlock

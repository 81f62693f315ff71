#pragma once

#include "backends/redis/words.hpp"
#include "backends/redlock/quorum.hpp"
#include "backends/redlock/test_marks.hpp"
#include "backends/redlock/test_model_node.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Clients, nodes and a bad network, all at random from one seed: nobody is let in beside a holder,
/// tokens only grow, every question is answered, and nothing is left behind. With spare nodes members
/// are replaced meanwhile.
namespace sallyport::backends::redlock::quorum_world {

using namespace std::chrono_literals;
using backend_api::holder_id;

constexpr duration max_lease = 2s;
constexpr duration heartbeat = 600ms;

struct faults {
  double slow = 0;     // a message takes long
  double breaks = 0;   // connections, per 100 ms and link
  double forgets = 0;  // a node restarts, per 100 ms; half of them are durable
  double client_deaths = 0;
  bool rivals = false;  // replacers want different things, and a majority may be lost by that
};

/// One contender, as the engine drives it.
struct party {
  enum class phase { none, asking, waiting, claiming, pausing, holding, leaving };
  phase is = phase::none;
  holder_id id;
  bool may_wait = false;
  bool remains = false;  // the store may know of it
  bool look = false;     // told while it asked
  bool renewing = false;
  bool draws = false;
  duration lease{};
  time_point sent{};
  time_point deadline{};
  time_point leave_until{};
  std::uint64_t question = 0;  // under way; 0: none
  std::uint64_t life = 0;      // timers of an earlier one do nothing
};

struct link {
  bool up = false;
  std::uint64_t attempt = 0;
  std::uint64_t incarnation = 0;  // of the node
  time_point last_arrival{};
  time_point last_delivery{};
  struct connection {
    time_point cut = time_point::max();  // what arrives later never does
    duration extra{};                    // what was on its way takes longer still
  };
  struct flight {
    errand why;
    bool done = false;
  };
  std::shared_ptr<connection> line;
  std::vector<std::shared_ptr<flight>> flights;
};

struct client {
  std::unique_ptr<speech> words;
  std::unique_ptr<quorum> machine;
  std::string name;
  std::vector<link> links;
  std::vector<party> parties;
  node_set out_of_reach = 0;
  bool listens = false;
  bool alive = true;
  time_point alarm = time_point::max();
};

class world {
 public:
  /// With spares the last member is replaced by the first of them, and the first member by whoever is
  /// at the last one's address then.
  world(std::uint64_t seed, unsigned members, faults how, unsigned spares = 0)
      : random_(seed),
        how_(how),
        members_(members),
        nodes_(members + spares),
        wanted_{name_of(members - 1), name_of(members)},
        sequel_{name_of(0), name_of(members - 1)} {
    for (unsigned i = 0; i < nodes_.size(); ++i) {
      nodes_[i].run_id = "run" + std::to_string(i) + "x0";
      if (i < members_) {
        nodes_[i].mark = mark_for(i);
        nodes_[i].counter = random_.below(100);
      }
      nodes_[i].durable = random_.chance(0.5);
      nodes_[i].publish = [this, i](const std::string& to, std::string message) {
        return publish(i, to, std::move(message));
      };
    }
    incarnations_.resize(nodes_.size(), 0);
    gone_.resize(nodes_.size(), false);
  }

  void run(duration span, unsigned clients) {
    for (unsigned i = 0; i < clients; ++i) add_client();
    const time_point until = now_ + span;
    at(now_ + 100ms, [this, until] { mischief(until); });
    if (replaces()) at(now_ + between(1s, 3s), [this, until] { replace_somebody(until); });
    work(until);
    // Better times: everybody goes home.
    closing_ = true;
    how_ = {.rivals = how_.rivals};
    gone_.assign(gone_.size(), false);
    if (replaces() && !how_.rivals) add_replacer(wanted_);
    work(now_ + 20s);
    if (::testing::Test::HasFailure()) return;
    expect_members_full();
    // Rivals may have left no majority of anything.
    if (how_.rivals) return;
    for (const auto& each : clients_) {
      if (!each->alive) continue;
      for (const party& one : each->parties) {
        EXPECT_EQ(one.is, party::phase::none) << each->name << " stays in a phase";
      }
      EXPECT_TRUE(each->machine->idle()) << each->name << " is not idle";
      EXPECT_EQ(count(each->machine->nodes().voters()), members_)
          << each->machine->nodes().trouble(now_).detail;
      EXPECT_TRUE(!replaces() || each->machine->nodes().votes(wanted_.new_member))
          << each->name << "; the last replacer: " << last_refusal();
    }
    for (const model_node& each : nodes_) EXPECT_EQ(each.left_over(now_), "");
  }

  /// A client of which nothing is asked hears nothing of a replacement. When a member loses its data
  /// afterwards, it is the only one there, and brings it back; then some clients see that member and
  /// the one that was replaced, and others the rest. REQUIRES: three members, a spare, no faults.
  void run_with_stale_client() {
    const auto stale = make_client({});
    work(now_ + 1s);
    add_replacer(wanted_);
    work(now_ + 10s);
    ASSERT_TRUE(full_mark_of(node_called(wanted_.new_member))) << "nobody was replaced";
    replacers_.back()->alive = false;
    forget_all(0);
    restart(0);
    work(now_ + 10s);
    stale->alive = false;
    employ(make_client({}, only(1) | only(3)));
    employ(make_client({}, only(0) | only(2)));
    work(now_ + 10s);
  }

  [[nodiscard]] std::uint64_t grants() const { return grants_; }
  [[nodiscard]] std::uint64_t by_hand_over() const { return claims_; }
  /// How many replacements have come about.
  [[nodiscard]] std::uint64_t replaced() const {
    const auto newest = newest_mark();
    return newest ? newest->epoch - 1 : 0;
  }

 private:
  using event = std::function<void()>;

  void at(time_point when, event what) { events_.emplace(std::max(when, now_), std::move(what)); }
  void work(time_point until) {
    while (!events_.empty() && events_.begin()->first <= until && !::testing::Test::HasFailure()) {
      auto next = events_.extract(events_.begin());
      at_once_ = next.key() == now_ ? at_once_ + 1 : 0;
      ASSERT_LT(at_once_, 10'000U) << "somebody is never done";
      now_ = next.key();
      next.mapped()();
    }
    now_ = until;
  }
  duration delay() {
    if (random_.chance(how_.slow)) return 1ms * static_cast<std::int64_t>(random_.below(900));
    return 100us * static_cast<std::int64_t>(1 + random_.below(30));
  }
  duration between(duration least, duration most) {
    return least + duration{static_cast<duration::rep>(
                       random_.below(static_cast<std::uint64_t>((most - least).count())))};
  }
  [[nodiscard]] std::string mark_for(node_number node) const {
    node_mark mark = test_mark("store", members_, node, nodes_[node].run_id,
                               std::chrono::duration_cast<std::chrono::milliseconds>(max_lease));
    mark.durable = nodes_[node].durable;
    return mark.text();
  }

  // ---- clients -----------------------------------------------------------------------------------

  void add_client() { employ(make_client({})); }
  /// Somebody uses it from now on.
  void employ(const std::shared_ptr<client>& who) {
    who->parties.resize(2);
    for (party& each : who->parties) {
      at(now_ + between(1ms, 300ms), [this, who, &each] { begin(*who, each); });
    }
  }

  /// `out_of_reach`: nodes that it never gets a connection to.
  std::shared_ptr<client> make_client(std::optional<replacement> wanted,
                                      node_set out_of_reach = 0) {
    auto made = std::make_shared<client>();
    made->out_of_reach = out_of_reach;
    made->name = "00000000000000" + std::to_string(10 + clients_.size());
    made->words =
        std::make_unique<speech>(speech::settings{.prefix = "", .client = made->name, .owner = {}});
    quorum::settings how;
    for (unsigned i = 0; i < nodes_.size(); ++i) how.nodes.names.push_back(name_of(i));
    how.nodes.replace = std::move(wanted);
    how.fresh_id = [this] { return holder_id{random_(), random_()}; };
    how.seed = random_();
    made->machine = std::make_unique<quorum>(std::move(how), *made->words);
    made->links.resize(nodes_.size());
    clients_.push_back(made);
    for (node_number node = 0; node < nodes_.size(); ++node) connect(*made, node);
    return made;
  }

  // ---- who replaces members ----------------------------------------------------------------------

  static std::string name_of(unsigned node) { return "node" + std::to_string(node); }
  [[nodiscard]] bool replaces() const { return nodes_.size() > members_; }
  [[nodiscard]] std::optional<node_mark> full_mark_of(node_number node) const {
    auto mark = node_mark::parse(nodes_[node].mark);
    const bool full =
        mark && mark->is == node_mark::state::full && mark->run_id == nodes_[node].run_id;
    return full ? std::move(mark) : std::nullopt;
  }
  /// Of all full marks.
  [[nodiscard]] std::optional<node_mark> newest_mark() const {
    std::optional<node_mark> newest;
    for (node_number i = 0; i < nodes_.size(); ++i) {
      auto mark = full_mark_of(i);
      if (mark && (!newest || mark->epoch > newest->epoch)) newest = std::move(mark);
    }
    return newest;
  }
  [[nodiscard]] node_number node_called(const std::string& name) const {
    return static_cast<node_number>(std::stoul(name.substr(4)));
  }

  /// A replacement that came about ends with every member at it, the new one included.
  void expect_members_full() const {
    if (!replaces()) return;
    const auto newest = newest_mark();
    ASSERT_TRUE(newest);
    EXPECT_TRUE(how_.rivals || newest->epoch >= 2) << "nothing was replaced";
    unsigned full = 0;
    unsigned others = 0;
    for (node_number i = 0; i < nodes_.size(); ++i) {
      const auto mark = full_mark_of(i);
      if (!mark || mark->epoch != newest->epoch) continue;
      ++(same_roster(*mark, *newest) ? full : others);
    }
    // What rivals have begun may be stuck, and so may who has the mark of the one that came second.
    if (how_.rivals && (full < majority_of(members_) || others > 0)) return;
    EXPECT_EQ(full, members_) << "not all members have the mark of epoch " << newest->epoch;
  }

  [[nodiscard]] std::string last_refusal() const {
    const auto& ended = replacers_.back()->machine->nodes().replaced();
    return !ended ? "is not done" : *ended ? "is done" : ended->error().detail;
  }

  void add_replacer(const replacement& wanted) { replacers_.push_back(make_client(wanted)); }

  /// Replacers come and die, several at a time, until it is done.
  void replace_somebody(time_point until) {
    if (now_ >= until) return;
    at(now_ + between(200ms, 1500ms), [this, until] { replace_somebody(until); });
    const node_number leaves = node_called(wanted_.old_member);
    if (full_mark_of(node_called(wanted_.new_member))) {
      if (how_.rivals || std::exchange(sequel_begun_, true)) return;
      // The address of who left leads to a blank server then, which is to be a member again.
      gone_[leaves] = false;
      forget_all(leaves);
      restart(leaves);
      wanted_ = sequel_;
      return;
    }
    if (!gone_[leaves] && random_.chance(0.2)) {
      gone_[leaves] = true;
      for (const auto& each : clients_) {
        if (each->alive) disconnect(*each, leaves);
      }
    }
    for (const auto& each : replacers_) {
      if (random_.chance(0.5)) each->alive = false;
    }
    add_replacer(how_.rivals && random_.chance(0.4) ? other_wish() : wanted_);
    if (random_.chance(0.7)) {
      at(now_ + between(1ms, 1s), [last = replacers_.back()] { last->alive = false; });
    }
  }
  replacement other_wish() {
    return {name_of(static_cast<unsigned>(random_.below(members_))),
            name_of(members_ + static_cast<unsigned>(random_.below(nodes_.size() - members_)))};
  }

  template <class Step>
  void step(client& who, Step what) {
    if (!who.alive) return;
    quorum_actions out;
    what(*who.machine, out);
    who.listens = who.listens || out.listen;
    for (quorum_action& each : out.all) carry_out(who, each);
    const time_point wake = who.machine->wake_at();
    if (wake >= who.alarm && who.alarm > now_) return;
    if (wake == time_point::max()) return;
    who.alarm = wake;
    // One that was set for later and is not needed any more would set itself anew for ever.
    at(wake, [this, &who, wake] {
      if (who.alarm == wake) ring(who);
    });
  }
  void ring(client& who) {
    who.alarm = time_point::max();
    step(who, [&](quorum& machine, quorum_actions& out) { machine.on_timer(now_, out); });
  }

  void carry_out(client& who, quorum_action& what) {
    if (auto* const sent = std::get_if<delivery>(&what)) {
      send(who, *sent);
      return;
    }
    if (auto* const acquired = std::get_if<acquire_told>(&what)) tell(who, *acquired);
    if (auto* const renewed = std::get_if<renew_told>(&what)) tell(who, *renewed);
    if (auto* const gone = std::get_if<leave_told>(&what)) tell(who, *gone);
    if (auto* const look = std::get_if<entered_told>(&what)) tell(who, *look);
    if (auto* const lost = std::get_if<lost_told>(&what)) tell(who, *lost);
  }
  /// The engine hears of it behind everything that was sent before.
  template <class Told>
  void tell(client& who, const Told& what) {
    at(now_, [this, &who, what] {
      for (party& each : who.parties) {
        if (who.alive && each.id == what.holder) hear(who, each, what);
      }
    });
  }

  // ---- the network -------------------------------------------------------------------------------

  void connect(client& who, node_number node) {
    link& through = who.links[node];
    const std::uint64_t attempt = ++through.attempt;
    at(now_ + between(1ms, 200ms), [this, &who, node, attempt] {
      if (gone_[node] || (who.out_of_reach & only(node)) != 0) {
        if (who.links[node].attempt != attempt) return;
        step(who, [&](quorum& machine, quorum_actions& out) {
          machine.node_down(node, {make_error_code(errc::unavailable), "gone"}, now_, out);
        });
        if (who.alive) connect(who, node);
        return;
      }
      const node_facts facts{nodes_[node].run_id, nodes_[node].durable, nodes_[node].mark};
      const std::uint64_t incarnation = incarnations_[node];
      at(now_ + delay(), [this, &who, node, attempt, facts, incarnation] {
        link& ready = who.links[node];
        if (ready.attempt != attempt || incarnations_[node] != incarnation) {
          if (ready.attempt == attempt) connect(who, node);
          return;
        }
        ready.up = true;
        ready.incarnation = incarnation;
        ready.line = std::make_shared<link::connection>();
        ready.last_arrival = ready.last_delivery = now_;
        step(who, [&](quorum& machine, quorum_actions& out) {
          machine.node_up(node, facts, now_, out);
        });
      });
    });
  }

  void disconnect(client& who, node_number node) {
    link& through = who.links[node];
    if (!through.up) return;
    through.up = false;
    through.line->cut = now_ + between(1us, 20ms);
    if (random_.chance(0.3)) through.line->extra = between(1ms, 400ms);
    const auto flights = std::exchange(through.flights, {});
    const base::failure why{make_error_code(errc::outcome_unknown), "the connection broke"};
    step(who,
         [&](quorum& machine, quorum_actions& out) { machine.node_down(node, why, now_, out); });
    for (const auto& each : flights) answer(who, *each, tl::unexpected(why));
    connect(who, node);
  }

  void answer(client& who, link::flight& what, base::result<reply> said) {
    if (std::exchange(what.done, true)) return;
    step(who, [&](quorum& machine, quorum_actions& out) {
      machine.answered(what.why, std::move(said), now_, out);
    });
  }

  void send(client& who, const delivery& what) {
    link& through = who.links[what.why.node];
    const auto flight = std::make_shared<link::flight>(link::flight{what.why, false});
    if (!through.up) {
      at(now_, [this, &who, flight] {
        answer(who, *flight, base::fail(errc::unavailable, "not connected"));
      });
      return;
    }
    std::erase_if(through.flights, [](const auto& each) { return each->done; });
    through.flights.push_back(flight);
    through.last_arrival = std::max(through.last_arrival, now_ + delay());
    at(through.last_arrival,
       [this, &who, flight, line = through.line, command = what.command,
        incarnation = through.incarnation] { arrive(who, flight, line, command, incarnation); });
    at(what.answer_by, [this, &who, flight] {
      answer(who, *flight, base::fail(errc::outcome_unknown, "no answer in time"));
    });
  }

  void arrive(client& who, const std::shared_ptr<link::flight>& flight,
              const std::shared_ptr<link::connection>& line, const wire_command& command,
              std::uint64_t incarnation) {
    if (now_ > line->cut) return;
    const auto execute = [this, &who, flight, line, command, incarnation] {
      const node_number node = flight->why.node;
      if (incarnations_[node] != incarnation) return;
      const reply said = nodes_[node].execute(command, now_);
      link& through = who.links[node];
      if (through.line != line || !through.up) return;
      through.last_delivery = std::max(through.last_delivery, now_ + delay());
      at(through.last_delivery, [this, &who, flight, said, line] {
        if (who.links[flight->why.node].line == line) answer(who, *flight, said);
      });
    };
    if (line->extra == duration::zero()) {
      execute();
    } else {
      at(now_ + line->extra, execute);
    }
  }

  bool publish(node_number node, const std::string& to, std::string message) {
    for (const auto& each : clients_) {
      if (each->name != to) continue;
      if (!each->alive || !each->listens || !each->links[node].up) return false;
      if (random_.chance(how_.breaks)) return true;  // it was sent, and lost
      at(now_ + delay(), [this, each, node, message = std::move(message)] {
        step(*each, [&](quorum& machine, quorum_actions& out) {
          machine.heard(node, message, now_, out);
        });
      });
      return true;
    }
    return false;
  }

  void mischief(time_point until) {
    if (now_ >= until) return;
    for (const auto& each : clients_) {
      for (node_number node = 0; each->alive && node < nodes_.size(); ++node) {
        if (random_.chance(how_.breaks)) disconnect(*each, node);
      }
    }
    if (may_forget() && random_.chance(how_.forgets)) {
      restart(static_cast<node_number>(random_.below(nodes_.size())));
    }
    if (random_.chance(how_.client_deaths)) {
      client& victim = *clients_[random_.below(clients_.size())];
      if (std::exchange(victim.alive, false)) add_client();
    }
    at(now_ + 100ms, [this, until] { mischief(until); });
  }
  /// More than one forgetful node at a time is more than is promised.
  [[nodiscard]] bool may_forget() const {
    if (replaces()) {
      const auto newest = newest_mark();
      for (node_number i = 0; i < nodes_.size(); ++i) {
        const bool member = newest && std::any_of(newest->members.begin(), newest->members.end(),
                                                  [&](const roster_member& each) {
                                                    return each.address == name_of(i);
                                                  });
        if (member && incarnations_[i] > 0 && !full_mark_of(i)) return false;
      }
      return true;
    }
    const node_set all = (1U << nodes_.size()) - 1;
    return std::all_of(clients_.begin(), clients_.end(), [&](const auto& each) {
      return !each->alive || each->machine->nodes().voters() == all;
    });
  }
  void forget_all(node_number node) {
    nodes_[node].forget_locks();
    nodes_[node].mark.clear();
    nodes_[node].counter = 0;
  }
  void restart(node_number node) {
    model_node& which = nodes_[node];
    which.run_id = "run" + std::to_string(node) + 'x' + std::to_string(++incarnations_[node]);
    if (!which.durable) {
      which.forget_locks();
      if (random_.chance(0.5)) {
        forget_all(node);
      } else {
        which.counter -= std::min<std::uint64_t>(which.counter, random_.below(50));
      }
    }
    for (const auto& each : clients_) {
      if (each->alive) disconnect(*each, node);
    }
  }

  // ---- the engine's part -------------------------------------------------------------------------

  void later(client& who, party& each, duration span, event what) {
    at(now_ + span, [&who, &each, life = each.life, what = std::move(what)] {
      if (who.alive && each.life == life) what();
    });
  }
  void turn(party& each, party::phase to) {
    each.is = to;
    ++each.life;
  }

  void begin(client& who, party& each) {
    if (closing_ || !who.alive) return;
    each = party{.id = {random_(), random_()}, .life = each.life + 1};
    each.may_wait = random_.chance(0.8);
    each.lease = between(300ms, 1s);
    ask(who, each);
    if (each.may_wait && random_.chance(0.2)) {
      // Its caller does not wait for ever. A question under way is waited for first.
      const holder_id id = each.id;
      at(now_ + between(1ms, 1500ms), [this, &who, &each, id] { give_up(who, each, id); });
    }
  }
  void give_up(client& who, party& each, const holder_id& id) {
    if (!who.alive || each.id != id) return;
    if (each.is == party::phase::waiting || each.is == party::phase::pausing) {
      depart(who, each, true);
    } else if (each.is == party::phase::asking || each.is == party::phase::claiming) {
      at(now_ + 10ms, [this, &who, &each, id] { give_up(who, each, id); });
    }
  }

  void await(client& who, party& each) {
    each.sent = now_;
    each.question = ++last_question_;
    at(now_ + 2s + 100ms, [&who, &each, question = each.question] {
      if (who.alive && each.question == question) {
        ADD_FAILURE() << who.name << ": a question of phase " << static_cast<int>(each.is)
                      << " was never answered";
      }
    });
  }
  void ask(client& who, party& each) {
    turn(each, party::phase::asking);
    each.look = false;
    await(who, each);
    step(who, [&](quorum& machine, quorum_actions& out) {
      const lock_name name("door");
      machine.acquire({.name = name,
                       .holder = each.id,
                       .lease_length = each.lease,
                       .claim_window = 400ms,
                       .ticket_length = 2s,
                       .may_wait = each.may_wait,
                       .token_count = static_cast<std::uint32_t>(1 + random_.below(3)),
                       .value = {},
                       .answer_by = now_ + 2s},
                      now_, out);
    });
  }
  void renew(client& who, party& each, std::uint32_t tokens) {
    await(who, each);
    step(who, [&](quorum& machine, quorum_actions& out) {
      const lock_name name("door");
      machine.renew({.name = name,
                     .holder = each.id,
                     .lease_length = each.lease,
                     .token_count = tokens,
                     .answer_by = now_ + 2s},
                    now_, out);
    });
  }
  void claim(client& who, party& each) {
    turn(each, party::phase::claiming);
    each.remains = true;
    renew(who, each, 0);
  }
  void pause(client& who, party& each) {
    turn(each, party::phase::pausing);
    if (closing_ || random_.chance(0.1)) {
      depart(who, each, true);
      return;
    }
    later(who, each, between(5ms, 100ms), [this, &who, &each] { ask(who, each); });
  }
  void depart(client& who, party& each, bool withdraw) {
    if (!each.remains) {
      over(who, each);
      return;
    }
    turn(each, party::phase::leaving);
    if (each.leave_until == time_point{}) each.leave_until = now_ + 3s;
    await(who, each);
    step(who, [&](quorum& machine, quorum_actions& out) {
      const lock_name name("door");
      machine.leave({.name = name, .holder = each.id, .answer_by = now_ + 2s}, withdraw, now_, out);
    });
  }
  void over(client& who, party& each) {
    turn(each, party::phase::none);
    each.id = {};
    later(who, each, between(1ms, 300ms), [this, &who, &each] { begin(who, each); });
  }

  void enter(client& who, party& each, const backend_api::token_block& tokens, duration remaining) {
    each.remains = true;
    each.deadline = each.sent + remaining;
    if (each.deadline <= now_) {
      claim(who, each);
      return;
    }
    for (const auto& [other, deadline] : holders_) {
      EXPECT_LE(deadline, now_) << "two are in";
    }
    new_tokens(tokens);
    ++grants_;
    turn(each, party::phase::holding);
    holders_[&each] = each.deadline;
    each.renewing = false;
    minded(who, each);
    later(who, each, between(1ms, random_.chance(0.7) ? 30ms : 2s), [this, &who, &each] {
      holders_.erase(&each);
      depart(who, each, false);
    });
  }
  void new_tokens(const backend_api::token_block& tokens) {
    EXPECT_GT(tokens.first.value(), newest_token_) << "tokens only grow";
    EXPECT_GE(tokens.last.value(), tokens.first.value());
    newest_token_ = tokens.last.value();
  }
  /// Renews in time, and knows when it is over.
  void minded(client& who, party& each) {
    const time_point deadline = each.deadline;
    later(who, each, each.lease / 3, [this, &who, &each] { renew_held(who, each); });
    later(who, each, deadline - now_, [this, &who, &each, deadline] {
      if (each.deadline == deadline) lose(who, each);
    });
  }
  void renew_held(client& who, party& each) {
    if (std::exchange(each.renewing, true)) return;
    each.draws = random_.chance(0.3);
    renew(who, each, each.draws ? 2 : 0);
  }
  void lose(client& who, party& each) {
    holders_.erase(&each);
    depart(who, each, true);
  }

  // ---- what it hears -----------------------------------------------------------------------------

  void hear(client& who, party& each, const acquire_told& told) {
    if (each.is != party::phase::asking) return;
    each.question = 0;
    if (!told.answer) {
      expect_trouble(told.answer.error());
      if (told.answer.error().code == errc::outcome_unknown) each.remains = true;
      if (!each.may_wait) {
        depart(who, each, true);
      } else {
        pause(who, each);
      }
    } else if (const auto* won = std::get_if<backend_api::granted>(&*told.answer)) {
      enter(who, each, won->tokens, won->remaining);
    } else if (const auto* queued = std::get_if<backend_api::waiting>(&*told.answer)) {
      wait(who, each, *queued);
    } else {
      EXPECT_FALSE(each.may_wait);
      over(who, each);
    }
  }
  void expect_trouble(const base::failure& why) const {
    if (how_.rivals) return;
    EXPECT_TRUE(why.code == errc::unavailable || why.code == errc::outcome_unknown) << why.detail;
  }
  void wait(client& who, party& each, const backend_api::waiting& what) {
    EXPECT_TRUE(each.may_wait);
    each.remains = true;
    turn(each, party::phase::waiting);
    if (closing_) {
      depart(who, each, true);
    } else if (std::exchange(each.look, false)) {
      claim(who, each);
    } else {
      const duration span = std::max<duration>(1ms, std::min(heartbeat, what.ask_again_after));
      later(who, each, span, [this, &who, &each] { ask(who, each); });
    }
  }
  void hear(client& who, party& each, const renew_told& told) {
    if (each.is == party::phase::claiming) {
      each.question = 0;
      if (!told.answer) {
        expect_trouble(told.answer.error());
        pause(who, each);
      } else if (const auto* won = std::get_if<backend_api::renewed>(&*told.answer)) {
        ++claims_;
        enter(who, each, won->tokens, won->remaining);
      } else if (const auto* queued = std::get_if<backend_api::waiting>(&*told.answer)) {
        wait(who, each, *queued);
      } else {
        ask(who, each);
      }
      return;
    }
    if (each.is != party::phase::holding) return;
    each.question = 0;
    each.renewing = false;
    if (!told.answer) {
      later(who, each, 20ms, [this, &who, &each] { renew_held(who, each); });
    } else if (const auto* more = std::get_if<backend_api::renewed>(&*told.answer)) {
      if (each.draws) new_tokens(more->tokens);
      each.deadline = each.sent + more->remaining;
      holders_[&each] = each.deadline;
      minded(who, each);
    } else {
      EXPECT_TRUE(std::holds_alternative<backend_api::gone>(*told.answer));
      lose(who, each);
    }
  }
  void hear(client& who, party& each, const leave_told& told) {
    if (each.is != party::phase::leaving) return;
    each.question = 0;
    if (told.answer || now_ >= each.leave_until) {
      over(who, each);
    } else {
      later(who, each, 200ms, [this, &who, &each] { depart(who, each, true); });
    }
  }
  void hear(client& who, party& each, const entered_told&) {
    if (each.is == party::phase::asking) each.look = true;
    if (each.is == party::phase::waiting || each.is == party::phase::pausing) claim(who, each);
  }
  void hear(client& who, party& each, const lost_told&) {
    if (each.is == party::phase::holding) lose(who, each);
  }

  base::random random_;
  faults how_;
  const unsigned members_;  // how many
  time_point now_{1000h};
  std::multimap<time_point, event> events_;
  std::vector<model_node> nodes_;
  std::vector<std::uint64_t> incarnations_;
  std::vector<bool> gone_;  // by node: not reachable
  replacement wanted_;
  const replacement sequel_;
  bool sequel_begun_ = false;
  std::vector<std::shared_ptr<client>> replacers_;
  std::vector<std::shared_ptr<client>> clients_;
  std::map<const party*, time_point> holders_;
  std::uint64_t newest_token_ = 0;
  std::uint64_t at_once_ = 0;  // events at one moment
  std::uint64_t last_question_ = 0;
  std::uint64_t grants_ = 0;
  std::uint64_t claims_ = 0;
  bool closing_ = false;
};

}  // namespace sallyport::backends::redlock::quorum_world

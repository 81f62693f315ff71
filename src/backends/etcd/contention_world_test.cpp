#include "backends/etcd/contention.hpp"
#include "backends/etcd/model_store.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Several clients on one model store, with a network that delays, loses and executes late, members that
// refuse, streams that break, leaders that were deposed, leases that lapse and clients that die; all drawn from a seed. Whatever
// happens: never two who may not be inside together by their own clocks, tokens grow, and in the end nothing
// is left.
namespace sallyport::backends::etcd {
namespace {

using namespace std::chrono_literals;
using backend_api::granted;
using backend_api::holder_id;
using backend_api::renewed;
using backend_api::waiting;

constexpr duration request_timeout = 1s;
constexpr duration heartbeat = 300ms;
constexpr duration troubled_time = 12s;
constexpr duration quiet_time = 60s;
constexpr std::uint32_t permits = 2;

struct happening {
  lock_kind kind = lock_kind::mutex;
  double loss = 0;         // of an answer
  double slowness = 0;     // of an execution: seconds instead of milliseconds
  double refusals = 0;     // of a try: it is certainly not executed; half of them follow a lost one
  double stream_cuts = 0;  // of either stream, whenever something is said on it
  double false_leader = 0;
  double death = 0;  // of a client, whenever an actor begins
};

class world {
 public:
  world(std::uint64_t seed, const happening& how) : how_(how), random_(seed) {
    for (int i = 0; i < 3; ++i) clients_.push_back(std::make_unique<client>(*this, i));
    for (int i = 0; i < 7; ++i) {
      actors_.push_back(std::make_unique<actor>(*this, static_cast<std::uint64_t>(i)));
      const auto index = static_cast<std::size_t>(i);
      later(millis(0, 500), [this, index] { actors_[index]->begin(); });
    }
  }

  void run() {
    pass_until(now_ + troubled_time);
    how_ = {.kind = how_.kind};
    pass_until(now_ + quiet_time);
    EXPECT_GT(entered_, 0) << "nobody ever got in: nothing was shown";
    for (const auto& each : actors_) EXPECT_TRUE(each->idle()) << each->describe();
    EXPECT_TRUE(store_.keys.empty()) << store_.keys.begin()->first;
    EXPECT_TRUE(store_.leases.empty());
    for (const auto& each : clients_) {
      EXPECT_EQ(each->machine->contenders(), 0U);
      EXPECT_EQ(each->machine->leases(), 0U);
    }
  }

  [[nodiscard]] int entered() const { return entered_; }

 private:
  class actor;

  struct client {
    client(world& whose, int index) : home(whose), number(index) { live(); }

    void live() {
      ++life;
      const int my_life = life;
      machine = std::make_unique<contention>(contention::settings{
          .keys = layout(""),
          .owner = {},
          .fresh_lease =
              [this, my_life] {
                return lease_id{1'000'000} * (number + 1) + lease_id{1000} * my_life + next_lease++;
              },
          .wall_ms = [] { return std::int64_t{1}; }});
    }
    /// Whatever is under way to it is for nobody.
    template <class What>
    void step(int of_life, const What& what) {
      if (of_life != life) return;
      actions out;
      what(*machine, home.now_, out);
      for (action& each : out) home.carry_out(*this, std::move(each));
    }

    world& home;
    const int number;
    int life = 0;
    int watch_life = 0;        // of its stream
    bool watches_cut = false;  // and it has not heard of that yet
    lease_id next_lease = 1;
    std::unique_ptr<contention> machine;
  };

  /// What core does, in small: asks, beats, claims, holds, renews, leaves and withdraws.
  class actor {
   public:
    actor(world& whose, std::uint64_t index) : home_(whose), index_(index) {}

    void begin() {
      if (home_.quiet()) return;
      state_ = state::asking;
      asked_ = renewing_ = remains_ = false;
      client_ = home_.clients_[home_.random_.below(home_.clients_.size())].get();
      life_ = client_->life;
      id_ = {index_ + 1, ++attempts_};
      home_.actor_of_[id_] = this;
      name_ = lock_name(home_.random_.chance(0.7) ? "door" : "door/deeper");
      mode_ = home_.how_.kind == lock_kind::shared_mutex && home_.random_.chance(0.6)
                  ? lock_mode::shared
                  : lock_mode::exclusive;
      length_ = home_.random_.chance(0.5) ? 2s : 4s;
      renews_ = home_.random_.chance(0.8);
      may_wait_ = home_.random_.chance(0.8);
      late_until_ = time_point::min();
      if (home_.random_.chance(home_.how_.death)) {
        const int of_life = life_;
        home_.later(home_.millis(0, 3000), [this, of_life] { home_.kill(*client_, of_life); });
      }
      if (may_wait_ && home_.random_.chance(0.3)) {
        const auto attempt = attempts_;
        home_.later(home_.millis(0, 3000), [this, attempt] {
          if (attempt == attempts_ && state_ == state::asking) give_up();
        });
      }
      ask();
    }
    void killed() {
      if (state_ == state::idle) return;
      rest();
    }

    void acquired(const base::result<backend_api::acquire_answer>& answer) {
      asked_ = false;
      const bool unknown = !answer && answer.error().code == errc::outcome_unknown;
      if (unknown) late_until_ = asked_at_ + length_;
      if (unknown || (answer && !std::holds_alternative<backend_api::held>(*answer))) {
        remains_ = true;
      }
      if (state_ == state::leaving) return;
      if (!answer) {
        const bool transient = unknown || answer.error().code == errc::unavailable;
        if (transient && may_wait_ && home_.random_.chance(0.5)) {
          beat(50ms);
        } else {
          give_up();
        }
        return;
      }
      if (const auto* const grant = std::get_if<granted>(&*answer)) {
        enter(grant->tokens.first, asked_at_ + grant->remaining);
      } else if (std::holds_alternative<waiting>(*answer)) {
        EXPECT_TRUE(may_wait_);
        beat(heartbeat);
      } else {
        EXPECT_FALSE(may_wait_);
        rest();
      }
    }
    void entered() {
      if (state_ == state::asking && !asked_ && !renewing_) renew();
    }
    void renewal(const base::result<backend_api::renew_answer>& answer) {
      renewing_ = false;
      const auto* const good = answer ? std::get_if<renewed>(&*answer) : nullptr;
      if (state_ == state::asking) {
        if (good != nullptr) {
          enter(good->tokens.first, renewed_at_ + good->remaining);
        } else if (!asked_) {
          beat(answer ? heartbeat : 50ms);
        }
      } else if (state_ == state::holding) {
        if (good != nullptr && home_.now_ < deadline_) {
          EXPECT_EQ(good->tokens.first, token_);
          deadline_ = std::max(deadline_, renewed_at_ + good->remaining - length_ / 100);
        } else if (answer && good == nullptr) {
          lost();
        }
      }
    }
    void lost() {
      if (state_ != state::holding) return;
      deadline_ = home_.now_;
      give_up();
    }
    void left(const base::result<backend_api::leave_answer>& answer) {
      if (state_ != state::leaving) return;
      const bool for_good = answer && left_at_ >= late_until_;
      if (for_good || home_.now_ > left_at_ + 30s) {
        rest();
        return;
      }
      const auto attempt = attempts_;
      home_.later(200ms, [this, attempt] {
        if (attempt == attempts_ && state_ == state::leaving) leave();
      });
    }

    [[nodiscard]] bool inside(const lock_name& name) const {
      return state_ == state::holding && name_ == name && home_.now_ < deadline_;
    }
    [[nodiscard]] bool idle() const { return state_ == state::idle; }
    [[nodiscard]] const client* client_now() const { return client_; }
    [[nodiscard]] bool shares() const { return mode_ == lock_mode::shared; }
    [[nodiscard]] std::string describe() const {
      return "actor " + std::to_string(index_) + " in state " +
             std::to_string(static_cast<int>(state_)) + " on " + name_.text();
    }

   private:
    enum class state { idle, asking, holding, leaving };

    void ask() {
      asked_ = true;
      asked_at_ = home_.now_;
      client_->step(life_, [&](contention& machine, time_point now, actions& out) {
        machine.acquire({.name = name_,
                         .kind = home_.how_.kind,
                         .mode = mode_,
                         .holder = id_,
                         .lease_length = length_,
                         .may_wait = may_wait_,
                         .permits = permits,
                         .value = {},
                         .answer_by = now + request_timeout,
                         .renewed = renews_},
                        now, out);
      });
    }
    void beat(duration after) {
      const auto attempt = attempts_;
      home_.later(after, [this, attempt] {
        if (attempt == attempts_ && state_ == state::asking && !asked_ && !renewing_) ask();
      });
    }
    void renew() {
      renewing_ = remains_ = true;
      renewed_at_ = home_.now_;
      client_->step(life_, [&](contention& machine, time_point now, actions& out) {
        machine.renew({.name = name_,
                       .kind = home_.how_.kind,
                       .mode = mode_,
                       .holder = id_,
                       .lease_length = length_,
                       .answer_by = now + request_timeout},
                      now, out);
      });
    }
    void enter(fencing_token token, time_point until) {
      state_ = state::holding;
      token_ = token;
      deadline_ = until - length_ / 100;
      if (home_.now_ >= deadline_) {
        give_up();
        return;
      }
      home_.has_entered(*this, name_, token);
      const auto attempt = attempts_;
      home_.later(home_.millis(0, 3000), [this, attempt] {
        if (attempt == attempts_ && state_ == state::holding) give_up();
      });
      if (renews_) keep();
    }
    void keep() {
      const auto attempt = attempts_;
      home_.later(length_ / 3, [this, attempt] {
        if (attempt != attempts_ || state_ != state::holding) return;
        if (!renewing_) renew();
        keep();
      });
    }
    void give_up() {
      // Of one that was only ever told that nothing is there, nothing is withdrawn.
      if (!remains_ && !asked_) {
        rest();
        return;
      }
      state_ = state::leaving;
      // Its end by its own clock comes before the store hears of it.
      deadline_ = home_.now_;
      if (asked_) late_until_ = std::max(late_until_, asked_at_ + length_);
      leave();
    }
    void leave() {
      left_at_ = home_.now_;
      client_->step(life_, [&](contention& machine, time_point now, actions& out) {
        machine.leave({.name = name_,
                       .kind = home_.how_.kind,
                       .mode = mode_,
                       .holder = id_,
                       .answer_by = now + request_timeout},
                      now, out);
      });
    }
    void rest() {
      state_ = state::idle;
      home_.actor_of_.erase(id_);
      ++attempts_;
      home_.later(home_.millis(0, 1000), [this] {
        if (state_ == state::idle) begin();
      });
    }

    world& home_;
    const std::uint64_t index_;
    state state_ = state::idle;
    client* client_ = nullptr;
    int life_ = 0;
    std::uint64_t attempts_ = 0;
    holder_id id_{};
    lock_name name_{"none"};
    lock_mode mode_ = lock_mode::exclusive;
    duration length_{};
    bool renews_ = true;
    bool may_wait_ = true;
    bool asked_ = false;
    bool renewing_ = false;
    bool remains_ = false;  // something of it is in the store, or may be
    time_point asked_at_;
    time_point renewed_at_;
    time_point left_at_;
    time_point late_until_;
    time_point deadline_;
    fencing_token token_;
  };

  [[nodiscard]] bool quiet() const { return now_ > begun_ + troubled_time; }
  duration millis(std::uint64_t least, std::uint64_t most) {
    return std::chrono::milliseconds{
        static_cast<std::int64_t>(least + random_.below(most - least + 1))};
  }
  void later(duration after, std::function<void()> what) {
    events_.emplace(now_ + after, std::move(what));
  }
  void pass_until(time_point until) {
    while (now_ < until) {
      time_point next = until;
      if (!events_.empty()) next = std::min(next, events_.begin()->first);
      for (const auto& each : clients_) next = std::min(next, each->machine->wake_at());
      for (const auto& [id, lease] : store_.leases) next = std::min(next, lease.ends);
      now_ = std::max(now_, next);
      store_.expire(now_);
      hear_reports();
      for (const auto& each : clients_) {
        if (each->machine->wake_at() > now_) continue;
        each->step(each->life, [](contention& machine, time_point at, actions& out) {
          machine.on_timer(at, out);
        });
      }
      while (!events_.empty() && events_.begin()->first <= now_) {
        const auto due = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        due();
        hear_reports();
      }
    }
  }

  void has_entered(const actor& who, const lock_name& name, fencing_token token) {
    ++entered_;
    std::size_t inside = 0;
    bool alone = true;
    for (const auto& each : actors_) {
      if (!each->inside(name)) continue;
      ++inside;
      if (each.get() != &who && !(each->shares() && who.shares())) alone = false;
    }
    if (how_.kind == lock_kind::semaphore) {
      EXPECT_LE(inside, permits);
      return;
    }
    EXPECT_TRUE(alone) << name.text();
    // A reader's token lies between those of the writers around it.
    fencing_token& last = newest_[name];
    fencing_token& last_exclusive = newest_exclusive_[name];
    if (who.shares()) {
      EXPECT_GT(token, last_exclusive);
    } else {
      EXPECT_GT(token, last);
      last_exclusive = token;
    }
    last = std::max(last, token);
  }

  void kill(client& whose, int of_life) {
    if (whose.life != of_life) return;
    whose.live();
    forget_watches(whose);
    std::vector<actor*> dead;
    for (const auto& each : actors_) dead.push_back(each.get());
    for (actor* const each : dead) {
      if (each->idle() || each->client_now() != &whose) continue;
      each->killed();
    }
  }
  void forget_watches(client& whose) {
    ++whose.watch_life;
    std::erase_if(store_.watchers,
                  [&](const auto& each) { return each.first.first == whose.number; });
  }
  void break_watches(client& whose) {
    forget_watches(whose);
    whose.watches_cut = true;
    const int of_life = whose.life;
    later(millis(1, 50), [this, &whose, of_life] {
      whose.watches_cut = false;
      whose.step(of_life, [](contention& machine, time_point now, actions& out) {
        machine.watches_broken(now, out);
      });
      later(millis(1, 50), [&whose, of_life] {
        whose.step(of_life, [](contention& machine, time_point, actions& out) {
          machine.watches_back(out);
        });
      });
    });
  }

  void hear_reports() {
    for (const model_store::report& each : std::exchange(store_.reports, {})) {
      client& whose = *clients_[static_cast<std::size_t>(each.client)];
      // In order: the stream's later reports come later.
      const time_point when = std::max(now_ + millis(0, 20), stream_free_[each.client]);
      stream_free_[each.client] = when;
      events_.emplace(when, [&whose, each, life = whose.life, stream = whose.watch_life] {
        if (stream != whose.watch_life) return;
        whose.step(life, [&](contention& machine, time_point now, actions& out) {
          if (each.began != 0) {
            machine.watch_began(each.watch, each.began, now, out);
          } else {
            machine.watch_said(each.watch, std::span(&each.event, 1), now, out);
          }
        });
      });
    }
  }

  /// When the store gets to it.
  duration way_there() { return random_.chance(how_.slowness) ? millis(500, 6000) : millis(0, 20); }

  void carry_out(client& whose, action what) {
    const int life = whose.life;
    if (auto* const order = std::get_if<txn_order>(&what)) {
      send(
          whose, order->answer_by, [this, request = order->what] { return store_.apply(request); },
          [&whose, life, errand = order->errand](const reply<txn_answer>& said) {
            whose.step(life, [&](contention& machine, time_point now, actions& out) {
              machine.txn_answered(errand, said, now, out);
            });
          });
    } else if (auto* const granting = std::get_if<grant_order>(&what)) {
      send(
          whose, granting->answer_by,
          [this, id = granting->lease, seconds = granting->seconds] {
            store_.grant(id, std::chrono::seconds{seconds}, now_);
            return reply<std::int64_t>{.value = seconds};
          },
          [&whose, life, id = granting->lease](const reply<std::int64_t>& said) {
            whose.step(life, [&](contention& machine, time_point now, actions& out) {
              machine.lease_granted(id, said, now, out);
            });
          });
    } else if (auto* const revoking = std::get_if<revoke_order>(&what)) {
      // Lost, if trouble has it so; then the lease lapses.
      if (!random_.chance(how_.loss)) {
        later(way_there(), [this, id = revoking->lease] { store_.revoke(id); });
      }
    } else if (auto* const keeping = std::get_if<keep_alive_order>(&what)) {
      keep_alive(whose, keeping->lease);
    } else if (auto* const watching = std::get_if<watch_order>(&what)) {
      if (whose.watches_cut) return;
      if (random_.chance(how_.stream_cuts)) {
        break_watches(whose);
        return;
      }
      later(millis(0, 20), [this, &whose, each = *watching, stream = whose.watch_life] {
        if (stream != whose.watch_life) return;
        store_.watch(whose.number, each.watch, {each.key, each.end, each.puts});
      });
    } else if (auto* const unwatching = std::get_if<unwatch_order>(&what)) {
      store_.unwatch(whose.number, unwatching->watch);
    } else {
      tell(what);
    }
  }

  template <class Execute, class Answer>
  void send(client& whose, time_point answer_by, Execute execute, Answer answer) {
    static_cast<void>(whose);
    using said = decltype(execute());
    if (random_.chance(how_.refusals)) {
      const bool again = random_.chance(0.5);
      if (again && random_.chance(0.5)) later(way_there(), [execute] { execute(); });
      const said refusal{.value = {},
                         .why = random_.chance(0.5) ? trouble::refused : trouble::unavailable,
                         .text = "refused",
                         .doubtful = again};
      later(millis(0, 50), [answer, refusal] { answer(refusal); });
      return;
    }
    const bool lost = random_.chance(how_.loss);
    const time_point executed_at = now_ + way_there();
    const time_point answered_at = executed_at + millis(0, 20);
    const auto heard = std::make_shared<std::optional<said>>();
    events_.emplace(executed_at, [execute, heard] { *heard = execute(); });
    if (lost || answered_at >= answer_by) {
      events_.emplace(answer_by,
                      [answer] { answer(said{.why = trouble::unknown, .text = "lost"}); });
    } else {
      events_.emplace(answered_at, [answer, heard] { answer(**heard); });
    }
  }

  void keep_alive(client& whose, lease_id id) {
    const int life = whose.life;
    const auto answer = [&whose, life, id](std::int64_t seconds, std::uint64_t term) {
      whose.step(life, [&](contention& machine, time_point now, actions& out) {
        machine.kept_alive(id, seconds, term, now, out);
      });
    };
    if (random_.chance(how_.stream_cuts)) {
      later(millis(10, 500), [&whose, life] {
        whose.step(life, [](contention& machine, time_point now, actions& out) {
          machine.keep_alives_broken(now, out);
        });
      });
      return;
    }
    if (random_.chance(how_.false_leader)) {
      // It was deposed, and prolongs only what it alone remembers.
      const std::uint64_t old_term = store_.term++;
      later(millis(0, 20), [answer, old_term] { answer(4, old_term); });
      return;
    }
    later(millis(0, 20), [this, answer, id] {
      const std::int64_t seconds = store_.keep_alive(id, now_);
      const std::uint64_t term = store_.term;
      later(millis(0, 20), [answer, seconds, term] { answer(seconds, term); });
    });
  }

  void tell(const action& what) {
    // Like the session: told after the step is over, not from inside of it.
    if (const auto* const acquired = std::get_if<acquire_told>(&what)) {
      later(0ms, [this, told = *acquired] {
        if (actor* const who = to_actor(told.holder)) who->acquired(told.answer);
      });
    } else if (const auto* const renewal = std::get_if<renew_told>(&what)) {
      later(0ms, [this, told = *renewal] {
        if (actor* const who = to_actor(told.holder)) who->renewal(told.answer);
      });
    } else if (const auto* const gone = std::get_if<leave_told>(&what)) {
      later(0ms, [this, told = *gone] {
        if (actor* const who = to_actor(told.holder)) who->left(told.answer);
      });
    } else if (const auto* const in = std::get_if<entered_told>(&what)) {
      later(0ms, [this, told = *in] {
        if (actor* const who = to_actor(told.holder)) who->entered();
      });
    } else if (const auto* const lost = std::get_if<lost_told>(&what)) {
      later(0ms, [this, told = *lost] {
        if (actor* const who = to_actor(told.holder)) who->lost();
      });
    }
  }
  actor* to_actor(const holder_id& who) {
    const auto found = actor_of_.find(who);
    return found == actor_of_.end() ? nullptr : found->second;
  }

  happening how_;
  base::random random_;
  const time_point begun_{std::chrono::hours{1}};
  time_point now_ = begun_;
  model_store store_;
  std::multimap<time_point, std::function<void()>> events_;
  std::map<int, time_point> stream_free_;
  std::vector<std::unique_ptr<client>> clients_;
  std::vector<std::unique_ptr<actor>> actors_;
  std::map<holder_id, actor*> actor_of_;
  std::map<lock_name, fencing_token> newest_;
  std::map<lock_name, fencing_token> newest_exclusive_;
  int entered_ = 0;
};

void run_seeds(const happening& how, std::uint64_t first) {
  constexpr std::uint64_t seeds = 60;
  int entered = 0;
  for (std::uint64_t seed = first; seed < first + seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    world one(seed, how);
    one.run();
    entered += one.entered();
  }
  EXPECT_GT(entered, 500);
}

TEST(EtcdWorld, WithoutTrouble) { run_seeds({}, 1); }

TEST(EtcdWorld, AnswersAreLost) { run_seeds({.loss = 0.1}, 1000); }

TEST(EtcdWorld, RequestsAreExecutedLate) { run_seeds({.slowness = 0.1}, 2000); }

TEST(EtcdWorld, RequestsAreRefused) { run_seeds({.refusals = 0.1}, 9000); }

TEST(EtcdWorld, StreamsBreak) { run_seeds({.stream_cuts = 0.2}, 3000); }

TEST(EtcdWorld, DeposedLeadersAnswerKeepAlives) { run_seeds({.false_leader = 0.4}, 4000); }

TEST(EtcdWorld, ClientsDie) { run_seeds({.death = 0.1}, 5000); }

TEST(EtcdWorld, EverythingAtOnce) {
  run_seeds({.loss = 0.05,
             .slowness = 0.05,
             .refusals = 0.05,
             .stream_cuts = 0.1,
             .false_leader = 0.2,
             .death = 0.05},
            6000);
}

TEST(EtcdWorld, ReadersAndWritersInTrouble) {
  run_seeds({.kind = lock_kind::shared_mutex,
             .loss = 0.05,
             .slowness = 0.05,
             .refusals = 0.05,
             .stream_cuts = 0.1,
             .false_leader = 0.2,
             .death = 0.05},
            7000);
}

TEST(EtcdWorld, PermitsInTrouble) {
  run_seeds({.kind = lock_kind::semaphore,
             .loss = 0.05,
             .slowness = 0.05,
             .refusals = 0.05,
             .stream_cuts = 0.1,
             .false_leader = 0.2,
             .death = 0.05},
            8000);
}

}  // namespace
}  // namespace sallyport::backends::etcd

#include "sim/process.hpp"

#include "sim/workload.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::sim {
namespace {

constexpr duration short_while = std::chrono::microseconds{100};
constexpr std::int64_t drift_in_model = 5000;  // parts per million
constexpr std::uint32_t spec_variants = 4;

std::int64_t draw_drift(base::random& random) {
  return static_cast<std::int64_t>(random.below(2 * drift_in_model + 1)) - drift_in_model;
}

time_point draw_boot_time(base::random& random) {
  return time_point{
      std::chrono::seconds{1000 + static_cast<std::int64_t>(random.below(1'000'000))}};
}

/// Each process has a machine of its own, but those of a local store, which share one clock.
sim_clock draw_clock(context& shared) {
  if (shared.plan.local) return local_machine_clock();
  const time_point start = draw_boot_time(shared.random);
  return {start, draw_drift(shared.random)};
}

}  // namespace

process::process(context& shared, checkers& checks, store& truth, std::uint64_t number)
    : shared_(shared),
      checks_(checks),
      store_(truth),
      number_(number),
      clock_(draw_clock(shared)),
      specs_(shared.plan.locks.size() * 2 * spec_variants),
      backend_(truth.open(*this, number)),
      engine_(*this, {.observers = nullptr, .seed = shared.random()}) {
  engine_.attach(*backend_);
  backend_->attach(engine_);
}

process::~process() = default;

void process::begin() {
  backend_->connect();
  engine_.on_changed([this](const lock_name&) { shared_.count.add(counter::change_heard); });
  for (const lock_plan& lock : shared_.plan.locks) {
    if (lock.kind == lock_kind::election) backend_->watch(lock.name, true);
  }
  for (std::uint32_t i = 0; i < shared_.plan.callers; ++i) {
    callers_.push_back(std::make_unique<caller>(shared_, checks_, *this));
    callers_.back()->think();
  }
}

void process::visit_all_locks(duration patience) {
  backend_->connect();
  callers_.push_back(std::make_unique<caller>(shared_, checks_, *this));
  callers_.back()->visit_all_locks(patience);
}

void process::hurry() {
  for (const auto& each : callers_) each->hurry();
}

bool process::finished() const {
  return std::all_of(callers_.begin(), callers_.end(),
                     [](const auto& each) { return each->at_home(); });
}

std::string process::unfinished() const {
  std::string text;
  for (const auto& each : callers_) {
    if (each->at_home()) continue;
    text += " process " + std::to_string(number_) + (frozen_ ? " (frozen) " : " ");
    text += each->doing();
  }
  return text;
}

std::shared_ptr<const runtime::lock_spec> process::spec(std::size_t lock, lock_mode mode,
                                                        bool short_lease, bool fixed) {
  const std::size_t variant = (short_lease ? 1U : 0U) + (fixed ? 2U : 0U);
  auto& found = specs_[(lock * 2 + static_cast<std::size_t>(mode)) * spec_variants + variant];
  if (found) return found;
  const options& plan = shared_.plan;
  const lock_plan& what = plan.locks[lock];
  const duration shortest = plan.shortest_lease;
  const core::timing times = core::make_timing(
      {.lease_length = short_lease ? std::max(shortest, plan.lease / 2) : plan.lease,
       .renew = fixed ? renewal::never : renewal::automatic,
       .expiry_granularity = plan.expiry_granularity,
       .clock_drift = 0.01,
       .heartbeat = plan.heartbeat,
       .request_timeout = plan.request_timeout,
       .store_patience = plan.store_patience,
       .claim_delay = backend_->claim_delay()});
  found = std::make_shared<const runtime::lock_spec>(
      runtime::lock_spec{.name = what.name,
                         .kind = what.kind,
                         .mode = mode,
                         .permits = what.permits,
                         .local_turns = what.kind == lock_kind::election ? 1 : plan.local_turns,
                         .local_turn_time = plan.local_turn_time,
                         .times = times});
  return found;
}

// ---- steps -----------------------------------------------------------------------------------------------------------

void process::run(std::function<void()> step) {
  if (dead_) return;
  if (running_) {
    later(duration{0}, std::move(step));
    return;
  }
  if (!frozen_ && backlog_.empty() && shared_.strikes(fault::pause_at_step) && freeze()) {
    shared_.count.add(counter::pause);
    const duration length = draw_between(shared_.random, duration{0}, 3 * shared_.plan.lease);
    shared_.loop.after(length, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->thaw();
    });
  }
  if (frozen_ || !backlog_.empty()) {
    backlog_.push_back(std::move(step));
  } else {
    perform(step);
  }
}

void process::perform(const std::function<void()>& step) {
  running_ = true;
  step();
  running_ = false;
  observe(false);
}

void process::later(duration delay, std::function<void()> step) {
  shared_.loop.after(delay, [weak = weak_from_this(), step = std::move(step)]() mutable {
    if (const auto self = weak.lock()) self->run(std::move(step));
  });
}

void process::at_local_time(time_point when, std::function<void()> step) {
  shared_.loop.at(clock_.when(when), [weak = weak_from_this(), step = std::move(step)]() mutable {
    if (const auto self = weak.lock()) self->run(std::move(step));
  });
}

bool process::freeze() {
  if (frozen_ || dead_) return false;
  frozen_ = true;
  shared_.note("process # is frozen", static_cast<std::int64_t>(number_));
  return true;
}

void process::thaw() {
  if (!frozen_ || dead_) return;
  frozen_ = false;
  shared_.note("process # goes on", static_cast<std::int64_t>(number_));
  checks_.turns.process_thawed(number_, now());
  rearm();
  shared_.loop.after(draw_between(shared_.random, duration{0}, short_while),
                     [weak = weak_from_this()] {
                       if (const auto self = weak.lock()) self->drain();
                     });
}

void process::rearm() {
  if (frozen_ || dead_) return;
  arm();
  later(draw_between(shared_.random, duration{0}, short_while),
        [this] { backend_->answer_overdue(); });
}

void process::drain() {
  if (frozen_ || dead_ || backlog_.empty()) return;
  const auto step = std::move(backlog_.front());
  backlog_.pop_front();
  perform(step);
  if (backlog_.empty()) return;
  shared_.loop.after(draw_between(shared_.random, duration{0}, short_while),
                     [weak = weak_from_this()] {
                       if (const auto self = weak.lock()) self->drain();
                     });
}

void process::die() {
  dead_ = true;
  checks_.turns.process_killed(number_);
  // Last, because it may let others in.
  backend_->die();
}

// ---- the engine's outside world --------------------------------------------------------------------------------------

void process::wake_at(time_point when) {
  if (when >= wakes_at_) return;
  wakes_at_ = when;
  arm();
}

void process::arm() {
  if (wakes_at_ == time_point::max()) return;
  const std::uint64_t generation = ++wake_generation_;
  const true_time due = clock_.when(wakes_at_);
  if (due == never) return;
  const duration lateness = draw_between(shared_.random, duration{0}, short_while);
  shared_.loop.at(std::max(due, shared_.loop.now()) + lateness.count(),
                  [weak = weak_from_this(), generation] {
                    if (const auto self = weak.lock()) self->serve_timers(generation);
                  });
}

void process::serve_timers(std::uint64_t generation) {
  // While frozen nothing is served; thaw() arms again.
  if (generation != wake_generation_ || frozen_ || dead_) return;
  if (now() < wakes_at_) {
    arm();
    return;
  }
  wakes_at_ = time_point::max();
  running_ = true;
  engine_.run_due();
  running_ = false;
  observe(true);
}

void process::tell(std::function<void()> news) {
  news_.push_back(std::move(news));
  if (news_.size() > 1) return;
  later(draw_between(shared_.random, duration{0}, short_while), [this] { tell_news(); });
}

void process::tell_lost(runtime::lost_turns lost) noexcept {
  while (auto turn = lost.pop()) {
    tell([turn = std::move(turn)] { turn->gone.request_stop(); });
  }
}

void process::tell_news() {
  while (!news_.empty()) {
    const auto next = std::move(news_.front());
    news_.pop_front();
    next();
  }
}

backend_api::holder_id process::new_holder_id() { return {shared_.random(), shared_.random()}; }

void process::observe(bool served_timers) {
  if (dead_) return;
  checks_.turns.observe(number_, now(), wakes_at_, served_timers, news_.empty());
  if (served_timers) {
    for (const auto& each : callers_) each->check_deadline();
  }
  if (!quiet()) return;
  checks_.store.check_nothing_of(number_, store_.now());
  store_.check_nothing_of(number_);
}

}  // namespace sallyport::sim

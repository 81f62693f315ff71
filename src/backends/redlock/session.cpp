#include "backends/redlock/session.hpp"

#include "backends/redis/client_identity.hpp"
#include "backends/redis/words.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::acquire_request;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;

namespace {

using namespace std::chrono_literals;

/// How long open() waits for a majority, and for all nodes when they are to be initialised.
constexpr duration opening_patience = 2s;
constexpr duration initialising_patience = 5s;
/// How long waiters wait for the channels to open before they stand in line without.
constexpr duration hearing_patience = 2s;
/// And for the others, once there is a majority.
constexpr duration stragglers_patience = 50ms;

holder_id id_from_kernel() {
  std::array<std::uint64_t, 2> bits{};
  base::fill_from_kernel(std::as_writable_bytes(std::span(bits)));
  return {bits[0], bits[1]};
}

std::optional<replacement> wanted_in(const redis::address& where) {
  if (where.old_member.empty()) return std::nullopt;
  return replacement{.old_member = where.old_member, .new_member = where.new_member};
}

}  // namespace

/// A command of the machine on its way to a node.
class session::order final : public redis::exchange {
 public:
  order(session& whose, errand why, std::string mark)
      : home_(whose), why_(std::move(why)), mark_(std::move(mark)) {}

  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    home_.step([&](quorum& machine, time_point now, quorum_actions& out) {
      machine.answered(why_, std::move(said), now, out);
    });
  }
  [[nodiscard]] bool still_meant() override {
    const base::mutex_lock lock(home_.mutex_);
    return home_.machine_.still_meant(why_, mark_);
  }

 private:
  session& home_;
  const errand why_;
  const std::string mark_;
};

/// The machine's alarm, on the pump.
class session::timer final : public net::pump::source {
 public:
  timer(std::weak_ptr<session> whose, std::shared_ptr<net::pump> engine)
      : home_(std::move(whose)), pump_(std::move(engine)) {}

  void set(time_point when) {
    if (when == time_point::max()) return;
    time_point before = next_.load(std::memory_order_relaxed);
    do {
      if (when >= before) return;
    } while (!next_.compare_exchange_weak(before, when, std::memory_order_relaxed));
    pump_->alarm(number, when);
  }
  void ready(std::uint32_t /*events*/) override {}
  void due(time_point now) override {
    next_.store(time_point::max(), std::memory_order_relaxed);
    if (const auto home = home_.lock()) home->timer_due(now);
  }

  net::pump::number number = 0;

 private:
  const std::weak_ptr<session> home_;
  const std::shared_ptr<net::pump> pump_;
  std::atomic<time_point> next_{time_point::max()};
};

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = redis::parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto engine = net::pump::make();
  if (!engine) return tl::unexpected(engine.error());
  auto attention = backend_api::hearing::make_attention((*engine)->descriptor_number());
  if (!attention) return tl::unexpected(attention.error());
  auto words = std::make_shared<const speech>(speech::settings{
      .prefix = where->prefix, .client = redis::fresh_client_number(), .owner = request.owner});
  quorum::settings machine{
      .nodes = {.names = {},
                .initialise = where->initialise,
                .force = where->force,
                .max_lease = where->max_lease,
                .fresh_store = std::string(redis::view(redis::hex_of(id_from_kernel()))),
                .replace = wanted_in(*where)},
      .fresh_id = &id_from_kernel,
      .seed = base::kernel_seed(),
      .hearing_patience = hearing_patience};
  for (const net::endpoint& each : where->servers) machine.nodes.names.push_back(each.describe());
  auto made =
      std::make_shared<session>(std::move(*where), request.listener, std::move(*engine),
                                std::move(*attention), std::move(words), std::move(machine));
  if (auto done = made->connect(request); !done) {
    made->close();
    return tl::unexpected(done.error());
  }
  return made;
}

session::session(redis::address where, backend_api::events& listener,
                 std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention,
                 std::shared_ptr<const speech> words, quorum::settings machine)
    : address_(std::move(where)),
      listener_(listener),
      pump_(std::move(engine)),
      speech_(std::move(words)),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      identity_("redlock", address_.store, redis::place_of(address_)),
      machine_(std::move(machine), *speech_) {}

base::result<std::monostate> session::connect(const backend_api::open_request& request) {
  timer_ = std::make_shared<timer>(weak_from_this(), pump_);
  timer_->number = pump_->enroll(timer_);
  node_number number = 0;
  for (const net::endpoint& each : address_.servers) {
    auto made = member::make(pump_, number++,
                             {.where = each,
                              .tls = address_.tls,
                              .user = address_.user,
                              .password = address_.password,
                              .client_name = redis::client_name_for(address_, request.owner),
                              .database = static_cast<int>(address_.database),
                              .connect_timeout = 2s},
                             speech_, weak_from_this());
    if (!made) return tl::unexpected(made.error());
    members_.push_back(std::move(*made));
  }
  for (const auto& each : members_) each->commands().want();
  if (auto done = finish_replacing(); !done) return tl::unexpected(done.error());
  wait_for_majority();
  describe();
  const base::mutex_lock lock(mutex_);
  const membership& nodes = machine_.nodes();
  base::failure why = nodes.trouble(lease_clock::now());
  const bool as_asked = !address_.initialise || (!nodes.initialising() && nodes.is_as_listed());
  if (!as_asked) return tl::unexpected(std::move(why));
  if (count(nodes.voters()) >= nodes.majority() && nodes.missing().empty()) return std::monostate{};
  // Nodes that are not initialised, or not ours, do not get better by waiting.
  if (why.code == errc::store_refused) return tl::unexpected(std::move(why));
  return std::monostate{};
}

base::result<std::monostate> session::finish_replacing() {
  if (address_.old_member.empty()) return std::monostate{};
  time_point until = lease_clock::now() + initialising_patience;
  bool told = false;
  for (time_point now = lease_clock::now();; now = lease_clock::now()) {
    {
      const base::mutex_lock lock(mutex_);
      const membership& nodes = machine_.nodes();
      if (nodes.replaced()) {
        if (!*nodes.replaced()) return tl::unexpected(nodes.replaced()->error());
        if (!address_.until_it_votes || nodes.votes(address_.new_member)) return std::monostate{};
        // From now on it is a member like others that come without data.
        if (!std::exchange(told, true)) until = now + nodes.quiet_time() + initialising_patience;
      }
      if (now >= until) {
        base::failure why = nodes.trouble(now);
        return base::fail(errc::unavailable,
                          (told ? address_.old_member + " was replaced, but " +
                                      address_.new_member + " does not vote yet: "
                                : address_.old_member + " was not replaced, or not by all: ") +
                              why.detail);
      }
    }
    pump_->run_once(until);
  }
}

void session::wait_for_majority() {
  const time_point until =
      lease_clock::now() + (address_.initialise ? initialising_patience : opening_patience);
  time_point enough = until;
  for (time_point now = lease_clock::now(); now < enough; now = lease_clock::now()) {
    {
      const base::mutex_lock lock(mutex_);
      const membership& nodes = machine_.nodes();
      const bool majority = count(nodes.voters()) >= nodes.majority();
      if (count(nodes.voters()) == nodes.size()) return;
      const bool all_tried = tried_ == (1U << nodes.listed()) - 1;
      const bool settled = all_tried && !nodes.under_way();
      if (settled && (!address_.initialise || nodes.trouble(now).code == errc::store_refused)) {
        return;
      }
      // The others are probably on their way, too.
      if (majority && !address_.initialise && !nodes.list_in_doubt()) {
        enough = std::min(enough, now + stragglers_patience);
      }
    }
    pump_->run_once(enough);
  }
}

void session::describe() {
  const base::mutex_lock lock(mutex_);
  const membership& nodes = machine_.nodes();
  capabilities_.fencing = true;
  capabilities_.direct_handoff = true;
  capabilities_.survives_store_restart = nodes.durable();
  capabilities_.min_lease = 100ms;
  capabilities_.max_lease = nodes.max_lease();
  capabilities_.expiry_granularity = 2ms;
  capabilities_.store_id = identity_.id();
  capabilities_.caveats = {
      "Leases end by the nodes' wall clocks: a step of a majority's clocks, or of one node's when "
      "the holder has a bare majority, can let two in. Tokens keep their order; fence what must "
      "not be written by a late holder.",
      "Waiters are served in the order of their coming as far as the nodes agree on it; clients of "
      "other libraries on the same nodes do not stand in the line at all.",
      "Tokens keep their order as long as no majority of the nodes loses its data at the same "
      "time.",
  };
  if (!nodes.durable()) {
    capabilities_.caveats.emplace_back(
        "A node forgets what it said when it restarts (appendonly yes with appendfsync always "
        "would keep it). It then votes again only after the longest lease, " +
        std::to_string(nodes.max_lease().count()) +
        " ms, has passed, and until then fewer other "
        "nodes may fail.");
  }
  for (std::string& each : nodes.complaints(lease_clock::now())) {
    capabilities_.caveats.push_back("When the client was opened: " + std::move(each) + ".");
  }
  for (const auto& each : members_) {
    const auto facts = each->facts();
    if (facts && !facts->eviction.empty() && facts->eviction != "noeviction") {
      capabilities_.caveats.push_back("A node's maxmemory-policy is " + facts->eviction +
                                      ": under memory pressure it may delete locks, and the "
                                      "counter of tokens. Set it to noeviction.");
      break;
    }
  }
}

bool session::stragglers() {
  node_set there = 0;
  {
    const base::mutex_lock lock(mutex_);
    if (working_ || !to_do_.empty()) return true;
    there = machine_.nodes().reachable();
  }
  for (node_number node = 0; node < members_.size(); ++node) {
    if ((there & only(node)) != 0 && members_[node]->unfinished()) return true;
  }
  return false;
}

void session::settle(time_point deadline) {
  // A node that is behind has a bid of ours and its farewell in the same connection, unread. It answers
  // the bid, finds that nobody is there any more, and drops the rest.
  constexpr duration look_again = std::chrono::milliseconds{1};
  // One that is behind needs milliseconds. One that hangs is not worth more: its votes lapse.
  constexpr duration longest = std::chrono::milliseconds{300};
  deadline = std::min(deadline, lease_clock::now() + longest);
  const auto alive = shared_from_this();
  backend_api::drive_ticket never;
  for (time_point now = lease_clock::now(); now < deadline && stragglers();
       now = lease_clock::now()) {
    const auto outcome = hearing_.drive(never, std::min(deadline, now + look_again));
    if (outcome == backend_api::drive_outcome::not_driven) return;
  }
}

void session::close() {
  for (const auto& each : members_) each->close();
  if (timer_) pump_->dismiss(timer_->number);
  if (gate_.close()) pump_->ring();
}

// ---- steps ---------------------------------------------------------------------------------------

template <class Step>
void session::step(Step&& what) {
  time_point wake;
  bool listen = false;
  bool reach = false;
  std::string store;
  {
    const base::mutex_lock lock(mutex_);
    quorum_actions out;
    what(machine_, lease_clock::now(), out);
    const membership& nodes = machine_.nodes();
    if (nodes.store() != named_ && count(nodes.voters()) >= nodes.majority()) {
      store = named_ = nodes.store();
    }
    listen = out.listen;
    reach = out.reach;
    for (quorum_action& each : out.all) to_do_.push_back(std::move(each));
    wake = machine_.wake_at();
  }
  // Votes, and with them grants, are asked for after this.
  if (!store.empty()) static_cast<void>(identity_.learn(store));
  timer_->set(wake);
  if (listen) {
    for (const auto& each : members_) each->listen();
  }
  if (reach) {
    for (const auto& each : members_) each->commands().want();
  }
  work_off();
}

void session::work_off() {
  for (;;) {
    std::optional<quorum_action> next;
    {
      const base::mutex_lock lock(mutex_);
      // Whoever is at it comes to what was added just now, in this order.
      if (!next && (working_ || to_do_.empty())) return;
      working_ = true;
      next.emplace(std::move(to_do_.front()));
      to_do_.pop_front();
    }
    carry_out(*next);
    const base::mutex_lock lock(mutex_);
    working_ = false;
  }
}

void session::carry_out(quorum_action& what) {
  if (auto* const sent = std::get_if<delivery>(&what)) {
    const node_number node = sent->why.node;
    auto command = std::make_unique<order>(*this, sent->why, std::move(sent->mark));
    command->command = std::move(sent->command);
    command->answer_by = sent->answer_by;
    command->order_key = sent->why.holder;
    members_[node]->commands().send(std::move(command));
  } else {
    backend_api::tell(listener_, what);
  }
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (request.kind != lock_kind::mutex) {
        listener_.acquire_answered(request.holder,
                                   base::fail(errc::not_supported, "redlock has mutexes only"));
        return;
      }
      if (!request.driven) {
        if (!request.asked_before) undriven_waiters_.store(true, std::memory_order_relaxed);
        hearing_.be_heard();
      }
      step([&](quorum& machine, time_point now, quorum_actions& out) {
        machine.acquire(request, now, out);
      });
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::renew(std::span<const renew_request> batch) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    for (const renew_request& each : batch) {
      std::array<renew_outcome, 1> outcome{{{each.holder, tl::unexpected(closed_failure())}}};
      listener_.renewals_answered(outcome);
    }
    return;
  }
  hearing_.be_heard();
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    for (const renew_request& each : batch) machine.renew(each, now, out);
  });
}

void session::leave(const leave_request& request, bool withdraw) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (!request.driven) hearing_.be_heard();
      step([&](quorum& machine, time_point now, quorum_actions& out) {
        machine.leave(request, withdraw, now, out);
      });
      return;
    }
  }
  listener_.leave_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::downgrade(const renew_request& request) {
  listener_.downgrade_answered(request.holder,
                               base::fail(errc::not_supported, "redlock has mutexes only"));
}

void session::set_value(const renew_request& /*holder*/, std::string_view /*value*/,
                        const completion<bool>& done) {
  done(base::fail(errc::not_supported, "redlock has mutexes only"));
}

// ---- what comes unasked --------------------------------------------------------------------------

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

backend_api::urgency session::unfinished() {
  using backend_api::urgency;
  if (undriven_waiters_.load(std::memory_order_relaxed)) return urgency::now;
  {
    const base::mutex_lock lock(mutex_);
    // Nodes that are away are looked for, and those that came back without their data are minded.
    const membership& nodes = machine_.nodes();
    if (!machine_.idle() || count(nodes.voters()) < nodes.size()) return urgency::later;
  }
  // What a majority has decided, the others' answers seldom change.
  const bool stragglers = std::any_of(members_.begin(), members_.end(),
                                      [](const auto& each) { return each->unfinished(); });
  return stragglers ? urgency::later : urgency::nothing;
}

void session::timer_due(time_point) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  step([](quorum& machine, time_point now, quorum_actions& out) { machine.on_timer(now, out); });
}

void session::member_up(node_number which, const node_facts& facts) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  {
    const base::mutex_lock lock(mutex_);
    tried_ |= only(which);
  }
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.node_up(which, facts, now, out);
  });
}

void session::member_down(node_number which, const base::failure& why) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  {
    const base::mutex_lock lock(mutex_);
    tried_ |= only(which);
  }
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.node_down(which, why, now, out);
  });
}

void session::member_said(node_number which, std::string_view message) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  step([&](quorum& machine, time_point now, quorum_actions& out) {
    machine.heard(which, message, now, out);
  });
}

void session::member_heard(node_number which) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  bool all = false;
  {
    const base::mutex_lock lock(mutex_);
    machine_.node_heard(which, true);
    heard_ |= only(which);
    all = (machine_.nodes().voters() & ~heard_) == 0;
  }
  // Whoever waited for it stands in line now, and whoever stood there unheard does so again.
  if (all) listener_.reconnected();
}

void session::member_deaf(node_number which) {
  const base::mutex_lock lock(mutex_);
  machine_.node_heard(which, false);
  heard_ &= ~only(which);
}

}  // namespace sallyport::backends::redlock

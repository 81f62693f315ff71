#include "client/client_state.hpp"

#include "base/check.hpp"
#include "base/random.hpp"
#include "client/registry.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::detail {
namespace {

using namespace std::chrono_literals;

/// How long a client that closes waits for the store to hear of its last releases and withdrawals.
constexpr std::chrono::milliseconds departure_patience = 1s;

/// Behind this thread's last std::error_code.
struct reported {
  std::error_code code;
  std::string sentence;
};
thread_local reported last_reported;

constexpr std::string_view inherited = "this handle was inherited through fork()";

/// A blocked acquire: finished by whichever thread ends it.
class blocking_acquire final : public runtime::acquire_waiter {
 public:
  blocking_acquire() { drives = true; }
  void finished() noexcept override { ticket.finish(); }
  backend_api::drive_ticket ticket;
};

class blocking_word final : public runtime::word_waiter {
 public:
  blocking_word() { drives = true; }
  void finished() noexcept override { ticket.finish(); }
  backend_api::drive_ticket ticket;
};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

[[noreturn]] void refuse(errc code, const std::string& sentence) {
  throw_failure(base::failure{make_error_code(code), sentence});
}

std::string in_ms(std::chrono::milliseconds span) { return std::to_string(span.count()) + " ms"; }

void validate(const client_options& options) {
  if (!(options.clock_drift >= 0.0 && options.clock_drift < 0.5)) {
    refuse(errc::bad_option, "client_options::clock_drift must be at least 0 and below 0.5");
  }
  if (options.request_timeout < 1ms || options.heartbeat < 10ms || options.store_patience < 0ms ||
      options.request_timeout > 24h || options.heartbeat > 24h) {
    refuse(errc::bad_option,
           "client_options: request_timeout must be 1 ms to 24 h, heartbeat 10 ms to 24 h");
  }
  if (options.max_waiters_per_name == 0) {
    refuse(errc::bad_option, "client_options::max_waiters_per_name must be at least 1");
  }
}

}  // namespace

void report(std::error_code& error, std::error_code code, std::string_view sentence) noexcept {
  error = code;
  last_reported.code = code;
  try {
    last_reported.sentence = sentence;
  } catch (const std::bad_alloc&) {
    last_reported.sentence.clear();  // the code has words of its own
  }
}

void throw_failure(const base::failure& why) {
  throw lock_error(why.code, why.detail.empty() ? "sallyport" : why.detail);
}

void throw_failure(const std::error_code& error) { throw to_lock_error(error); }

namespace {

std::shared_ptr<const runtime::audience> observers_of(const client_options& options) {
  std::vector<std::shared_ptr<observer>> all = options.watchers;
  all.insert(all.begin(), options.watcher);
  std::erase(all, nullptr);
  return all.empty() ? nullptr : std::make_shared<const runtime::audience>(std::move(all));
}

}  // namespace

client_state::innards::innards(client_state& owner, const client_options& options,
                               const std::shared_ptr<const runtime::audience>& observers)
    : world(
          [this] {
            engine.run_due();
            observed.run_due();
          },
          [observers](std::uint64_t events) {
            if (observers) observers->tell(&observer::missed, events);
          }),
      engine(world, {.max_waiters_per_name = options.max_waiters_per_name,
                     .observers = observers,
                     .seed = base::kernel_seed()}),
      observed(owner, options.heartbeat, options.request_timeout) {}

std::shared_ptr<client_state> client_state::open(std::string_view uri, client_options options) {
  return std::make_shared<client_state>(uri, std::move(options));
}

namespace {

const backend_api::backend_descriptor& backend_for(std::string_view address,
                                                   const std::string& modules) {
  const auto colon = address.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    refuse(errc::bad_uri, "a store's address begins with its scheme, for example memory:");
  }
  // What `sallyport run` gives to its command in place of an address that holds a secret.
  if (address.starts_with("withheld:")) {
    refuse(errc::bad_uri,
           "the store's address (" + std::string(address.substr(9)) +
               ") was withheld from this command by 'sallyport run', because it needs a "
               "secret: name the store again (--store, SALLYPORT_STORE) with a "
               "password_file that the command may read");
  }
  const auto found = client_detail::find_backend(address.substr(0, colon), modules);
  if (!found) throw_failure(found.error());
  return **found;
}

}  // namespace

std::string client_state::schema(std::string_view uri, const client_options& options) {
  const backend_api::backend_descriptor& backend =
      backend_for(uri.empty() ? "local:" : uri, options.modules);
  if (backend.schema == nullptr) {
    refuse(errc::not_supported, "this store needs no tables, nor anything else to be made first");
  }
  auto text = backend.schema(uri);
  if (!text) throw_failure(text.error());
  return std::move(*text);
}

client_state::client_state(std::string_view uri, client_options options)
    : options_(std::move(options)),
      observers_(observers_of(options_)),
      born_(base::fork_generation()) {
  validate(options_);
  const std::string_view address = uri.empty() ? std::string_view{"local:"} : uri;
  const backend_api::backend_descriptor& found = backend_for(address, options_.modules);
  inside_ = std::make_unique<innards>(*this, options_, observers_);
  const std::string label = options_.label.empty() ? program_invocation_short_name : options_.label;
  auto opened = found.open({.uri = std::string(address),
                            .owner = {.host = host_name(),
                                      .pid = getpid(),
                                      .label = label,
                                      .companion_pid = options_.companion_pid},
                            .listener = inside_->engine});
  if (!opened) throw_failure(opened.error());
  inside_->store = std::move(*opened);
  inside_->engine.attach(*inside_->store);
  if (const int descriptor = inside_->store->attention_fd(); descriptor >= 0) {
    inside_->world.listen(descriptor, [store = inside_->store.get()] { store->attend(); });
  }
  inside_->engine.on_changed([this](const lock_name& name) { inside_->observed.changed(name); });
}

client_state::~client_state() {
  if (!alive()) {
    // A forked child has none of the threads, and a mutex may have been held at the fork: leave all
    // as it is.
    static_cast<void>(inside_.release());
    return;
  }
  if (!inside_ || !inside_->store) return;
  say_farewell();
  // From the outside in: nothing may call into what is gone already.
  inside_->world.stop_timers();
  inside_->store->close();
  inside_->world.stop_news();
}

void client_state::say_farewell() {
  // A withdrawal that nobody waited for may be under way, or a question that was overtaken by its
  // contender's release. Whoever hears of it later is gone, and a lease would be left behind.
  backend_api::drive_ticket& done = inside_->last_word.ticket;
  engine().depart(inside_->last_word);
  const auto until = lease_clock::now() + std::min(departure_patience, options_.request_timeout);
  for (auto now = lease_clock::now(); now < until && !done.finished(); now = lease_clock::now()) {
    done.wait_for(until - now);
  }
  try {
    inside_->store->settle(until);
  } catch (const std::bad_alloc&) {
    return;  // what it did not hear lapses
  }
}

base::failure client_state::dead_in_child() const {
  if (alive()) return {};
  return {make_error_code(errc::forked),
          "this handle was inherited through fork(); open a client of your own in the child"};
}

void client_state::ensure_alive() const {
  if (const base::failure problem = dead_in_child(); problem.code) throw_failure(problem);
}

std::shared_ptr<const runtime::lock_spec> client_state::make_spec(
    const lock_name& name, lock_kind kind, lock_mode mode, std::uint32_t permits,
    const lock_options& options) const {
  ensure_alive();
  const sallyport::capabilities& store = can();
  if (options.lease_length < store.min_lease || options.lease_length > store.max_lease) {
    refuse(errc::bad_option, "lease_length is " + in_ms(options.lease_length) +
                                 "; this store allows " + in_ms(store.min_lease) + " to " +
                                 in_ms(store.max_lease));
  }
  if (options.local_turns == 0 || options.local_turns > 1'000'000 ||
      options.local_turn_time < 0ms) {
    refuse(errc::bad_option, "local_turns must be 1 to 1,000,000 and local_turn_time not negative");
  }
  if (options.require_fencing && (!store.fencing || kind == lock_kind::semaphore)) {
    refuse(errc::not_supported,
           kind == lock_kind::semaphore
               ? "require_fencing: semaphore permits carry no fencing token"
               : "require_fencing: this store does not promise fencing tokens");
  }
  const bool supported = kind == lock_kind::mutex ||
                         (kind == lock_kind::shared_mutex && store.shared_locks) ||
                         (kind == lock_kind::semaphore && store.semaphores) ||
                         (kind == lock_kind::election && store.elections);
  if (!supported) {
    refuse(errc::not_supported, "this store has no " + std::string(to_string(kind)));
  }
  runtime::lock_spec spec{
      .name = name,
      .kind = kind,
      .mode = mode,
      .permits = permits,
      .local_turns = 1,
      .local_turn_time = options.local_turn_time,
      .times = core::make_timing({.lease_length = options.lease_length,
                                  .renew = options.renew,
                                  .lease_granularity = store.lease_granularity,
                                  .expiry_granularity = store.expiry_granularity,
                                  .clock_drift = options_.clock_drift,
                                  .heartbeat = options_.heartbeat,
                                  .request_timeout = options_.request_timeout,
                                  .store_patience = options_.store_patience,
                                  .claim_delay = inside_->store->claim_delay()})};
  if (2 * spec.times.margin > spec.times.lease_length) {
    refuse(errc::bad_option,
           "clock_drift and the store's own inaccuracy leave less than half of so short a lease; "
           "use a longer lease_length");
  }
  const bool may_pass =
      mode == lock_mode::exclusive && (kind == lock_kind::mutex || kind == lock_kind::shared_mutex);
  if (may_pass) spec.local_turns = options.local_turns;
  return std::make_shared<const runtime::lock_spec>(std::move(spec));
}

namespace {

backend_api::drive_outcome drive_once(backend_api::backend& store,
                                      backend_api::drive_ticket& ticket) {
  try {
    return store.drive(ticket, lease_clock::time_point::max());
  } catch (const std::bad_alloc&) {
    return backend_api::drive_outcome::no_memory;
  }
}

}  // namespace

bool client_state::drive(backend_api::drive_ticket& ticket) noexcept {
  while (!ticket.finished()) {
    switch (drive_once(store(), ticket)) {
      case backend_api::drive_outcome::finished:
      case backend_api::drive_outcome::deadline_passed:
        break;
      case backend_api::drive_outcome::not_driven:
        ticket.wait();
        return true;
      case backend_api::drive_outcome::no_memory:
        return false;
    }
  }
  return true;
}

void client_state::wait(backend_api::drive_ticket& ticket) noexcept {
  if (!drive(ticket)) ticket.wait();
}

std::error_code client_state::start_threads(bool news) noexcept {
  std::error_code problem = world().start_timers();
  if (!problem && news) problem = world().start_news();
  if (!problem) return {};
  return make_error_code(problem == std::errc::not_enough_memory ? errc::not_enough_memory
                                                                 : errc::no_thread);
}

std::shared_ptr<runtime::lease_record> client_state::acquire(
    const std::shared_ptr<const runtime::lock_spec>& spec, lease_clock::time_point until,
    const std::stop_token& stop, std::string_view value, std::error_code& error) noexcept {
  error.clear();
  if (!alive()) {
    report(error, errc::forked, inherited);
    return nullptr;
  }
  if (stop.stop_requested()) return nullptr;
  // Before anything is sent: a grant without a watchdog could not be kept, nor be given back.
  if (const std::error_code problem = start_threads(observers_ != nullptr)) {
    report(error, problem);
    return nullptr;
  }
  blocking_acquire call;
  engine().acquire(call, spec, until, value);
  if (!call.ticket.finished()) {
    const std::stop_callback on_stop{stop, [&] { engine().cancel(call); }};
    if (!drive(call.ticket)) {
      engine().give_up(call, {make_error_code(errc::not_enough_memory), {}});
      call.ticket.wait();
    }
  }
  auto* const record = std::get_if<std::shared_ptr<runtime::lease_record>>(&call.outcome());
  if (record != nullptr) return std::move(*record);
  // The time may have been up before this thread came to hear; what it asked is still under way.
  static_cast<void>(drive_once(store(), call.ticket));
  if (auto* why = std::get_if<base::failure>(&call.outcome())) report(error, *why);
  return nullptr;
}

release_result client_state::release(runtime::lease_record& record) noexcept {
  if (!alive()) return release_result::already_lost;
  blocking_word call;
  engine().release(record, &call);
  wait(call.ticket);
  switch (call.released) {
    case core::release_outcome::released:
      return release_result::released;
    case core::release_outcome::already_lost:
      return release_result::already_lost;
    case core::release_outcome::unknown:
      return release_result::unknown;
  }
  return release_result::unknown;
}

void client_state::claim(runtime::lease_record& record) {
  blocking_word call;
  engine().claim_now(record, call);
  wait(call.ticket);
}

void client_state::downgrade(runtime::lease_record& record, std::error_code& error) noexcept {
  error.clear();
  if (!alive()) {
    report(error, errc::forked, inherited);
    return;
  }
  blocking_word call;
  engine().downgrade(record, call);
  wait(call.ticket);
  if (call.failed) report(error, *call.failed);
}

lease client_state::make_lease(std::shared_ptr<runtime::lease_record> record,
                               std::shared_ptr<entry> entered) {
  return lease{shared_from_this(), std::move(record), std::move(entered)};
}

lease_view client_state::make_view(std::shared_ptr<runtime::lease_record> record) {
  return lease_view{shared_from_this(), std::move(record)};
}

}  // namespace sallyport::detail

namespace sallyport {

lock_error to_lock_error(const std::error_code& error) {
  SALLYPORT_CHECK(error);
  const auto& [code, sentence] = detail::last_reported;
  return {error, code == error && !sentence.empty() ? sentence : std::string("sallyport")};
}

}  // namespace sallyport

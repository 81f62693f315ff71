#include "backends/local/local_backend.hpp"

#include "backends/local/local_store.hpp"
#include "backends/local/machine.hpp"
#include "backends/local/place.hpp"
#include "backends/local/session.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends {

namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::completion;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backend_api::time_point;
using local::client_number;
using local::contender_number;
using local::lock_rules;
using local::placed;

std::string scope_of(const local::local_store& store, const local::store_address& address) {
  if (address.machine) {
    return "The processes of " + local::users_of_machine_store(store.folder()) +
           " on this machine see these locks; those of other machines do not.";
  }
  if (address.path.empty()) {
    return "All processes of this user on this machine see these locks; those of other users and "
           "of "
           "other machines do not. All users of a machine share local:machine.";
  }
  return "The processes of this machine whose users may use the folder see these locks; those of "
         "other machines do not.";
}

sallyport::capabilities capabilities_of(const local::local_store& store,
                                        const local::store_address& address) {
  sallyport::capabilities all;
  all.fencing = true;
  all.fifo = true;
  all.direct_handoff = true;
  all.shared_locks = true;
  all.semaphores = true;
  all.elections = true;
  all.notices_death = true;
  all.tells_kind = true;
  all.survives_store_restart = true;
  all.min_lease = 100ms;
  all.max_lease = 24h;
  all.store_id = store.id();
  all.caveats = {
      scope_of(store, address),
      "A reboot frees every lock; tokens go on growing.",
      "A process that is stopped (SIGSTOP, a debugger) in the microseconds in which it is inside "
      "the store keeps all others out of it until it is continued or ended.",
  };
  return all;
}

/// A result inside a result, as one.
template <class T>
base::result<T> flat(base::result<base::result<T>>&& nested) {
  if (!nested) return tl::unexpected(std::move(nested.error()));
  return std::move(*nested);
}

/// The answer without its place, which the session keeps.
template <class T>
base::result<T> answer_of(base::result<placed<T>>&& placed_answer) {
  if (!placed_answer) return tl::unexpected(std::move(placed_answer.error()));
  return std::move(placed_answer->answer);
}

/// One client of a local store. Every request is a transaction in the calling thread and answered
/// inside its own call.
/// Thread safety: all members, as `backend` says. After a callback nothing of `this` is touched:
/// the callback may have closed the client.
class local_client final : public backend_api::backend {
 public:
  local_client(std::shared_ptr<local::session> session, sallyport::capabilities can)
      : session_(std::move(session)), capabilities_(std::move(can)) {}
  ~local_client() override { local_client::close(); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return capabilities_;
  }

  void acquire(const backend_api::acquire_request& request) override {
    local::session& here = *session_;
    const holder_id who = request.holder;
    const contender_number known = here.known(who);
    // Without its number a contender that is in the store could not be taken out of it.
    if (known == 0) here.expect(who);
    if (known != 0) here.be_heard();
    here.ask(
        known != 0 ? shortly(request.answer_by) : request.answer_by,
        [&](lock_rules& rules) { return rules.acquire(request, here.self(), known); },
        [&](auto result) {
          auto answer = flat(std::move(result));
          if (answer && answer->number != 0) {
            here.remember(who, answer->number, answer->in_the_way);
          } else if (known == 0) {
            here.forget(who);
          }
          here.listener().acquire_answered(who, answer_of(std::move(answer)));
        });
  }

  void renew(std::span<const renew_request> batch) override;

  void release(const leave_request& request) override { leave(request, false); }
  void withdraw(const leave_request& request) override { leave(request, true); }

  void downgrade(const renew_request& request) override {
    local::session& here = *session_;
    const holder_id who = request.holder;
    const contender_number known = here.known(who);
    here.ask(
        request.answer_by, [&](lock_rules& rules) { return rules.downgrade(request, known); },
        [&](auto result) {
          here.listener().downgrade_answered(who, answer_of(flat(std::move(result))));
        });
  }

  void set_value(const renew_request& holder, std::string_view value,
                 completion<bool> done) override {
    const contender_number known = session_->known(holder.holder);
    session_->ask(
        holder.answer_by, [&](lock_rules& rules) { return rules.set_value(holder, value, known); },
        [&](auto result) { done(std::move(result)); });
  }

  void watch(const lock_name& name, bool on) override {
    local::session& here = *session_;
    here.be_heard();
    here.ask(
        soon(),
        [&](lock_rules& rules) {
          rules.watch(here.self(), name, on);
          return true;
        },
        [](const auto&) {});
  }

  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            completion<std::vector<lock_info>> done) override {
    session_->ask(
        patiently(), [&](lock_rules& rules) { return rules.list(prefix, after, limit); },
        [&](auto result) { done(std::move(result)); });
  }

  void who(const lock_name& name, completion<std::optional<lock_info>> done) override {
    session_->ask(
        patiently(), [&](lock_rules& rules) { return rules.who(name); },
        [&](auto result) { done(std::move(result)); });
  }

  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  completion<std::monostate> done) override {
    session_->ask(
        patiently(), [&](lock_rules& rules) { return rules.break_lock(name, observed, mode); },
        [&](auto result) { done(flat(std::move(result))); });
  }

  [[nodiscard]] backend_api::duration claim_delay() const override { return 20ms; }

  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket,
                                   time_point deadline) override {
    return session_->drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const override { return session_->attention_fd(); }
  void attend() override { session_->attend(); }
  void close() override { session_->close(); }

 private:
  static time_point soon() {
    return lease_clock::now() + local::local_store::patience_with_the_stopped;
  }

  /// For callers who wait for the answer, with nothing else to do.
  static time_point patiently() {
    return lease_clock::now() + local::local_store::patience_in_a_crowd;
  }

  /// Renewals and heartbeats come from the thread that also tells losses: behind a gate that does
  /// not open it must not stand longer than this. They are sent again.
  static constexpr std::chrono::milliseconds patience_of_the_watchdog{20};
  static time_point shortly(time_point answer_by) {
    return std::min(answer_by, lease_clock::now() + patience_of_the_watchdog);
  }

  void leave(const leave_request& request, bool withdrawn) {
    local::session& here = *session_;
    const holder_id who = request.holder;
    const contender_number known = here.known(who);
    here.ask(
        request.answer_by,
        [&](lock_rules& rules) {
          return withdrawn ? rules.withdraw(request, known) : rules.release(request, known);
        },
        [&](base::result<leave_answer> answer) {
          if (answer) here.left(who, withdrawn, *answer);
          here.listener().leave_answered(who, std::move(answer));
        });
  }

  void renew_into(std::span<renew_outcome> outcomes, std::span<const renew_request> batch);

  const std::shared_ptr<local::session> session_;
  const sallyport::capabilities capabilities_;
};

void local_client::renew(std::span<const renew_request> batch) {
  // A lone lease is the common case; its renewal needs no allocation.
  if (batch.size() == 1) {
    std::array<renew_outcome, 1> outcome;
    renew_into(outcome, batch);
  } else if (!batch.empty()) {
    std::vector<renew_outcome> outcomes(batch.size());
    renew_into(outcomes, batch);
  }
}

void local_client::renew_into(std::span<renew_outcome> outcomes,
                              std::span<const renew_request> batch) {
  local::session& here = *session_;
  here.be_heard();
  time_point answer_by = shortly(batch.front().answer_by);
  for (const renew_request& each : batch) answer_by = std::min(answer_by, each.answer_by);
  here.ask(
      answer_by,
      [&](lock_rules& rules) {
        // Remembered even if the transaction fails: what is watched in vain does no harm.
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const contender_number known = here.known(batch[i].holder);
          auto one = rules.renew(batch[i], known);
          if (one.number != 0) here.remember(batch[i].holder, one.number, one.in_the_way);
          outcomes[i] = {batch[i].holder, std::move(one.answer)};
        }
        return true;
      },
      [&](const base::result<bool>& done) {
        for (std::size_t i = 0; i < batch.size(); ++i) {
          if (!done) outcomes[i] = {batch[i].holder, tl::unexpected(done.error())};
        }
        here.listener().renewals_answered(outcomes);
      });
}

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  const auto address = local::parse_address(request.uri);
  if (!address) return tl::unexpected(address.error());
  auto store = local::local_store::find_or_open(*address);
  if (!store) return tl::unexpected(store.error());
  auto can = capabilities_of(**store, *address);
  if (!address->store.empty()) can.store_id = "local:" + address->store;
  auto session = local::session::open(std::move(*store), request);
  if (!session) return tl::unexpected(session.error());
  return std::make_unique<local_client>(std::move(*session), std::move(can));
}

constexpr std::array<std::string_view, 1> schemes{"local"};

}  // namespace

const backend_api::backend_descriptor& local_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes,
      "all processes of this user, without a server; local:machine for all users of this machine",
      &open};
  return descriptor;
}

}  // namespace sallyport::backends

#include "backends/memory/memory_backend.hpp"

#include "backend_api/delivery_gate.hpp"
#include "backends/memory/lock_table.hpp"
#include "backends/memory/memory_store.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends {

namespace {

using namespace std::chrono_literals;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backend_api::time_point;
using memory::delivery;
using memory::lock_table;
using memory::memory_store;
using memory::notice;
using memory::session;

using notices = std::vector<notice>;

/// One client of a memory_store.
/// Thread safety: all members, as `backend` says. Every request passes the session's gate from
/// before its operation until its answer and notices are delivered: close() waits for it, so an
/// accepted request is always answered. After the first callback a request no longer touches
/// `this`: the callback may have closed the client.
class memory_client final : public backend_api::backend {
 public:
  memory_client(std::shared_ptr<memory_store> store, const backend_api::open_request& request);
  ~memory_client() override { memory_client::close(); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return capabilities_;
  }

  void acquire(const backend_api::acquire_request& request) override {
    const holder_id who = request.holder;
    ask([&](lock_table& table, time_point now,
            notices& told) { return table.acquire(request, session_->self, now, told); },
        [&](session& self, auto answer) {
          self.listener.acquire_answered(who, std::move(answer));
        });
  }

  void renew(std::span<const renew_request> batch) override;

  void release(const leave_request& request) override { leave(request, &lock_table::release); }
  void withdraw(const leave_request& request) override { leave(request, &lock_table::withdraw); }

  void downgrade(const renew_request& request) override {
    const holder_id who = request.holder;
    ask([&](lock_table& table, time_point now,
            notices& told) { return table.downgrade(request, now, told); },
        [&](session& self, auto answer) {
          self.listener.downgrade_answered(who, std::move(answer));
        });
  }

  void set_value(const renew_request& holder, std::string_view value,
                 completion<bool> done) override {
    ask(
        [&](lock_table& table, time_point now, notices& told) -> base::result<bool> {
          return table.set_value(holder, value, now, told);
        },
        [&](session&, auto answer) { done(std::move(answer)); });
  }

  void watch(const lock_name& name, bool on) override {
    const delivery_gate::pass pass(session_->gate);
    if (!pass.open()) return;
    std::vector<delivery> none;
    store_->perform(none, [&](lock_table& table, time_point, notices&) {
      table.watch(session_->self.client, name, on);
      return true;
    });
  }

  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            completion<std::vector<lock_info>> done) override {
    ask(
        [&](lock_table& table, time_point now,
            notices& told) -> base::result<std::vector<lock_info>> {
          return table.list(prefix, after, limit, now, told);
        },
        [&](session&, auto answer) { done(std::move(answer)); });
  }

  void who(const lock_name& name, completion<std::optional<lock_info>> done) override {
    ask([&](lock_table& table, time_point now, notices& told)
            -> base::result<std::optional<lock_info>> { return table.who(name, now, told); },
        [&](session&, auto answer) { done(std::move(answer)); });
  }

  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  completion<std::monostate> done) override {
    ask([&](lock_table& table, time_point now,
            notices& told) { return table.break_lock(name, observed, mode, now, told); },
        [&](session&, auto answer) { done(std::move(answer)); });
  }

  backend_api::drive_outcome drive(backend_api::drive_ticket&, time_point) override {
    return backend_api::drive_outcome::not_driven;
  }

  void close() override {
    if (!session_->gate.close()) return;
    store_->leave(*session_);
    store_.reset();
  }

 private:
  /// Runs operate(table, now, notices), hands its result to answer(session, result), then delivers
  /// the notices.
  template <class Operate, class Answer>
  void ask(Operate operate, Answer answer) {
    const std::shared_ptr<session> self = session_;
    const delivery_gate::pass pass(self->gate);
    if (!pass.open()) {
      using answer_type = std::invoke_result_t<Operate, lock_table&, time_point, notices&>;
      answer(*self, answer_type(tl::unexpected(closed_failure())));
      return;
    }
    std::vector<delivery> deliveries;
    answer(*self, store_->perform(deliveries, operate));
    memory::deliver(deliveries);
  }

  template <class Leave>
  void leave(const leave_request& request, Leave member) {
    const holder_id who = request.holder;
    ask(
        [&](lock_table& table, time_point now,
            notices& told) -> base::result<backend_api::leave_answer> {
          return (table.*member)(request, now, told);
        },
        [&](session& self, auto answer) { self.listener.leave_answered(who, std::move(answer)); });
  }

  void renew_into(std::span<renew_outcome> outcomes, std::span<const renew_request> batch);

  const std::shared_ptr<session> session_;
  std::shared_ptr<memory_store> store_;  // null after close; used with an open pass only
  const sallyport::capabilities capabilities_;
};

void memory_client::renew(std::span<const renew_request> batch) {
  // A lone lease is the common case; its renewal needs no allocation.
  if (batch.size() == 1) {
    std::array<renew_outcome, 1> outcome;
    renew_into(outcome, batch);
  } else if (!batch.empty()) {
    std::vector<renew_outcome> outcomes(batch.size());
    renew_into(outcomes, batch);
  }
}

void memory_client::renew_into(std::span<renew_outcome> outcomes,
                               std::span<const renew_request> batch) {
  const std::shared_ptr<session> self = session_;
  const delivery_gate::pass pass(self->gate);
  std::vector<delivery> deliveries;
  for (std::size_t i = 0; i < batch.size(); ++i) outcomes[i].holder = batch[i].holder;
  if (pass.open()) {
    store_->perform(deliveries, [&](lock_table& table, time_point now, notices& told) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        outcomes[i].answer = table.renew(batch[i], now, told);
      }
      return true;
    });
  } else {
    for (renew_outcome& each : outcomes) each.answer = tl::unexpected(closed_failure());
  }
  self->listener.renewals_answered(outcomes);
  memory::deliver(deliveries);
}

sallyport::capabilities capabilities_of(const memory_store& store) {
  sallyport::capabilities all;
  all.fencing = true;
  all.fifo = true;
  all.direct_handoff = true;
  all.shared_locks = true;
  all.semaphores = true;
  all.elections = true;
  all.notices_death = false;
  all.tells_kind = true;
  all.survives_store_restart = false;
  all.min_lease = 20ms;
  all.max_lease = 24h;
  all.store_id = store.id();
  all.caveats = {
      "The store is memory of this process: no other process sees these locks.",
      "Everything, tokens included, is gone when the process ends.",
  };
  return all;
}

memory_client::memory_client(std::shared_ptr<memory_store> store,
                             const backend_api::open_request& request)
    : session_(store->join(request.listener, request.owner)),
      store_(std::move(store)),
      capabilities_(capabilities_of(*store_)) {}

constexpr std::string_view scheme = "memory";
constexpr std::size_t longest_store_name = 255;

bool acceptable_store_name(std::string_view name) {
  // A leading slash would make memory://x and memory:x two stores by accident; '?' and '#' are kept
  // for options.
  return name.size() <= longest_store_name && !name.starts_with('/') &&
         std::ranges::all_of(name,
                             [](char c) { return c > ' ' && c <= '~' && c != '?' && c != '#'; });
}

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  std::string_view rest = request.uri;
  if (!rest.starts_with(scheme) || !rest.substr(scheme.size()).starts_with(':')) {
    return base::fail(errc::bad_uri, "a memory store's address is memory: or memory:NAME");
  }
  rest.remove_prefix(scheme.size() + 1);
  if (!acceptable_store_name(rest)) {
    return base::fail(
        errc::bad_uri,
        "after memory: comes nothing, or a name of up to 255 printable ASCII characters "
        "without blank, '?' and '#' that does not begin with '/'");
  }
  auto store = rest.empty() ? memory_store::make_private() : memory_store::find_or_make(rest);
  return std::make_unique<memory_client>(std::move(store), request);
}

constexpr std::array<std::string_view, 1> schemes{scheme};

}  // namespace

const backend_api::backend_descriptor& memory_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "memory of this process: for tests and for threads that want leases and tokens",
      &open};
  return descriptor;
}

}  // namespace sallyport::backends

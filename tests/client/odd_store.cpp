// Takes the place of the registry that CMake writes: an archive's member is not linked when all that it defines is
// there already.
#include "tests/client/odd_store.hpp"

#include "backend_api/backend.hpp"
#include "backends/memory/memory_backend.hpp"
#include "base/check.hpp"
#include "client/registry.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace sallyport::odd {
namespace {

using backend_api::acquire_request;
using backend_api::completion;
using backend_api::leave_request;
using backend_api::renew_request;

std::unique_ptr<oddities> current = std::make_unique<oddities>();

bool takes_one(std::atomic<int>& left) {
  int now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  return now > 0;
}

/// What a request says, with a name that lasts.
template <class Request>
auto lasting(const Request& request) {
  struct copy {
    lock_name name;
    lock_kind kind;
    lock_mode mode;
    backend_api::holder_id holder;
    backend_api::duration lease_length;
    backend_api::time_point answer_by;
  };
  copy made{request.name, request.kind, request.mode, request.holder, {}, request.answer_by};
  if constexpr (requires { request.lease_length; }) made.lease_length = request.lease_length;
  return made;
}

class odd_backend final : public backend_api::backend {
 public:
  odd_backend(std::unique_ptr<backend_api::backend> memory, backend_api::events& listener)
      : memory_(std::move(memory)), listener_(listener) {}

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return memory_->capabilities();
  }
  void acquire(const acquire_request& request) override {
    if (present().away) {
      listener_.acquire_answered(request.holder, base::fail(errc::unavailable, "not reached"));
    } else {
      memory_->acquire(request);
    }
  }
  void renew(std::span<const renew_request> batch) override {
    if (takes_one(present().renewals_without_memory)) throw std::bad_alloc();
    if (!present().keeps) return memory_->renew(batch);
    for (const renew_request& each : batch) {
      present().keep([this, was = lasting(each)] {
        const renew_request again{.name = was.name,
                                  .kind = was.kind,
                                  .mode = was.mode,
                                  .holder = was.holder,
                                  .lease_length = was.lease_length,
                                  .answer_by = was.answer_by};
        memory_->renew({&again, 1});
      });
    }
  }
  void release(const leave_request& request) override {
    if (!present().keeps) return memory_->release(request);
    present().keep([this, was = lasting(request)] {
      memory_->release({.name = was.name,
                        .kind = was.kind,
                        .mode = was.mode,
                        .holder = was.holder,
                        .answer_by = was.answer_by});
    });
  }
  void withdraw(const leave_request& request) override { memory_->withdraw(request); }
  void downgrade(const renew_request& request) override {
    if (!present().keeps) return memory_->downgrade(request);
    present().keep([this, was = lasting(request)] {
      memory_->downgrade({.name = was.name,
                          .kind = was.kind,
                          .mode = was.mode,
                          .holder = was.holder,
                          .lease_length = was.lease_length,
                          .answer_by = was.answer_by});
    });
  }
  void set_value(const renew_request& holder, std::string_view value,
                 completion<bool> done) override {
    if (!present().keeps) return memory_->set_value(holder, value, std::move(done));
    present().keep([done = std::move(done)] { done(true); });
  }
  void watch(const lock_name& name, bool on) override { memory_->watch(name, on); }
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            completion<std::vector<lock_info>> done) override {
    if (!present().lists) return done(base::fail(errc::not_supported, "it lists nothing"));
    memory_->list(prefix, after, limit, std::move(done));
  }
  void who(const lock_name& name, completion<std::optional<lock_info>> done) override {
    if (takes_one(present().readings_without_memory)) throw std::bad_alloc();
    if (present().away) return done(base::fail(errc::unavailable, "not reached"));
    if (!present().keeps) return memory_->who(name, std::move(done));
    present().keep([this, name, done = std::move(done)] { memory_->who(name, done); });
  }
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  completion<std::monostate> done) override {
    memory_->break_lock(name, observed, mode, std::move(done));
  }
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket,
                                   backend_api::time_point deadline) override {
    if (takes_one(present().drives_without_memory)) throw std::bad_alloc();
    return memory_->drive(ticket, deadline);
  }
  void close() override { memory_->close(); }

 private:
  const std::unique_ptr<backend_api::backend> memory_;
  backend_api::events& listener_;
};

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  const auto rest = request.uri.substr(request.uri.find(':') + 1);
  auto memory = backends::memory_backend().open(
      {.uri = "memory:" + rest, .owner = request.owner, .listener = request.listener});
  if (!memory) return memory;
  return std::make_unique<odd_backend>(std::move(*memory), request.listener);
}

const backend_api::backend_descriptor& odd_store() {
  static constexpr std::array<std::string_view, 1> schemes{"odd"};
  static const backend_api::backend_descriptor descriptor{
      .schemes = schemes, .summary = "for tests of the client", .open = &open};
  return descriptor;
}

}  // namespace

void oddities::keep(std::function<void()> request) {
  const std::lock_guard guard{mutex_};
  kept_.push_back(std::move(request));
}

std::size_t oddities::kept() const {
  const std::lock_guard guard{mutex_};
  return kept_.size();
}

std::function<void()> oddities::take() {
  const std::lock_guard guard{mutex_};
  SALLYPORT_CHECK(!kept_.empty());
  auto first = std::move(kept_.front());
  kept_.erase(kept_.begin());
  return first;
}

void oddities::answer_all() {
  while (kept() > 0) take()();
}

oddities& present() { return *current; }

void reset() { current = std::make_unique<oddities>(); }

}  // namespace sallyport::odd

namespace sallyport::client_detail {

std::span<const backend_api::backend_descriptor* const> registered_backends() {
  static const std::array<const backend_api::backend_descriptor*, 1> all{&odd::odd_store()};
  return all;
}

std::span<const backend_module> registered_modules() { return {}; }

const module_home& home_of_modules() {
  static constexpr module_home none{
      .build = {}, .installed = "", .from_program = "", .from_library = ""};
  return none;
}

}  // namespace sallyport::client_detail

#include "backends/memcached/memcached_backend.hpp"

#include "backends/memcached/session.hpp"

#include <array>
#include <memory>
#include <string_view>
#include <utility>

namespace sallyport::backends {
namespace {

using backend_api::completion;
using backend_api::leave_request;
using backend_api::renew_request;

/// The seam: a session as a backend. After a callback nothing of `this` is touched, since the
/// callback may have closed the client.
class memcached_client final : public backend_api::backend {
 public:
  explicit memcached_client(std::shared_ptr<memcached::session> session)
      : session_(std::move(session)) {}
  ~memcached_client() override { memcached_client::close(); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return session_->capabilities();
  }
  void acquire(const backend_api::acquire_request& request) override { session_->acquire(request); }
  void acquire_all(std::span<const backend_api::acquire_request> batch) override {
    session_->acquire_all(batch);
  }
  void renew(std::span<const renew_request> batch) override { session_->renew(batch); }
  void release(const leave_request& request) override { session_->leave(request); }
  void withdraw(const leave_request& request) override { session_->leave(request); }
  void downgrade(const renew_request& request) override { session_->downgrade(request); }
  void set_value(const renew_request& holder, std::string_view value,
                 completion<bool> done) override {
    session_->set_value(holder, value, std::move(done));
  }
  void watch(const lock_name& /*name*/, bool /*on*/) override {}  // memcached tells nothing
  void list(std::string_view /*prefix*/, std::string_view /*after*/, std::size_t /*limit*/,
            completion<std::vector<lock_info>> done) override {
    session_->list(done);
  }
  void who(const lock_name& name, completion<std::optional<lock_info>> done) override {
    session_->who(name, std::move(done));
  }
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  completion<std::monostate> done) override {
    session_->break_lock(name, observed, mode, std::move(done));
  }
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket,
                                   backend_api::time_point deadline) override {
    return session_->drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const override { return session_->attention_fd(); }
  void attend() override { session_->attend(); }
  void close() override { session_->close(); }

 private:
  const std::shared_ptr<memcached::session> session_;
};

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  auto opened = memcached::session::open(request);
  if (!opened) return tl::unexpected(opened.error());
  return std::make_unique<memcached_client>(std::move(*opened));
}

constexpr std::array<std::string_view, 3> schemes{"memcached", "memcacheds", "memcached+unix"};

}  // namespace

const backend_api::backend_descriptor& memcached_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a memcached server: memcached://host:11211", &open};
  return descriptor;
}

}  // namespace sallyport::backends

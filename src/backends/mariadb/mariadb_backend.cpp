#include "backends/mariadb/mariadb_backend.hpp"

#include "backends/mariadb/address.hpp"
#include "backends/mariadb/schema.hpp"
#include "backends/mariadb/session.hpp"

#include <array>
#include <chrono>
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
class mariadb_client final : public backend_api::backend {
 public:
  explicit mariadb_client(std::shared_ptr<mariadb::session> session)
      : session_(std::move(session)) {}
  ~mariadb_client() override { mariadb_client::close(); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return session_->capabilities();
  }
  void acquire(const backend_api::acquire_request& request) override { session_->acquire(request); }
  void renew(std::span<const renew_request> batch) override { session_->renew_all(batch); }
  void release(const leave_request& request) override { session_->leave(request, false); }
  void withdraw(const leave_request& request) override { session_->leave(request, true); }
  void downgrade(const renew_request& request) override { session_->downgrade(request); }
  void set_value(const renew_request& holder, std::string_view value,
                 completion<bool> done) override {
    session_->set_value(holder, value, std::move(done));
  }
  void watch(const lock_name& name, bool on) override { session_->watch(name, on); }
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            completion<std::vector<lock_info>> done) override {
    session_->list(prefix, after, limit, std::move(done));
  }
  void who(const lock_name& name, completion<std::optional<lock_info>> done) override {
    session_->who(name, std::move(done));
  }
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  completion<std::monostate> done) override {
    session_->break_lock(name, observed, mode, std::move(done));
  }
  [[nodiscard]] backend_api::duration claim_delay() const override {
    // Who leaves before this never claims: two commands a hand-off instead of three.
    return std::chrono::milliseconds{20};
  }
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket,
                                   backend_api::time_point deadline) override {
    return session_->drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const override { return session_->attention_fd(); }
  void attend() override { session_->attend(); }
  void close() override { session_->close(); }

 private:
  const std::shared_ptr<mariadb::session> session_;
};

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  auto opened = mariadb::session::open(request);
  if (!opened) return tl::unexpected(opened.error());
  return std::make_unique<mariadb_client>(std::move(*opened));
}

base::result<std::string> schema(std::string_view uri) {
  const auto where = mariadb::parse_address(uri);
  if (!where) return tl::unexpected(where.error());
  return mariadb::schema_script(where->prefix, where->database, where->user);
}

constexpr std::array<std::string_view, 2> schemes{"mariadb", "mysql"};

}  // namespace

const backend_api::backend_descriptor& mariadb_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a MariaDB database: mariadb://user@host:3306/database", &open, &schema};
  return descriptor;
}

}  // namespace sallyport::backends

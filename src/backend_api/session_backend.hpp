#pragma once

#include "backend_api/backend.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backend_api {

/// The seam: a session as a backend. A session lives in a shared_ptr, because a callback may close
/// the client; so after a callback nothing of `this` is touched.
///
/// A session has the members of `backend` under the same names, without being one, but for
/// leave(request, withdraw), which is both release and withdraw. Where it has no store_id, acquire_all,
/// entry_of, claim_delay (a constant), attention_fd and attend, or settle, the backend does as
/// `backend` says.
template <class Session>
class session_backend final : public backend {
 public:
  explicit session_backend(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~session_backend() override { session_backend::close(); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return session_->capabilities();
  }
  [[nodiscard]] const std::string& store_id() const noexcept override {
    if constexpr (requires { &Session::store_id; }) {
      return session_->store_id();
    } else {
      return backend::store_id();
    }
  }
  void acquire(const acquire_request& request) override { session_->acquire(request); }
  // What a session may leave out is asked for by its name alone: one with other parameters is no
  // silent "it has none", but does not compile.
  void acquire_all(std::span<const acquire_request> batch) override {
    if constexpr (requires { &Session::acquire_all; }) {
      session_->acquire_all(batch);
    } else {
      backend::acquire_all(batch);
    }
  }
  void renew(std::span<const renew_request> batch) override { session_->renew(batch); }
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
  void break_lock(const lock_name& name, fencing_token observed, break_mode mode,
                  completion<std::monostate> done) override {
    session_->break_lock(name, observed, mode, std::move(done));
  }
  [[nodiscard]] std::optional<store_entry> entry_of(const holder_id& who) const override {
    if constexpr (requires { &Session::entry_of; }) {
      return session_->entry_of(who);
    } else {
      return backend::entry_of(who);
    }
  }
  [[nodiscard]] duration claim_delay() const override {
    if constexpr (requires { &Session::claim_delay; }) {
      return Session::claim_delay;
    } else {
      return backend::claim_delay();
    }
  }
  drive_outcome drive(drive_ticket& ticket, time_point deadline) override {
    return session_->drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const override {
    if constexpr (requires { &Session::attention_fd; }) {
      return session_->attention_fd();
    } else {
      return backend::attention_fd();
    }
  }
  void attend() override {
    if constexpr (requires { &Session::attend; }) {
      session_->attend();
    } else {
      backend::attend();
    }
  }
  void settle(time_point deadline) override {
    if constexpr (requires { &Session::settle; }) {
      session_->settle(deadline);
    } else {
      backend::settle(deadline);
    }
  }
  void close() override { session_->close(); }

 private:
  const std::shared_ptr<Session> session_;
};

/// What a descriptor's `open` is where Session::open checks the address and makes the session.
template <class Session>
base::result<std::unique_ptr<backend>> open_session(const open_request& request) {
  auto opened = Session::open(request);
  if (!opened) return tl::unexpected(opened.error());
  return std::make_unique<session_backend<Session>>(std::move(*opened));
}

}  // namespace sallyport::backend_api

#pragma once

#include "backend_api/backend.hpp"
#include "sim/context.hpp"
#include "sim/network.hpp"
#include "sim/store.hpp"
#include <sallyport/error.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace sallyport::sim {

class process;

/// The driver for the simulated store. Keeps the contract of backend_api exactly, and no more than
/// that: every request is answered once, by its answer_by; `unavailable` means that nothing was
/// sent; replies that come later are dropped.
/// Thread safety: none.
class sim_backend : public store_driver, protected link_user {
 public:
  sim_backend(context& shared, process& owner, store_node& store, std::uint64_t client);
  ~sim_backend() override;

  // store_driver
  void attach(backend_api::events& listener) noexcept override { listener_ = &listener; }
  void connect() override;
  [[nodiscard]] std::vector<link*> connections() override { return {link_.get()}; }
  [[nodiscard]] bool idle() const noexcept override { return pending_.empty() && unsent_ == 0; }
  void answer_overdue() override;
  void die() override { link_->attach(nullptr); }

  [[nodiscard]] const sallyport::capabilities& capabilities() const override {
    return capabilities_;
  }
  void acquire(const backend_api::acquire_request& request) override;
  void renew(std::span<const backend_api::renew_request> batch) override;
  void release(const backend_api::leave_request& request) override;
  void withdraw(const backend_api::leave_request& request) override;
  void downgrade(const backend_api::renew_request& request) override;
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done) override;
  void watch(const lock_name& name, bool on) override;
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            backend_api::completion<std::vector<lock_info>> done) override;
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done) override;
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done) override;
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline) override;
  void close() override;

 protected:
  sim_backend(context& shared, process& owner, std::shared_ptr<link> connections);

  // What the driver of a real store does on top.
  /// Makes of a request what is said to the store.
  virtual void encode(request& /*asked*/) {}
  /// Looks at a reply before it is told. False: it was no answer yet.
  virtual bool decode(reply& /*said*/) { return true; }
  /// Its script left waiters to be served: goes on with them. Also when nobody waits for the reply.
  virtual void serve_rest(const reply& /*said*/) {}
  /// A later request of this contender is under way.
  [[nodiscard]] bool asked_since(const backend_api::holder_id& who, std::uint64_t number) const;

  [[nodiscard]] context& shared() noexcept { return shared_; }
  [[nodiscard]] process& owner() noexcept { return owner_; }
  [[nodiscard]] backend_api::events& listener() noexcept { return *listener_; }

 private:
  struct waiting_call {
    operation what = operation::acquire;
    backend_api::holder_id holder{};
    time_point answer_by{};
    std::uint64_t connection = 0;
    backend_api::completion<bool> done{};  // set_value
  };

  void send(std::vector<request> batch, const backend_api::completion<bool>& done = {});
  void refuse(const std::vector<request>& batch, const backend_api::completion<bool>& done);
  void fail(waiting_call& call, errc why) { fail(call, {make_error_code(why), "simulated"}); }
  void fail(waiting_call& call, const base::failure& why);
  /// What is told of a request that the store has done before it spoke of trouble.
  [[nodiscard]] errc word_for_trouble(operation what);
  void arm(std::uint64_t number, time_point answer_by);
  void take(std::vector<reply>& batch);

  // link_user
  void replies_arrive(std::vector<reply> batch) override;
  void notice_arrives(const backends::memory::notice& what) override;
  void connection_ends(std::uint64_t ended) override;
  void connection_begins() override;

  context& shared_;
  process& owner_;
  store_node* store_ = nullptr;  // of the reference; null: another one
  std::shared_ptr<link> link_;
  backend_api::events* listener_ = nullptr;
  sallyport::capabilities capabilities_;
  std::map<std::uint64_t, waiting_call> pending_;
  std::set<backend_api::holder_id> unknown_;  // their acquire had no answer
  std::uint64_t client_ = 0;
  std::uint64_t next_number_ = 1;
  std::uint64_t unsent_ = 0;  // refusals on their way
};

}  // namespace sallyport::sim

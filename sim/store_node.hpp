#pragma once

#include "backends/memory/lock_table.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/store.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace sallyport::sim {

using backends::memory::client_number;

/// Whoever listens for a client's notices at the store.
class notice_listener {
 public:
  notice_listener() = default;
  notice_listener(const notice_listener&) = delete;
  notice_listener& operator=(const notice_listener&) = delete;
  virtual ~notice_listener() = default;
  virtual void publish(const backends::memory::notice& what) = 0;
};

/// The reference lock table as a remote store. Its state is durable. Reports what it does to the
/// checkers, which is how they know the truth.
/// Thread safety: none.
class store_node final : public store, public server {
 public:
  store_node(context& shared, checkers& checks);

  [[nodiscard]] reply execute(const request& asked, client_number from) override;
  [[nodiscard]] reply refuse(const request& asked) override;
  void subscribe(client_number client, const std::shared_ptr<notice_listener>& listener);
  void watch(client_number client, const lock_name& name, bool on) {
    table_.watch(client, name, on);
  }

  // store
  [[nodiscard]] std::unique_ptr<store_driver> open(process& owner, client_number client) override;
  [[nodiscard]] time_point now() const override { return clock().at(shared_.loop.now()); }
  void break_some_grant(const lock_name& name, backend_api::break_mode mode) override;
  [[nodiscard]] std::size_t entries_left() override;

 private:
  void publish(const std::vector<backends::memory::notice>& notices);
  [[nodiscard]] answer serve(const request& asked, client_number from,
                             std::vector<backends::memory::notice>& notices);

  context& shared_;
  checkers& checks_;
  backends::memory::lock_table table_;
  std::map<client_number, std::weak_ptr<notice_listener>> listeners_;
};

}  // namespace sallyport::sim

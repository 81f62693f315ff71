#pragma once

#include "backend_api/drive_ticket.hpp"
#include "backend_api/hearing.hpp"
#include "backends/redis/connection.hpp"
#include "base/check.hpp"
#include "net/pump.hpp"
#include <sallyport/lease_clock.hpp>

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

/// A connection as a backend uses it: callers block and drive, and a thread stands in for the
/// watchdog. Greets with nothing.
/// Thread safety: ask() and connection() from any thread.
class driven_connection {
 public:
  explicit driven_connection(redis::connection::settings how)
      : connection_(redis::connection::make(pump_, std::move(how), owner_).value()) {
    ear_.of = connection_;
    watchdog_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pollfd watched{hearing_.attention_fd(), POLLIN, 0};
        if (::poll(&watched, 1, 20) > 0) hearing_.attend();
      }
    });
  }
  ~driven_connection() {
    connection_->close();
    watchdog_ = std::jthread();
  }
  driven_connection(const driven_connection&) = delete;
  driven_connection& operator=(const driven_connection&) = delete;

  base::result<reply> ask(wire_command command, duration patience = std::chrono::seconds{10},
                          backend_api::holder_id order_key = {}) {
    call mine;
    auto made = std::make_unique<answer_to>(mine);
    made->command = std::move(command);
    made->answer_by = lease_clock::now() + patience;
    made->order_key = order_key;
    connection_->send(std::move(made));
    SALLYPORT_CHECK(hearing_.drive(mine.ticket, time_point::max()) ==
                    backend_api::drive_outcome::finished);
    return std::move(mine.said);
  }
  base::result<reply> ask(std::initializer_list<std::string_view> words,
                          duration patience = std::chrono::seconds{10}) {
    return ask(plain_command(words), patience);
  }

  [[nodiscard]] redis::connection& connection() { return *connection_; }
  [[nodiscard]] int connections() const { return owner_->connections.load(); }

 private:
  struct call {
    backend_api::drive_ticket ticket;
    base::result<reply> said;
  };
  class answer_to final : public exchange {
   public:
    explicit answer_to(call& whose) : whose_(whose) {}
    void answered(base::result<reply> said) override {
      SALLYPORT_CHECK(!std::exchange(answered_, true));
      whose_.said = std::move(said);
      whose_.ticket.finish();
    }

   private:
    call& whose_;
    bool answered_ = false;
  };
  struct counting_owner final : redis::connection::owner {
    std::vector<wire_command> greeting() override { return {}; }
    base::result<std::monostate> greeted(const std::vector<reply>& /*said*/) override {
      return std::monostate{};
    }
    void connected() override { ++connections; }
    void disconnected(const base::failure& /*why*/) override {}
    std::atomic<int> connections{0};
  };
  struct pump_ear final : backend_api::ear {
    explicit pump_ear(net::pump& engine) : pump(engine) {}
    bool hear(time_point deadline) override {
      pump.run_once(deadline);
      return true;
    }
    void ring() noexcept override { pump.ring(); }
    backend_api::urgency unfinished() override {
      return of->unfinished() ? backend_api::urgency::now : backend_api::urgency::nothing;
    }
    net::pump& pump;
    std::shared_ptr<redis::connection> of;
  };

  std::shared_ptr<net::pump> pump_ = net::pump::make().value();
  std::shared_ptr<counting_owner> owner_ = std::make_shared<counting_owner>();
  std::shared_ptr<redis::connection> connection_;
  pump_ear ear_{*pump_};
  backend_api::hearing hearing_{
      ear_, pump_->descriptor_number(),
      std::move(backend_api::hearing::make_attention(pump_->descriptor_number()).value())};
  std::jthread watchdog_;
};

}  // namespace sallyport::backends::redis

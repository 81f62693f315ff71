#pragma once

#include "tests/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// What tests with several servers share.
namespace sallyport::backends::redis {

using namespace std::chrono_literals;

inline client open_as(const std::string& address, std::string_view label,
                      client_options options = {}) {
  options.label = label;
  return client::open(address, options);
}

/// Every turn goes through the store.
inline lock_options through_the_store(std::chrono::milliseconds lease = 2s) {
  return {.lease_length = lease, .local_turns = 1};
}

/// "h:1,h:2,..." of ports on 127.0.0.1.
inline std::string places(const std::vector<std::uint16_t>& ports) {
  std::string all;
  for (const std::uint16_t port : ports) {
    all += (all.empty() ? "" : ",") + ("127.0.0.1:" + std::to_string(port));
  }
  return all;
}

/// Somebody who waits for a lock on a thread of its own, with a client of its own. While servers
/// change it may be told that the store is unavailable; it asks again, as programs do.
class waiter {
 public:
  waiter(const std::string& address, std::string name, lock_options options = through_the_store())
      : thread_([this, address, name = std::move(name), options](const std::stop_token& stop) {
          const client store = open_as(address, "waiter");
          mutex door{store, name, options};
          while (!stop.stop_requested()) {
            try {
              got_ = door.acquire(stop);
            } catch (const lock_error& trouble) {
              if (trouble.code() != errc::unavailable && trouble.code() != errc::outcome_unknown) {
                ADD_FAILURE() << trouble.what();
                return;
              }
              continue;
            }
            break;
          }
          if (!got_) return;
          token_ = got_->token();
          in_.store(true);
        }) {}

  [[nodiscard]] bool is_in() const { return in_.load(); }
  /// Whether it gets in before `within` has passed.
  [[nodiscard]] bool comes_in(lease_clock::duration within = kit::patience) const {
    return kit::eventually([&] { return is_in(); }, within);
  }
  /// REQUIRES: it is in.
  [[nodiscard]] fencing_token token() const { return token_; }
  [[nodiscard]] bool valid() const { return got_->valid(); }
  void leave() { got_->release(); }

 private:
  std::atomic<bool> in_{false};
  fencing_token token_{};
  std::optional<lease> got_;
  std::jthread thread_;
};

/// Waits until so many stand in the store's queue.
inline bool queue_has(const client& store, const lock_name& name, std::size_t count) {
  return kit::eventually([&] {
    try {
      const auto info = store.who(name);
      return info && info->waiters.size() == count;
    } catch (const lock_error&) {
      return false;
    }
  });
}

/// Tries until it is let in or refused for good; while servers change, trouble is no answer.
inline std::optional<lease> try_until_in(mutex& door) {
  std::optional<lease> got;
  const bool in = kit::eventually([&] {
    try {
      got = door.try_acquire();
    } catch (const lock_error&) {
      return false;
    }
    return got.has_value();
  });
  return in ? std::move(got) : std::nullopt;
}

}  // namespace sallyport::backends::redis

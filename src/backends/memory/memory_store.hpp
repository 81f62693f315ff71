#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backends/memory/lock_table.hpp"
#include "base/mutex.hpp"
#include <sallyport/lease_clock.hpp>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::memory {

/// One open client of a store.
struct session {
  session(backend_api::events& events, requester asker)
      : listener(events), self(std::move(asker)) {}

  backend_api::events& listener;  ///< to be called with a pass of `gate` only
  const requester self;
  backend_api::delivery_gate gate;
};

/// A notice together with the client that is to hear it.
struct delivery {
  std::shared_ptr<session> to;
  notice what;
};

/// Calls the listeners, except those that closed meanwhile. Never call with a mutex held.
void deliver(const std::vector<delivery>& deliveries);

/// A lock table under a mutex, and the clients that use it.
/// Thread safety: all members.
class memory_store {
 public:
  /// A store of its own, which nobody else can reach.
  static std::shared_ptr<memory_store> make_private();
  /// The store of this name, made when no client of this process has it open.
  static std::shared_ptr<memory_store> find_or_make(std::string_view name);

  memory_store(std::string id, fencing_token floor) : id_(std::move(id)), table_(floor) {}
  memory_store(const memory_store&) = delete;
  memory_store& operator=(const memory_store&) = delete;

  /// Names the token space: no two stores of whatever process share it.
  [[nodiscard]] const std::string& id() const noexcept { return id_; }

  std::shared_ptr<session> join(backend_api::events& listener, backend_api::owner_info owner)
      SALLYPORT_EXCLUDES(mutex_);
  /// What the client holds stays; it is no longer told of anything.
  void leave(const session& leaver) SALLYPORT_EXCLUDES(mutex_);

  /// Runs operate(table, now, notices) under the mutex and returns its answer. What is to be
  /// delivered after the answer is appended to `deliveries`.
  template <class Operate>
  auto perform(std::vector<delivery>& deliveries, Operate operate) SALLYPORT_EXCLUDES(mutex_) {
    std::vector<notice> notices;
    const base::mutex_lock lock(mutex_);
    // Read inside, so that the table sees time pass in the order of its operations.
    auto answer = operate(table_, lease_clock::now(), notices);
    if (!notices.empty()) address(std::move(notices), deliveries);
    return answer;
  }

 private:
  void address(std::vector<notice>&& notices, std::vector<delivery>& deliveries)
      SALLYPORT_REQUIRES(mutex_);

  const std::string id_;

  base::mutex mutex_;
  lock_table table_ SALLYPORT_GUARDED_BY(mutex_);
  std::map<client_number, std::shared_ptr<session>> sessions_ SALLYPORT_GUARDED_BY(mutex_);
  client_number last_client_ SALLYPORT_GUARDED_BY(mutex_) = 0;
};

}  // namespace sallyport::backends::memory

#pragma once

#include "backend_api/backend.hpp"
#include "sim/clock.hpp"
#include <sallyport/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sallyport::sim {

class link;
class process;

/// The driver of a simulated store in one process.
/// Thread safety: none.
class store_driver : public backend_api::backend {
 public:
  virtual void attach(backend_api::events& listener) noexcept = 0;
  virtual void connect() = 0;
  /// No request waits for its answer.
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  /// Answers what is overdue; called when a frozen process goes on.
  virtual void answer_overdue() = 0;
  /// Its process was killed: nothing is sent or told any more.
  virtual void die() = 0;
  /// Null: there is no network between it and its store.
  [[nodiscard]] virtual link* connections() noexcept = 0;
};

/// The truth about the locks of one simulated world.
/// Thread safety: none.
class store {
 public:
  store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() = default;

  [[nodiscard]] virtual std::unique_ptr<store_driver> open(process& owner,
                                                           std::uint64_t client) = 0;
  [[nodiscard]] virtual time_point now() const = 0;
  /// Breaks some holder's grant, if anybody holds the name.
  virtual void break_some_grant(const lock_name& name, backend_api::break_mode mode) = 0;
  /// How many names, and things of the dead, are still there after a sweep.
  [[nodiscard]] virtual std::size_t entries_left() = 0;
};

}  // namespace sallyport::sim

#pragma once

#include "runtime/engine.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace sallyport::sim {

class process;

/// One user's thread: thinks, wants a lock, uses what it guards, gives it back, again and again.
///
/// | state    | ends by                                                          |
/// |----------|------------------------------------------------------------------|
/// | home     | nothing: the simulation is healed                                |
/// | thinking | time                                                             |
/// | waiting  | a turn, its own deadline, its cancel, or a failure of the store  |
/// | holding  | time, or hurry()                                                 |
/// | leaving  | the store's word on the release                                  |
///
/// Thread safety: none.
class caller final : private runtime::acquire_waiter {
 public:
  caller(context& shared, checkers& checks, process& home);

  void think();
  void hurry();
  void visit_all_locks(duration patience);

  [[nodiscard]] bool at_home() const noexcept { return state_ == state::home; }
  /// What it is doing, for people.
  [[nodiscard]] std::string_view doing() const noexcept;
  /// A wait whose deadline has passed must have ended when the timers were served.
  void check_deadline();

 private:
  enum class state : std::uint8_t { home, thinking, waiting, holding, leaving };

  struct word final : runtime::word_waiter {
    explicit word(caller& whose) noexcept : owner(whose) {}
    void finished() noexcept override;
    caller& owner;
    bool awaited = false;
  };

  void want();
  void ask(std::size_t lock, lock_mode mode, time_point wait_until);
  void finished() noexcept override;
  /// Whether a refusal of the store is no surprise.
  [[nodiscard]] bool may_be_refused() const;
  void got_turn(std::shared_ptr<runtime::lease_record> record);
  void use();
  void write_some(duration within);
  /// What lease::valid() asks: the lease may have ended without anybody having noticed yet.
  [[nodiscard]] bool still_valid(const turn& asked);
  void downgrade();
  void leave();
  void word_came(word& which);
  void visit_next();

  context& shared_;
  checkers& checks_;
  process& home_;
  word release_word_{*this};
  word downgrade_word_{*this};
  std::shared_ptr<turn> turn_;
  time_point wait_until_;
  std::uint64_t call_ =
      0;  // names the present call, so that a late cancel or leave touches no other
  std::size_t next_visit_ = 0;
  duration visit_patience_{};
  state state_ = state::thinking;
  bool tries_ = false;
  bool visiting_ = false;
  bool leave_wanted_ = false;
};

}  // namespace sallyport::sim

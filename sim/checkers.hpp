#pragma once

#include "backend_api/requests.hpp"
#include "backends/memory/lock_table.hpp"
#include "runtime/lease_record.hpp"
#include "sim/context.hpp"
#include "sim/messages.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <vector>

/// What must be true, apart from what is done. Nothing here has influence on the world.
namespace sallyport::sim {

/// One caller's turn as its holder believes in it.
struct turn {
  std::shared_ptr<runtime::lease_record> record;
  std::uint64_t process = 0;
  const sim_clock* clock = nullptr;  ///< of its holder; good until `over`
  std::size_t lock = 0;
  lock_mode mode = lock_mode::exclusive;  ///< what its holder relies on
  time_point deadline;                    ///< as last seen
  bool given_back = false;                ///< its holder called release
  bool suspected = false;                 ///< seen as suspect
  bool lost = false;                      ///< seen as lost
  bool over = false;                      ///< nothing can happen to it any more
  std::optional<std::stop_token> lost_token;

  /// What its holder would say: by its own clock, also while it is frozen.
  [[nodiscard]] bool valid(true_time now) const;
};

/// What the store did: who stands in its queues, what it gave to whom. Checks that nobody is
/// overtaken.
class store_checker {
 public:
  explicit store_checker(context& shared)
      : shared_(shared), queues_(shared.plan.locks.size()), draws_(shared.plan.locks.size()) {}

  void executed(const request& asked, std::uint64_t client, const answer& said,
                const std::vector<backends::memory::notice>& notices, time_point store_now);
  void noticed(const std::vector<backends::memory::notice>& notices, time_point store_now);

  /// A quorum has no store that knows: the contender's own machine gave it these tokens, in a round
  /// that began at `since`. The same tokens may be told to the same contender again.
  void quorum_granted(std::size_t lock, const backend_api::holder_id& who,
                      const backend_api::token_block& tokens, std::uint64_t since);

  /// Likewise where contenders hold their places by sessions; the store made the token at `since`.
  /// `several`: readers that were let in together may have the same.
  void session_granted(std::size_t lock, const backend_api::holder_id& who,
                       const backend_api::token_block& tokens, std::uint64_t since, bool several);

  /// When (as a sequence number) the store reserved this token for this name; nullopt: never.
  [[nodiscard]] std::optional<std::uint64_t> drawn(std::size_t lock, fencing_token token) const;
  [[nodiscard]] std::uint64_t next_sequence() noexcept { return ++sequence_; }

  /// Its turn came while nobody listened for it: others may go before it until it asks again. Once.
  void set_aside(const lock_name& name, const backend_api::holder_id& who);
  /// The store knows that this client is dead, or will when it looks: nobody waits for it.
  void client_gone(std::uint64_t client);
  /// Nothing in the store has survived but its tokens' order.
  void everything_gone();

  /// A client that is quiet and has nothing on its way must have nothing in the store, but for what
  /// requests left that came later than any farewell waits for.
  void check_nothing_of(std::uint64_t client, time_point store_now);

 private:
  struct presence {
    std::uint64_t client = 0;
    bool holds = false;
    bool provisional = false;
    time_point until;
  };
  struct place {
    backend_api::holder_id holder;
    time_point lapses;
    bool lapsed_once = false;  // its place is not protected any more
    bool set_aside = false;    // nor now, but again when it asks
    bool passed_over = false;  // it was set aside, and loses no other turn
  };
  struct block {
    fencing_token last;
    std::uint64_t sequence = 0;
    backend_api::holder_id owner{};  // quorum, sessions
    bool several = false;            // sessions
  };

  void granted(std::size_t lock, const backend_api::holder_id& who, std::uint64_t client,
               const backend_api::granted& grant, time_point store_now);
  void waits(const request& asked, std::uint64_t client, time_point lapses, time_point store_now);
  void left(std::size_t lock, const backend_api::holder_id& who);
  /// It holds nothing; it may wait.
  void no_holder(std::size_t lock, const backend_api::holder_id& who);
  void leave_queue(std::size_t lock, const backend_api::holder_id& who);
  void remember_draw(std::size_t lock, const backend_api::token_block& tokens);
  void check_order(std::size_t lock, const backend_api::holder_id& who, time_point store_now);
  void acquire_executed(const request& asked, std::uint64_t client,
                        const base::result<backend_api::acquire_answer>& said,
                        time_point store_now);
  void renew_executed(const request& asked, const base::result<backend_api::renew_answer>& said,
                      time_point store_now);

  context& shared_;
  std::map<backend_api::holder_id, presence> present_;
  std::set<backend_api::holder_id> ghosts_;  // asked for by requests that no farewell can wait for
  std::vector<std::deque<place>> queues_;
  std::vector<std::map<fencing_token, block>> draws_;
  std::uint64_t sequence_ = 0;
};

/// What callers believe: exclusion, the order of tokens, and that loss is told.
class turn_checker {
 public:
  turn_checker(context& shared, store_checker& store)
      : shared_(shared), store_(store), locks_(shared.plan.locks.size()) {}

  [[nodiscard]] std::shared_ptr<turn> given(std::uint64_t process, const sim_clock& clock,
                                            std::shared_ptr<runtime::lease_record> record);
  /// After its holder relies on more than before.
  void check_exclusion(const turn& fresh);
  /// A client of another library holds the lock and relies on it until then.
  void foreigner_enters(std::size_t lock, true_time until);
  void foreigner_leaves(std::size_t lock) { locks_[lock].foreigner_until = 0; }
  void process_killed(std::uint64_t process);
  /// Counts the leases that ended while their holder could not notice.
  void process_thawed(std::uint64_t process, time_point now);

  /// After each step of a running process. `wakes_at`: when it will serve its timers next.
  void observe(std::uint64_t process, time_point now, time_point wakes_at, bool served_timers,
               bool news_told);

 private:
  struct lock_history {
    std::vector<std::shared_ptr<turn>> turns;  // those that are not over
    // Largest tokens given up to a sequence number, in order.
    std::vector<std::pair<std::uint64_t, fencing_token>> exclusive;
    std::vector<std::pair<std::uint64_t, fencing_token>> shared;
    std::set<fencing_token> given;
    true_time foreigner_until = 0;
  };

  void count_quorum_overlap();
  void check_tokens(const turn& fresh);
  void observe(turn& one, time_point now, time_point wakes_at, bool served_timers, bool news_told);

  context& shared_;
  store_checker& store_;
  std::vector<lock_history> locks_;
};

/// What the locks guard: a resource for each name, with the two numbers of a fencing gate. Holders
/// of a semaphore write without a token, so they have none.
class fenced_resource {
 public:
  explicit fenced_resource(context& shared, store_checker& store)
      : shared_(shared), store_(store), gates_(shared.plan.locks.size()) {}

  void write(const turn& writer);

 private:
  struct gate {
    fencing_token newest_exclusive;
    fencing_token newest_shared;
    std::vector<fencing_token> accepted_exclusive;
  };

  context& shared_;
  store_checker& store_;
  std::vector<gate> gates_;
};

struct checkers {
  explicit checkers(context& shared)
      : store(shared), turns(shared, store), resource(shared, store) {}

  store_checker store;
  turn_checker turns;
  fenced_resource resource;
};

}  // namespace sallyport::sim

#pragma once

#include "backends/redlock/speech.hpp"
#include "base/random.hpp"
#include "tests/redis_model/redis_pair.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::redis_model {

/// Makes up what several clients of a quorum ask of one of its nodes, and what others do to the same
/// keys. As random_locks, which is about a server of its own.
/// Thread safety: none.
class random_votes {
 public:
  /// A node of a quorum is never one of a cluster: `ignored`.
  random_votes(base::random& luck, bool ignored);

  /// The next request, sent by the script's hash.
  [[nodiscard]] backends::redis::wire_command next();
  [[nodiscard]] static order order_of_who() noexcept { return order::exact; }
  /// Remembers what may be claimed or given back later.
  void learn(const reply& answer);
  [[nodiscard]] words foreign_use();
  [[nodiscard]] words damage();
  [[nodiscard]] std::string channel();

 private:
  static constexpr std::size_t client_count = 4;
  static constexpr std::size_t contenders_each = 2;

  struct contender {
    std::string id;
    std::size_t client = 0;
    std::string asked;               // under which id it asked last
    std::vector<std::string> votes;  // ids under which it had this node's vote; the latest first
  };

  [[nodiscard]] std::string fresh_id();
  [[nodiscard]] backends::redlock::wish wish_of(const contender& who, const std::string& name);
  [[nodiscard]] std::string some_vote_of(const contender& who);
  /// The node's mark; seldom another one.
  [[nodiscard]] std::string mark();
  [[nodiscard]] backends::redis::wire_command adopt(const backends::redlock::speech& client);
  [[nodiscard]] std::string some_lock_key();
  [[nodiscard]] std::string some_key();

  base::random& luck_;
  std::vector<backends::redlock::speech> clients_;
  std::vector<contender> contenders_;
  std::vector<std::string> names_;
  std::size_t last_asked_ = 0;  // of contenders_
  std::string mark_;            // as far as is known
};

}  // namespace sallyport::redis_model

#pragma once

#include "backends/redis/protocol.hpp"
#include "base/random.hpp"
#include "tests/redis_model/redis_pair.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::redis_model {

/// Makes up what several clients ask of their locks, as the commands that the real protocol sends,
/// and what others do to the same keys. One run is either of a single server or of a cluster's node:
/// other keys, other channels.
/// Thread safety: none.
class random_locks {
 public:
  random_locks(base::random& luck, bool cluster);

  /// The next request, sent by the script's hash.
  [[nodiscard]] backends::redis::wire_command next();
  [[nodiscard]] static order order_of_who() noexcept { return order::who; }
  /// Remembers what may be asked about later.
  void learn(const reply& answer);
  // What others do to the keys of these locks, as others.hpp says.
  [[nodiscard]] words foreign_use();
  [[nodiscard]] words damage();
  /// A channel that somebody may listen to.
  [[nodiscard]] std::string channel();

 private:
  static constexpr std::size_t client_count = 4;
  static constexpr std::size_t contenders_each = 3;

  struct contender {
    backend_api::holder_id id;
    std::size_t client = 0;
    bool asked_before = false;
  };

  [[nodiscard]] backend_api::acquire_request question(const contender& who, std::size_t name);
  /// In full, or as a heartbeat that travels with others.
  [[nodiscard]] backends::redis::wire_command acquire(contender& who, std::size_t name);
  [[nodiscard]] backend_api::renew_request renewal(const contender& who, std::size_t name);
  /// About one name or several, from their beginnings or behind some place.
  [[nodiscard]] backends::redis::wire_command look(const backends::redis::protocol& client,
                                                   std::size_t name);
  [[nodiscard]] lock_kind kind_of(std::size_t name);
  [[nodiscard]] std::string some_lock_key();
  [[nodiscard]] std::string some_key();

  base::random& luck_;
  bool cluster_;
  std::vector<backends::redis::protocol> clients_;
  std::vector<contender> contenders_;
  std::vector<lock_name> names_;
  std::array<lock_kind, 4> usual_kind_{};
  std::vector<std::uint64_t> tokens_;
};

/// The words of a command: by hash, or by text when the server does not know the script.
words words_of(const backends::redis::wire_command& command, bool by_text);

}  // namespace sallyport::redis_model

#pragma once

#include "sim/network.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::sim {

/// A process's two connections to a Redis server. Over the second, the *line*, the server tells what
/// is published on the channels that were asked for. It is TCP: messages come in order, and none is
/// lost but together with all that follow, when the line dies. Either end may not know that it did:
/// then the server counts a listener that hears nothing.
/// Thread safety: none.
class redis_link final : public link {
 public:
  redis_link(context& shared, server& store, client_number client,
             carriage how = carriage::messages) noexcept
      : link(shared, store, client, how), store_(store) {}

  /// Whether a waiter would be told on this channel; begins to listen if it does not yet. Also true
  /// when that takes too long, as in the product.
  [[nodiscard]] bool listens(const std::string& channel);
  void subscribe(const std::string& channel);
  void unsubscribe(const std::string& channel);
  /// Its process was killed; the server may not hear of it at once.
  void close();

  // The server's end.
  /// How many the server takes for listeners of this channel.
  [[nodiscard]] std::int64_t listeners(std::string_view channel) const;
  void publish_on(std::string_view channel, std::string_view payload);
  /// The server went down.
  void server_ended();

  // link
  void reset_notices() override;
  void heal() override;

 private:
  using channel_set = std::set<std::string, std::less<>>;
  struct wanted {
    bool confirmed = false;
    true_time since = 0;
  };

  [[nodiscard]] std::shared_ptr<redis_link> self() {
    return std::static_pointer_cast<redis_link>(shared_from_this());
  }
  /// It never hears anything, and the server knows.
  [[nodiscard]] bool deaf();
  void open_line();
  void try_to_open();
  void ask_for(const std::string& channel);
  void confirm(const std::string& channel);
  void send_back(fault slow, counter counted, duration extra, std::function<void()> arrive);
  /// It dies, and nobody knows for a while.
  void lose_line();
  void end_line(bool server_knows);

  server& store_;
  std::map<std::string, wanted> channels_;
  channel_set heard_;                // at the server, of this line
  std::vector<channel_set> ghosts_;  // at the server, of lines that ended
  direction to_server_;
  direction from_server_;
  std::uint64_t line_ = 0;
  bool up_ = false;
  bool opening_ = false;
  bool dead_ = false;  // and neither end knows
};

}  // namespace sallyport::sim

#pragma once

#include "backends/redis/protocol.hpp"
#include "sim/context.hpp"
#include "sim/redis_link.hpp"
#include "sim/sim_backend.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace sallyport::sim {

class redis_node;

/// One process's client of a Redis server: the real protocol, and what src/backends/redis does
/// around it, without its sockets. A new waiter is not put into the queue before it would be heard
/// there; a script that the server does not know is sent again in full, unless that would overtake,
/// and so is a question that others stood in the way of; what a script left to be served is served.
/// Thread safety: none.
class redis_driver final : public sim_backend {
 public:
  redis_driver(context& shared, process& owner, redis_node& server, std::uint64_t client);
  ~redis_driver() override;

  // store_driver
  void die() override;
  void watch(const lock_name& name, bool on) override;

 private:
  redis_driver(context& shared, process& owner, redis_node& server, std::uint64_t client,
               const std::shared_ptr<redis_link>& connections);

  // sim_backend
  void encode(request& asked) override;
  bool decode(reply& said) override;
  void serve_rest(const reply& said) override;
  // link_user
  void message_arrives(const std::string& channel, const std::string& payload) override;

  /// The same request once more, unless it would overtake a later one of its contender.
  bool repeat(const request& asked, reply& said);
  void tell(const std::string& channel, const std::string& payload);

  backends::redis::protocol speech_;
  std::shared_ptr<redis_link> link_;
  std::map<std::string, lock_name> watched_;  // by the channel of changes
};

/// The numbers of processes are the numbers of their clients.
[[nodiscard]] backends::redis::protocol speech_of(std::uint64_t client);

}  // namespace sallyport::sim

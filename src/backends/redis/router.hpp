#pragma once

#include "backends/redis/node.hpp"
#include "backends/redis/reply.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace sallyport::backends::redis {

/// Finds the server that a lock lives on: always the same one, the master that sentinels know, or
/// the owner of the key's slot.
/// Thread safety: all members.
class router {
 public:
  router() = default;
  router(const router&) = delete;
  router& operator=(const router&) = delete;
  virtual ~router() = default;

  /// Null: not known at the moment; trouble() says why.
  [[nodiscard]] virtual std::shared_ptr<node> node_for(std::uint32_t slot) = 0;
  /// Why the servers can't be found. No code: nothing has gone wrong so far.
  [[nodiscard]] virtual base::failure trouble() = 0;

  /// What to do with a command that the server answered with an error.
  struct redirection {
    std::shared_ptr<node> to;  ///< null: the error stands
    bool asking = false;       ///< the slot is being moved: ASKING goes before the command
  };
  [[nodiscard]] virtual redirection redirect(const reply& error, std::uint32_t slot,
                                             const std::shared_ptr<node>& from) = 0;
  /// A node's command connection broke, or an attempt failed.
  virtual void node_lost(const net::endpoint& where) = 0;

  /// All servers that may have locks; for list.
  [[nodiscard]] virtual std::vector<std::shared_ptr<node>> all() = 0;
  /// Begins to look for the servers, so that facts can be told; send() would do so, too.
  virtual void begin() = 0;
  /// Some reply is awaited: the pump must run.
  [[nodiscard]] virtual bool unfinished() = 0;
  virtual void close() = 0;
};

}  // namespace sallyport::backends::redis

#pragma once

#include "bench/harness/program.hpp"
#include "tests/kit/redis_probe.hpp"
#include "tests/kit/redis_server.hpp"

#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sallyport::bench {

/// One server for a measurement: no persistence, or every write on the disk before its answer.
[[nodiscard]] inline std::unique_ptr<kit::redis_server> bench_server(bool durable) {
  return std::make_unique<kit::redis_server>(
      kit::redis_options{.persistence = durable ? kit::redis_persistence::append_always
                                                : kit::redis_persistence::none});
}

[[nodiscard]] inline std::string address_of(const kit::redis_server& server) {
  return "redis://127.0.0.1:" + std::to_string(server.port());
}

/// A blocking connection as hiredis makes it: what a Redis client in C costs at least.
class raw_connection {
 public:
  explicit raw_connection(std::uint16_t port) : context_(redisConnect("127.0.0.1", port)) {
    if (context_ == nullptr || context_->err != 0)
      throw std::runtime_error("hiredis: no connection");
  }
  raw_connection(const raw_connection&) = delete;
  raw_connection& operator=(const raw_connection&) = delete;
  ~raw_connection() { redisFree(context_); }

  /// Sends bytes that are a command already, and waits for its reply.
  void formatted(std::string_view command) {
    redisAppendFormattedCommand(context_, command.data(), command.size());
    take();
  }
  template <class... Arguments>
  void command(const char* format, Arguments... arguments) {
    redisAppendCommand(context_, format, arguments...);
    take();
  }

 private:
  void take() {
    void* reply = nullptr;
    if (redisGetReply(context_, &reply) != REDIS_OK) throw std::runtime_error("hiredis: no reply");
    const bool wrong = static_cast<redisReply*>(reply)->type == REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    if (wrong) throw std::runtime_error("hiredis: an error");
  }

  redisContext* context_;
};

/// The least lock on Redis: SET NX PX and a script that compares and deletes, over hiredis. The
/// time of such a pair, in microseconds.
[[nodiscard]] double set_and_delete_pair(kit::redis_server& server, seconds time);

}  // namespace sallyport::bench

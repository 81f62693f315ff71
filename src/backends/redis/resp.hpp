#pragma once

#include "backends/redis/reply.hpp"
#include "backends/redis/wire.hpp"
#include "base/result.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

struct redisReader;

/// RESP2, the protocol of Redis, as bytes in memory: no I/O here.
namespace sallyport::backends::redis {

/// Turns a stream of bytes into replies. What a server may send has limits: a reply of more than
/// max_reply_bytes or max_elements, or nested deeper than seven arrays, is malformed.
/// Thread safety: none.
class reply_reader {
 public:
  static constexpr std::size_t max_reply_bytes = 64 * 1024 * 1024;
  static constexpr std::size_t max_elements = 1'000'000;

  reply_reader();
  ~reply_reader();
  reply_reader(const reply_reader&) = delete;
  reply_reader& operator=(const reply_reader&) = delete;

  void feed(std::string_view bytes);
  /// The next whole reply; nothing: more bytes are needed. After a failure the stream can't be
  /// understood any more.
  base::result<std::optional<reply>> next();

 private:
  friend struct reply_builder;

  struct reader_deleter {
    void operator()(redisReader* reader) const noexcept;
  };

  std::unique_ptr<redisReader, reader_deleter> reader_;
  reply growing_;
  std::size_t size_ = 0;  // of what has been read of the growing reply
  std::size_t elements_ = 0;
};

}  // namespace sallyport::backends::redis

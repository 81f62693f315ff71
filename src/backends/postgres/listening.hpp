#pragma once

#include "backends/sql/connection.hpp"
#include "base/mutex.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

namespace sallyport::backends::postgres {

using backend_api::duration;
using backend_api::time_point;
using sql::call;
using sql::connection;
using sql::exchange;
using sql::reply;

/// The connection on which a client hears notices (LISTEN). It is opened when the first channel is
/// asked for, and listens to all of them again whenever it was made anew. A channel that the server did
/// not open, or not in time, is asked for again with the next ping.
///
/// Now and then it asks the server whether it is still there: a connection over which nothing comes
/// looks like a quiet channel.
/// Thread safety: all members.
class listening final : public connection::owner,
                        public net::pump::source,
                        public std::enable_shared_from_this<listening> {
 public:
  /// Told on the pump's thread, without a mutex.
  class listener {
   public:
    listener() = default;
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    virtual ~listener() = default;

    virtual void message(std::string_view channel, std::string_view payload) = 0;
    /// A channel is open, for the first time or again: what was said before may have been missed.
    virtual void gap_ended() = 0;
  };

  static std::shared_ptr<listening> make(std::shared_ptr<net::pump> engine,
                                         connection::settings how, std::weak_ptr<listener> whose);
  /// Use make().
  listening(std::shared_ptr<net::pump> engine, std::weak_ptr<listener> whose);

  /// Asked for twice it is one channel.
  void listen(const std::string& channel) SALLYPORT_EXCLUDES(mutex_);
  void unlisten(const std::string& channel) SALLYPORT_EXCLUDES(mutex_);
  void close();

  // connection::owner
  base::result<std::optional<std::string>> greet(const reply* said, int server_process) override;
  bool stateless() override { return false; }
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void disconnected(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void notified(std::string_view channel, std::string_view payload) override;
  // net::pump::source
  void ready(std::uint32_t /*events*/) override {}
  void due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

  /// Who hears nothing for so long asks.
  static constexpr duration ping_interval = std::chrono::seconds{5};
  static constexpr duration answer_patience = std::chrono::seconds{3};

 private:
  class question;

  /// `opens`: the channel that is open when this is done; empty: none.
  void say(call what, std::string opens);
  void not_opened(const std::string& channel) SALLYPORT_EXCLUDES(mutex_);

  const std::shared_ptr<net::pump> pump_;
  const std::weak_ptr<listener> listener_;
  std::shared_ptr<connection> connection_;  // constant once made
  net::pump::number number_ = 0;            // likewise

  base::mutex mutex_;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::unordered_set<std::string> channels_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_set<std::string> unopened_ SALLYPORT_GUARDED_BY(mutex_);  // of channels_
  bool pinging_ SALLYPORT_GUARDED_BY(mutex_) = false;
};

}  // namespace sallyport::backends::postgres

#pragma once

#include "backends/pipeline/outbox.hpp"
#include "backends/redis/link.hpp"
#include "backends/redis/reply.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

/// The connection that carries messages of channels. It is opened when the first channel is asked
/// for, and subscribes to all of them again whenever it was made anew.
///
/// While it has channels it asks the server now and then whether it is still there: a connection
/// over which nothing comes looks like a quiet channel.
/// Thread safety: all members, also from inside the listener.
class subscriber final : public link::user, public std::enable_shared_from_this<subscriber> {
 public:
  struct settings {
    net::endpoint where = {};
    net::tls_settings tls = {};
    std::string user = {};
    std::string password = {};
    std::string client_name = {};
    int database = 0;
    duration connect_timeout = std::chrono::seconds{2};
    /// Nothing heard for so long: ask.
    duration ping_interval = std::chrono::seconds{5};
    /// No answer for so long: the connection is dropped.
    duration ping_patience = std::chrono::seconds{2};

    static settings of(const link_settings& login) {
      return {.where = login.where,
              .tls = login.tls,
              .user = login.user,
              .password = login.password,
              .client_name = login.client_name + ":notices",
              .database = login.database,
              .connect_timeout = login.connect_timeout};
    }
  };

  /// Told on the pump's thread, without a mutex.
  class listener {
   public:
    listener() = default;
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    virtual ~listener() = default;

    /// The server has confirmed: messages sent from now on will come. Again after every reconnect:
    /// what was sent in between is lost.
    virtual void subscribed(std::string_view channel) = 0;
    virtual void message(std::string_view channel, std::string_view payload) = 0;
    /// Messages are being missed from now on: the connection is lost, or could not be made.
    virtual void lost(const base::failure& why) = 0;
    /// The server does not let us listen to this channel; it is forgotten.
    virtual void refused(std::string_view channel, std::string_view servers_words) = 0;
    /// The server has ended the subscription by itself, since the slot of a sharded channel has
    /// moved; it is forgotten.
    virtual void ended(std::string_view /*channel*/) {}
  };

  /// Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<subscriber>> make(std::shared_ptr<net::pump> engine,
                                                        settings how,
                                                        std::weak_ptr<listener> whose);
  /// Use make().
  subscriber(const settings& how, std::weak_ptr<listener> whose);
  ~subscriber() override;

  /// Asked for twice it is one subscription. `sharded`: SSUBSCRIBE.
  void subscribe(std::string_view channel, bool sharded) SALLYPORT_EXCLUDES(mutex_);
  /// Messages may come until the server has heard of it; they are not delivered.
  void unsubscribe(std::string_view channel) SALLYPORT_EXCLUDES(mutex_);
  /// The present connection ends, and the next one goes there.
  void retarget(net::endpoint where);
  /// Ends the present connection and makes a new one.
  void drop(base::failure why);
  /// Forgets all channels and ends the connection; the next channel makes a new one.
  void rest(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  void close() SALLYPORT_EXCLUDES(mutex_);

  // link::user
  std::vector<wire_command> link_greeting() override { return {}; }
  base::result<std::monostate> link_greeted(const std::vector<reply>& /*said*/) override {
    return std::monostate{};
  }
  void link_up() override SALLYPORT_EXCLUDES(mutex_);
  void link_down(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void link_ready(std::uint32_t events) override SALLYPORT_EXCLUDES(mutex_);
  void link_due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

 private:
  /// What was asked and is answered in this order, between messages.
  struct question {
    enum class kind : std::uint8_t { subscribe, unsubscribe, ping };
    kind what = kind::ping;
    std::string channel;
  };

  void ask(question::kind what, std::string_view channel, bool sharded) SALLYPORT_REQUIRES(mutex_);
  void flush() SALLYPORT_REQUIRES(mutex_);
  bool take_replies() SALLYPORT_EXCLUDES(mutex_);
  /// False: it makes no sense.
  bool hear(const reply& said) SALLYPORT_EXCLUDES(mutex_);
  bool hear_refusal(const reply& said) SALLYPORT_EXCLUDES(mutex_);
  bool hear_subscribed(const std::string& channel) SALLYPORT_EXCLUDES(mutex_);
  bool hear_unsubscribed(const reply& channel) SALLYPORT_EXCLUDES(mutex_);
  bool hear_pong() SALLYPORT_EXCLUDES(mutex_);

  const duration ping_interval_;
  const duration ping_patience_;
  const std::weak_ptr<listener> listener_;
  std::shared_ptr<link> link_;  // constant once made

  std::vector<reply> said_;  // the pump's thread only

  base::mutex mutex_;
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool busy_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool heard_ SALLYPORT_GUARDED_BY(mutex_) = false;  // anything, since the last look
  bool pinged_ SALLYPORT_GUARDED_BY(mutex_) = false;
  time_point look_at_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::unordered_map<std::string, bool> channels_ SALLYPORT_GUARDED_BY(mutex_);  // sharded?
  std::deque<question> questions_ SALLYPORT_GUARDED_BY(mutex_);
  pipeline::outbox out_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::redis

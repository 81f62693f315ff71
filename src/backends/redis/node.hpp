#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/protocol.hpp"
#include "backends/redis/server_facts.hpp"
#include "backends/redis/subscriber.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sallyport::backends::redis {

class node;

/// What a node tells its client; on the pump's thread, without a mutex.
class node_listener {
 public:
  node_listener() = default;
  node_listener(const node_listener&) = delete;
  node_listener& operator=(const node_listener&) = delete;
  virtual ~node_listener() = default;

  virtual void message(std::string_view channel, std::string_view payload) = 0;
  /// What the store is called, before any command is sent on the connection that said so. A failure
  /// ends the attempt.
  virtual base::result<void> store_named(std::string_view name) = 0;
  /// A connection was made anew, or a channel is open again: notices may have been missed.
  virtual void gap_ended() = 0;
  /// The command connection broke or could not be made.
  virtual void node_lost(const net::endpoint& where, const base::failure& why) = 0;
  /// The node does not serve this channel any more: its slot is elsewhere, as `words` (MOVED ...)
  /// say, or nowhere for the moment.
  virtual void channel_moved(std::string_view channel, const reply& words,
                             const std::shared_ptr<node>& from) = 0;
};

/// One server that grants locks: the connection for commands and, once anybody waits, the one for
/// notices; with the option replicas=N also one on which replicas are waited for.
/// Thread safety: all members.
class node final : public connection::owner,
                   public subscriber::listener,
                   public std::enable_shared_from_this<node> {
 public:
  /// What both connections have in common.
  struct settings {
    link_settings login;
    /// A replica is refused: it can't grant.
    bool master_only = true;
    /// There is no other server to ask: a replica is a wrong address, not a master to be.
    bool only_server = false;
  };

  static base::result<std::shared_ptr<node>> make(const std::shared_ptr<net::pump>& engine,
                                                  const settings& how,
                                                  std::shared_ptr<const protocol> speech,
                                                  std::weak_ptr<node_listener> whose);
  /// Use make().
  node(std::shared_ptr<net::pump> engine, settings how, std::shared_ptr<const protocol> speech,
       std::weak_ptr<node_listener> whose);

  [[nodiscard]] connection& commands() noexcept { return *commands_; }

  /// Call before a command is sent: in a cluster the counter of a slot is raised before anything
  /// is drawn from it here, and again on every new connection. Elsewhere the greeting does it.
  void prepare(std::uint32_t slot, const wire_command& command) SALLYPORT_EXCLUDES(mutex_);
  /// The slot has gone to another node: when it comes back, its counter is raised again.
  void forget_slot(std::uint32_t slot) SALLYPORT_EXCLUDES(mutex_);
  /// Whether a waiter of this slot would be heard: a channel is subscribed if it is not yet. Also
  /// true when listening has turned out to be impossible or takes too long: then waiters live on
  /// their heartbeats.
  [[nodiscard]] bool listens(const lock_place& place, time_point now) SALLYPORT_EXCLUDES(mutex_);
  /// Opens the channel of a slot that has come here, for waiters that were heard elsewhere before.
  void listen(const std::string& channel, time_point now) SALLYPORT_EXCLUDES(mutex_);
  void subscribe(std::string_view channel) { notices_->subscribe(channel, sharded()); }
  void unsubscribe(std::string_view channel) { notices_->unsubscribe(channel); }

  /// Where commands go whose effect has to reach replicas: WAIT holds up whatever comes behind it.
  /// Made when first asked for.
  [[nodiscard]] base::result<std::shared_ptr<connection>> witness() SALLYPORT_EXCLUDES(mutex_);
  /// Changes whenever that connection ends. On the pump's thread: two replies came over one
  /// connection if it did not change between them.
  [[nodiscard]] std::uint64_t witness_generation() const noexcept {
    return witness_generation_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool unfinished() SALLYPORT_EXCLUDES(mutex_);

  void retarget(const net::endpoint& where) SALLYPORT_EXCLUDES(mutex_);
  /// Nobody needs it for now: it ends its connections and makes no new ones until a command comes.
  void rest(const base::failure& why) SALLYPORT_EXCLUDES(mutex_);
  void close() SALLYPORT_EXCLUDES(mutex_);

  /// What the server said of itself at the last greeting; nothing: it was never reached.
  [[nodiscard]] std::optional<server_facts> facts() SALLYPORT_EXCLUDES(mutex_);
  /// Why the last attempt failed; nothing: none has, since the last success.
  [[nodiscard]] std::optional<base::failure> trouble() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] net::endpoint where() SALLYPORT_EXCLUDES(mutex_);

  // connection::owner
  std::vector<wire_command> greeting() override SALLYPORT_EXCLUDES(mutex_);
  std::vector<wire_command> greeting_goes_on(const std::vector<reply>& said) override
      SALLYPORT_EXCLUDES(mutex_);
  base::result<std::monostate> greeted(const std::vector<reply>& said) override
      SALLYPORT_EXCLUDES(mutex_);
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void disconnected(const base::failure& why) override SALLYPORT_EXCLUDES(mutex_);
  // subscriber::listener
  void subscribed(std::string_view channel) override SALLYPORT_EXCLUDES(mutex_);
  void message(std::string_view channel, std::string_view payload) override;
  void lost(const base::failure& why) override SALLYPORT_EXCLUDES(mutex_);
  void refused(std::string_view channel, std::string_view servers_words) override
      SALLYPORT_EXCLUDES(mutex_);
  void ended(std::string_view channel) override SALLYPORT_EXCLUDES(mutex_);

  /// So long a new waiter's first question is asked without queueing, while the channel is not
  /// confirmed yet.
  static constexpr duration subscription_patience = std::chrono::milliseconds{250};

 private:
  class witness_owner;
  enum class hearing_state : std::uint8_t { asked, confirmed, impossible };
  struct channel_state {
    hearing_state state = hearing_state::asked;
    time_point since{};
    bool missed = false;  // somebody waits who was heard before, here or elsewhere
  };

  [[nodiscard]] bool sharded() const noexcept { return speech_->how().cluster; }
  /// What is said before the first grant on a connection: the counters, and the store's name.
  void add_raises(std::vector<wire_command>& all) SALLYPORT_EXCLUDES(mutex_);

  const std::shared_ptr<net::pump> pump_;
  const settings how_;
  const std::shared_ptr<const protocol> speech_;
  const std::weak_ptr<node_listener> listener_;
  std::shared_ptr<connection> commands_;  // constant once made
  std::shared_ptr<subscriber> notices_;   // likewise

  // Outside of a cluster there is one channel; that it is confirmed is looked at for every waiter.
  std::atomic<bool> only_channel_confirmed_{false};
  std::atomic<std::uint64_t> witness_generation_{0};

  base::mutex mutex_;
  net::endpoint where_ SALLYPORT_GUARDED_BY(mutex_);
  bool ever_connected_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::string run_id_ SALLYPORT_GUARDED_BY(mutex_);  // of the server that commands go to
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::shared_ptr<witness_owner> witness_owner_ SALLYPORT_GUARDED_BY(mutex_);
  std::shared_ptr<connection> witness_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<server_facts> facts_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<base::failure> trouble_ SALLYPORT_GUARDED_BY(mutex_);
  // The lock keys, one a slot, whose counters are raised on every new connection.
  std::unordered_map<std::uint32_t, wire_command> raises_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, channel_state> channels_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::redis

#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/server_facts.hpp"
#include "backends/redis/subscriber.hpp"
#include "backends/redlock/membership.hpp"
#include "backends/redlock/speech.hpp"
#include "base/mutex.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redlock {

/// What a node's connections tell; on the pump's thread, without a mutex.
class member_listener {
 public:
  member_listener() = default;
  member_listener(const member_listener&) = delete;
  member_listener& operator=(const member_listener&) = delete;
  virtual ~member_listener() = default;

  virtual void member_up(node_number which, const node_facts& facts) = 0;
  virtual void member_down(node_number which, const base::failure& why) = 0;
  virtual void member_said(node_number which, std::string_view message) = 0;
  /// Messages come from now on, again or for the first time; or never will.
  virtual void member_heard(node_number which) = 0;
  /// They are missed.
  virtual void member_deaf(node_number which) = 0;
};

/// One node of a quorum: the connection for commands and, once anybody waits, the one for notices.
/// It connects by itself, and again when the connection breaks.
/// Thread safety: all members.
class member final : public redis::connection::owner,
                     public redis::subscriber::listener,
                     public std::enable_shared_from_this<member> {
 public:
  static base::result<std::shared_ptr<member>> make(const std::shared_ptr<net::pump>& engine,
                                                    node_number number,
                                                    const redis::link_settings& login,
                                                    std::shared_ptr<const speech> words,
                                                    std::weak_ptr<member_listener> whose);
  /// Use make().
  member(node_number number, std::shared_ptr<const speech> words,
         std::weak_ptr<member_listener> whose);

  [[nodiscard]] redis::connection& commands() noexcept { return *commands_; }
  /// Begins to hear notices; again is nothing.
  void listen();
  /// What the server said of itself at the last greeting.
  [[nodiscard]] std::optional<redis::server_facts> facts() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] bool unfinished() { return commands_->unfinished(); }
  void close();

  // connection::owner
  std::vector<redis::wire_command> greeting() override;
  std::vector<redis::wire_command> greeting_goes_on(const std::vector<reply>& said) override;
  base::result<std::monostate> greeted(const std::vector<reply>& said) override
      SALLYPORT_EXCLUDES(mutex_);
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void disconnected(const base::failure& why) override;
  // subscriber::listener
  void subscribed(std::string_view channel) override;
  void message(std::string_view channel, std::string_view payload) override;
  void lost(const base::failure& why) override;
  void refused(std::string_view channel, std::string_view servers_words) override;

 private:
  const node_number number_;
  const std::shared_ptr<const speech> speech_;
  const std::weak_ptr<member_listener> listener_;
  std::shared_ptr<redis::connection> commands_;  // constant once made
  std::shared_ptr<redis::subscriber> notices_;   // likewise
  std::atomic<bool> listening_{false};

  base::mutex mutex_;
  std::optional<redis::server_facts> facts_ SALLYPORT_GUARDED_BY(mutex_);
  node_facts known_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::redlock

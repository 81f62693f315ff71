#pragma once

#include "backends/redis/router.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redis {

/// All locks live on the master that sentinels name.
///
/// It asks all sentinels at once, in rounds. As soon as most have answered, and again when the
/// others have, or their time is up, the word of the highest epoch counts: a sentinel that was cut
/// off can't lead back to an old master, and a silent one holds nobody up. A round begins when the
/// connection to the master breaks or its server turns out to be a replica, when a sentinel
/// announces a switch, and again, with a growing, jittered pause, until the master is reached.
///
/// Announcements come from one sentinel; when it falls silent, from the next.
/// Thread safety: all members.
class sentinel final : public router,
                       public net::pump::source,
                       public subscriber::listener,
                       public std::enable_shared_from_this<sentinel> {
 public:
  struct settings {
    std::vector<net::endpoint> sentinels;
    std::string group;
    /// How to log in to a sentinel, and to the master; `where` of both is filled in here.
    link_settings sentinel_login;
    link_settings master_login;
  };

  static base::result<std::shared_ptr<router>> make(const std::shared_ptr<net::pump>& engine,
                                                    settings how,
                                                    const std::shared_ptr<const protocol>& speech,
                                                    std::weak_ptr<node_listener> whose);
  /// Use make().
  sentinel(std::shared_ptr<net::pump> engine, settings how);

  // router
  std::shared_ptr<node> node_for(std::uint32_t slot) override SALLYPORT_EXCLUDES(mutex_);
  base::failure trouble() override SALLYPORT_EXCLUDES(mutex_);
  redirection redirect(const reply& error, std::uint32_t slot,
                       const std::shared_ptr<node>& from) override;
  void node_lost(const net::endpoint& where) override;
  std::vector<std::shared_ptr<node>> all() override SALLYPORT_EXCLUDES(mutex_);
  void begin() override;
  bool unfinished() override SALLYPORT_EXCLUDES(mutex_);
  void close() override;

  // net::pump::source
  void ready(std::uint32_t /*events*/) override {}
  void due(time_point now) override SALLYPORT_EXCLUDES(mutex_);
  // subscriber::listener
  void subscribed(std::string_view channel) override SALLYPORT_EXCLUDES(mutex_);
  void message(std::string_view channel, std::string_view payload) override;
  void lost(const base::failure& why) override SALLYPORT_EXCLUDES(mutex_);
  void refused(std::string_view channel, std::string_view servers_words) override;

  /// So long a sentinel may think.
  static constexpr duration answer_patience = std::chrono::milliseconds{1'000};
  static constexpr duration first_pause = std::chrono::milliseconds{50};
  static constexpr duration longest_pause = std::chrono::seconds{1};

 private:
  class question;

  /// What one sentinel said in this round.
  struct word {
    bool given = false;
    bool answered = false;
    std::uint64_t epoch = 0;
    std::optional<net::endpoint> master;  // nothing: it knows no such group
    std::string trouble;                  // why it did not answer
  };

  base::result<std::monostate> connect(const std::shared_ptr<const protocol>& speech,
                                       std::weak_ptr<node_listener> whose);
  /// Begins a round at this time, unless one begins earlier.
  void ask_at(time_point when) SALLYPORT_EXCLUDES(mutex_);
  void begin_round(time_point now) SALLYPORT_EXCLUDES(mutex_);
  void hear(std::uint64_t round, std::size_t which, word said) SALLYPORT_EXCLUDES(mutex_);
  /// The master by the word of this round so far; explains in trouble_ why there is none.
  [[nodiscard]] std::optional<net::endpoint> verdict() SALLYPORT_REQUIRES(mutex_);
  void adopt(const net::endpoint& where) SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] duration pause() SALLYPORT_REQUIRES(mutex_);
  void rouse(time_point when) { pump_->alarm(number_, when); }

  // Constant once made.
  const std::shared_ptr<net::pump> pump_;
  const settings how_;
  net::pump::number number_ = 0;
  std::shared_ptr<node> master_;
  std::shared_ptr<connection::owner> manners_;
  std::vector<std::shared_ptr<connection>> sentinels_;
  std::shared_ptr<subscriber> announcements_;

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  bool known_ SALLYPORT_GUARDED_BY(mutex_) = false;  // master_ has an address
  bool hears_announcements_ SALLYPORT_GUARDED_BY(mutex_) = false;
  base::failure trouble_ SALLYPORT_GUARDED_BY(mutex_);
  std::uint64_t round_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  bool asking_ SALLYPORT_GUARDED_BY(mutex_) = false;  // the round is not decided yet
  bool again_ SALLYPORT_GUARDED_BY(mutex_) = false;   // something happened during the round
  unsigned fruitless_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  std::vector<word> words_ SALLYPORT_GUARDED_BY(mutex_);
  time_point next_round_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  std::size_t announcer_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  time_point next_announcer_at_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
};

}  // namespace sallyport::backends::redis

#pragma once

#include "backend_api/backend.hpp"
#include "backends/postgres/address.hpp"
#include "backends/postgres/greeting.hpp"
#include "backends/postgres/listening.hpp"
#include "backends/postgres/speech.hpp"
#include "backends/sql/session.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace sallyport::backends::postgres {

/// One open client of a PostgreSQL store. Two connections, however many contenders: one for calls,
/// and, once anybody waits, one for notices.
/// Thread safety: all members.
class session final : public sql::session, public listening::listener {
 public:
  /// Waits for the first connection, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. One that refuses us is a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(address where, const backend_api::open_request& request,
          std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention);

  void renew(std::span<const backend_api::renew_request> batch) { renew_together(batch); }
  void watch(const lock_name& name, bool on) override SALLYPORT_EXCLUDES(mutex_);
  void close() override;

  // connection::owner
  base::result<std::optional<std::string>> greet(const reply* said, int server_process) override
      SALLYPORT_EXCLUDES(mutex_);
  bool stateless() override { return pooled_.load(std::memory_order_relaxed); }
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void notified(std::string_view /*channel*/, std::string_view /*payload*/) override {}
  // listening::listener
  void message(std::string_view channel, std::string_view payload) override
      SALLYPORT_EXCLUDES(mutex_);
  void gap_ended() override { sql::session::gap_ended(); }

  /// Without notices a waiter asks this often, at the latest.
  static constexpr duration longest_poll = std::chrono::milliseconds{250};
  /// Calls that were cut off are looked for no more often than this.
  static constexpr duration cut_calls_interval = std::chrono::seconds{1};

 private:
  // sql::session
  [[nodiscard]] const sql::speech& words() const override { return speech_; }
  [[nodiscard]] base::failure meaning_of(const reply& error) const override;
  void failed(const reply& error) override SALLYPORT_EXCLUDES(mutex_);
  void told_to_wait(const backend_api::holder_id& who, const reply& said,
                    backend_api::waiting& answer) override SALLYPORT_EXCLUDES(mutex_);
  /// Who holds for long is told at once when its grant is broken.
  void about_to_renew() override;

  void connect_both();
  /// Somebody was kept waiting for too long, perhaps by a request of which the server has a part only:
  /// it has executed the call, and waits for the message that ends the transaction. A host that is gone
  /// is noticed by keep-alives, a client that is merely stopped is not.
  void end_cut_calls() SALLYPORT_EXCLUDES(mutex_);
  /// Somebody waits, or holds for long: notices are listened to from now on.
  void listen();
  /// Asks where changes of a watched name are told.
  void ask_channel(const lock_name& name);
  void watch_at(const lock_name& name, const std::string& channel) SALLYPORT_EXCLUDES(mutex_);
  /// How soon one that waits without notices asks again.
  [[nodiscard]] duration poll_after(duration told) SALLYPORT_EXCLUDES(mutex_);

  const address address_;
  const speech speech_;
  std::shared_ptr<listening> notices_;  // constant once open
  std::atomic<bool> pooled_{false};     // as the last greeting found it
  std::atomic<bool> listens_{false};    // listen() was called
  bool ever_connected_ = false;         // the pump's thread only
  std::optional<greeting> greeting_;    // likewise

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  time_point next_end_of_cut_calls_ SALLYPORT_GUARDED_BY(mutex_){};
  std::optional<server_facts> facts_ SALLYPORT_GUARDED_BY(mutex_);
  // Watched names; by channel as soon as that is known.
  std::unordered_map<std::string, lock_name> watched_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> watched_channels_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::postgres

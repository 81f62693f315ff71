#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "backends/sql/statement.hpp"
#include "backends/sql/wire.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::sql {

using backend_api::duration;
using backend_api::time_point;

/// One call and who waits for its reply.
class exchange {
 public:
  exchange() = default;
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  virtual ~exchange() = default;

  call what;
  time_point answer_by = time_point::max();
  /// Calls of one key take effect in the order in which they were sent; zero: none.
  backend_api::holder_id order_key;
  unsigned repeated = 0;  ///< how often it was sent again, after deadlocks

  /// Called exactly once, by answer_by at the latest, without a mutex: on the pump's thread or inside
  /// send() or close(). A reply of the server, also an error of its own; or
  ///   unavailable      not one byte of it was sent
  ///   outcome_unknown  something of it may have been sent, and no reply came
  ///   closed           the connection was closed before anything was sent
  virtual void answered(base::result<reply> said) = 0;
};

/// A connection to a server, made again whenever it breaks: connects, lets its owner greet, and
/// carries calls. Many callers share it. As far as the server can take it, it sends without waiting
/// for the replies of what was sent before.
///
/// Who does the work: send() writes in the calling thread. Connecting and reading happen on the
/// pump's thread.
///
/// Attempts follow each other with a jittered, growing, capped pause. A call that waits shortens it.
///
/// Nobody reads while nobody waits for a reply. So before the first call after a pause the connection
/// is looked at: one that the server has ended is made again first, and the call is not lost on it.
///
/// When the oldest call under way is overdue and nothing at all was heard since it was sent, the
/// server is taken for gone, and a new connection is made.
/// Thread safety: all members, also from inside answered().
class connection final : public net::pump::source, public std::enable_shared_from_this<connection> {
 public:
  struct settings {
    std::function<std::unique_ptr<search>()> find = {};  ///< begins an attempt
    /// Whether a call that was answered so may well succeed if it is just repeated.
    bool (*worth_repeating)(const reply&) noexcept = nullptr;
    std::string description = {};  ///< for messages
    duration connect_timeout = std::chrono::seconds{5};
    /// What may wait for a connection or for the server to read; more is answered `unavailable`.
    std::size_t max_waiting_bytes = 8UL * 1024 * 1024;
    /// Calls sent and not replied to; further ones wait. A server that takes one after the other: 1.
    std::size_t max_in_flight = 1'024;
  };

  /// Told on the pump's thread, without a mutex.
  class owner {
   public:
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    virtual ~owner() = default;

    /// The conversation before everything else: called with nothing, and then with each reply, until
    /// it has nothing more to say. A failure ends the attempt.
    virtual base::result<std::optional<std::string>> greet(const reply* said,
                                                           int server_process) = 0;
    /// After the greeting: whether the server keeps nothing from one transaction to the next, as
    /// behind a pooler. Then nothing is prepared, and one call is under way at a time.
    virtual bool stateless() = 0;
    virtual void connected() = 0;
    /// The connection was lost, or an attempt failed. The next attempt follows by itself.
    virtual void disconnected(const base::failure& why, bool was_up) = 0;
    virtual void notified(std::string_view channel, std::string_view payload) = 0;
  };

  /// Opens nothing yet: the first send() does.
  static std::shared_ptr<connection> make(std::shared_ptr<net::pump> engine, settings how,
                                          std::weak_ptr<owner> whose);
  /// Use make().
  connection(std::shared_ptr<net::pump> engine, settings how, std::weak_ptr<owner> whose);
  ~connection() override;

  void send(std::unique_ptr<exchange> what) SALLYPORT_EXCLUDES(mutex_);
  /// Connects now, if it is not connected; send() does so by itself.
  void want() SALLYPORT_EXCLUDES(mutex_);
  /// For good: what was sent is answered outcome_unknown, the rest and all that comes later `closed`.
  void close() SALLYPORT_EXCLUDES(mutex_);
  /// Somebody waits for a reply: the pump must run.
  [[nodiscard]] bool unfinished() SALLYPORT_EXCLUDES(mutex_);

  // net::pump::source
  void ready(std::uint32_t events) override SALLYPORT_EXCLUDES(mutex_);
  void due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

  static constexpr duration first_pause = std::chrono::milliseconds{20};
  static constexpr duration longest_pause = std::chrono::seconds{1};
  /// A new call does not start an attempt sooner than this after the last one began.
  static constexpr duration least_pause = std::chrono::milliseconds{50};
  /// How often a call is sent again after a deadlock or a conflict.
  static constexpr unsigned most_repetitions = 8;

 private:
  enum class stage : std::uint8_t { idle, finding, dialing, greeting, up };

  struct flight {
    std::unique_ptr<exchange> who;  // null: answered already; its reply will be dropped
    backend_api::holder_id order_key;
    std::uint64_t heard_before = 0;            // what heard_ was when it was sent
    time_point silent_by = time_point::max();  // when to ask whether the server is still there
  };

  using exchanges = std::vector<std::unique_ptr<exchange>>;

  void begin(time_point now) SALLYPORT_EXCLUDES(mutex_);
  void find() SALLYPORT_EXCLUDES(mutex_);
  void dial() SALLYPORT_EXCLUDES(mutex_);
  void greet(const reply* said) SALLYPORT_EXCLUDES(mutex_);
  void hear_greeting() SALLYPORT_EXCLUDES(mutex_);
  void come_up() SALLYPORT_EXCLUDES(mutex_);
  void watch(bool output);
  /// Ends connection or attempt, answers who is concerned, and plans the next attempt.
  void end(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] duration pause();

  [[nodiscard]] bool room_in_flight() SALLYPORT_REQUIRES(mutex_);
  void look_after_pause() SALLYPORT_REQUIRES(mutex_);
  void put_in_flight(std::unique_ptr<exchange> what) SALLYPORT_REQUIRES(mutex_);
  void send_waiting() SALLYPORT_REQUIRES(mutex_);
  void flush() SALLYPORT_REQUIRES(mutex_);
  void break_off(const base::failure& why) SALLYPORT_REQUIRES(mutex_);
  void expect_by(time_point when) SALLYPORT_REQUIRES(mutex_);
  /// Reads and dispatches what has come; false: the connection ended.
  bool take_replies() SALLYPORT_EXCLUDES(mutex_);
  void dispatch() SALLYPORT_EXCLUDES(mutex_);
  /// True: it is on its way again.
  bool repeat(std::size_t index) SALLYPORT_EXCLUDES(mutex_);
  bool take_overdue(time_point now, exchanges& unknown, exchanges& unsent)
      SALLYPORT_REQUIRES(mutex_);
  static void answer_all(exchanges& all, const base::failure& why);

  // Constant.
  const std::shared_ptr<net::pump> pump_;
  const settings settings_;
  const std::weak_ptr<owner> owner_;
  net::pump::number number_ = 0;  // constant once made

  // The pump's thread only.
  stage stage_ = stage::idle;
  std::unique_ptr<search> search_;
  time_point began_{};  // the last attempt
  time_point give_up_ = time_point::max();
  time_point next_attempt_{};
  time_point up_since_{};
  unsigned failures_ = 0;
  base::random random_;
  std::vector<reply> said_;
  std::vector<flight> batch_;
  std::vector<wire::notification> heard_notices_;

  // The pump's thread only while it is not up; then under the mutex.
  std::unique_ptr<wire> wire_;

  base::mutex mutex_;
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool wanted_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool eager_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool stateless_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool watching_output_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::optional<base::failure> broken_ SALLYPORT_GUARDED_BY(mutex_);
  base::failure last_failure_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<exchange>> waiting_ SALLYPORT_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  std::deque<flight> in_flight_ SALLYPORT_GUARDED_BY(mutex_);
  std::uint64_t heard_ SALLYPORT_GUARDED_BY(mutex_) = 0;   // reads that brought something
  time_point quiet_since_ SALLYPORT_GUARDED_BY(mutex_){};  // the last replies, or the start
  time_point next_due_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
};

}  // namespace sallyport::backends::sql

#pragma once

#include "backend_api/requests.hpp"
#include "backends/memcached/server_facts.hpp"
#include "backends/memcached/wire.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "net/dialer.hpp"
#include "net/endpoint.hpp"
#include "net/pump.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::memcached {

using backend_api::duration;
using backend_api::time_point;

/// Where a server is and how to log in.
struct link_settings {
  net::endpoint where = {};
  net::tls_settings tls = {};
  std::string user = {};
  std::string password = {};  ///< empty: no login. Never in a message.
  duration connect_timeout{};
};

/// One connection to a server, made again whenever it breaks: finds the host, connects, logs in, asks
/// who the server is. What is said over it afterwards is the user's business.
///
/// Attempts follow each other with a jittered, growing, capped pause. want() shortens the pause:
/// a request that waits starts an attempt, unless the last one has only just begun.
/// Thread safety: where it says so; everything else on the pump's thread, that is inside run_once().
class link final : public net::pump::source, public std::enable_shared_from_this<link> {
 public:
  /// Called on the pump's thread, without a mutex.
  class user {
   public:
    user() = default;
    user(const user&) = delete;
    user& operator=(const user&) = delete;
    virtual ~user() = default;

    /// What the server says of itself. A failure ends the attempt: a server that can't keep locks.
    virtual base::result<std::monostate> link_greeted(const server_facts& said) = 0;
    /// From now on the user reads and writes stream(), until link_down().
    virtual void link_up() = 0;
    /// The connection is lost, or (`was_up` false) an attempt has failed. The next one follows.
    /// stream() must not be used after this returned. `why` is `unavailable`, or `store_refused`:
    /// what waiting does not mend, such as a wrong password.
    virtual void link_down(const base::failure& why, bool was_up) = 0;
    /// The stream is ready for these.
    virtual void link_ready(std::uint32_t events) = 0;
    /// An alarm is due; comes more often than asked for.
    virtual void link_due(time_point now) = 0;
  };

  /// Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<link>> make(std::shared_ptr<net::pump> engine,
                                                  link_settings settings,
                                                  std::weak_ptr<user> whose);
  /// Use make().
  link(std::shared_ptr<net::pump> engine, link_settings settings,
       std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose);

  /// Somebody needs the connection. From any thread.
  void want() SALLYPORT_EXCLUDES(mutex_);
  /// Ends the present connection or attempt and makes another. From any thread.
  void drop(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// For good. The user is told nothing any more, but for what is just being told. From any thread.
  void close() SALLYPORT_EXCLUDES(mutex_);
  /// Calls link_due() at this time, or earlier. From any thread.
  void alarm(time_point when) { pump_->alarm(number_, when); }
  /// drop() was called and has not happened yet: nothing more is to be sent. From any thread; steady
  /// on the pump's.
  [[nodiscard]] bool drop_pending() SALLYPORT_EXCLUDES(mutex_);
  /// For messages: "memcached at host:11211".
  [[nodiscard]] std::string describe() const;

  /// REQUIRES, for the next three: between link_up() and link_down(), one thread at a time.
  [[nodiscard]] net::stream& stream() noexcept { return *stream_; }
  /// Whether link_ready() is to come when the stream can be written.
  void watch_output(bool on);
  /// Appends the lines that have come. True: there may be more at once. The failure is the end of
  /// the connection: pass it to fail().
  base::result<bool> read(std::vector<answer_line>& into);
  /// The connection is of no use any more. On the pump's thread, while it is up.
  void fail(const base::failure& why);

  // net::pump::source
  void ready(std::uint32_t events) override;
  void due(time_point now) override;

  static constexpr duration first_pause = std::chrono::milliseconds{20};
  static constexpr duration longest_pause = std::chrono::seconds{1};
  /// A new request does not start an attempt sooner than this after the last one began.
  static constexpr duration least_pause = std::chrono::milliseconds{50};

 private:
  enum class stage : std::uint8_t { idle, dialing, greeting, up };

  /// What other threads have asked for.
  struct wishes {
    bool wanted = false;
    bool eager = false;
    bool closed = false;
    std::optional<base::failure> drop;
  };

  void enroll();
  wishes take_wishes() SALLYPORT_EXCLUDES(mutex_);
  void begin(time_point now);
  void dial(time_point now);
  void greet();
  void continue_greeting();
  enum class greeting_state : std::uint8_t { partial, whole, refused };
  [[nodiscard]] greeting_state look_at_greeting(std::string& objection) const;
  void enter();
  /// Ends connection or attempt, tells the user, and plans the next attempt.
  void end(const base::failure& why, bool retry_at_once);
  void forget_stream() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] duration pause();
  [[nodiscard]] base::failure unavailable(const std::string& what) const;
  /// What became of an attempt, by what the network said.
  [[nodiscard]] base::failure network_failure(const base::failure& why) const;
  /// ... and by what the server said.
  [[nodiscard]] base::failure refusal(const std::string& said) const;

  // Constant.
  const std::shared_ptr<net::pump> pump_;
  const link_settings settings_;
  const std::shared_ptr<const net::tls_context> tls_;
  const std::weak_ptr<user> user_;
  net::pump::number number_ = 0;  // constant once enrolled

  // The pump's thread only.
  stage stage_ = stage::idle;
  bool wanted_ = false;
  std::optional<net::dialer> dialer_;
  std::unique_ptr<net::stream> stream_;
  std::optional<line_reader> reader_;
  std::array<char, 16 * 1024> buffer_;
  std::string greeting_;
  std::size_t greeting_written_ = 0;
  std::vector<answer_line> said_;
  time_point began_{};  // the last attempt
  time_point give_up_ = time_point::max();
  time_point next_attempt_ = time_point::max();
  time_point up_since_{};
  unsigned failures_ = 0;
  base::random random_;

  base::mutex mutex_;
  wishes wishes_ SALLYPORT_GUARDED_BY(mutex_);
  int socket_ SALLYPORT_GUARDED_BY(mutex_) = -1;  // of stream_, so that close() can end it
};

}  // namespace sallyport::backends::memcached

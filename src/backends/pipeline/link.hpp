#pragma once

#include "backend_api/requests.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "net/dialer.hpp"
#include "net/endpoint.hpp"
#include "net/pump.hpp"
#include "net/stream.hpp"
#include "net/tls.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::pipeline {

using backend_api::duration;
using backend_api::time_point;

/// One connection to a server, made again whenever it breaks: finds the host, connects, greets. How
/// it greets, and whether the answer will do, is up to the deriving class, one for each protocol. What
/// is said over it afterwards is the user's business.
///
/// Attempts follow each other with a jittered, growing, capped pause. want() shortens the pause:
/// a request that waits starts an attempt, unless the last one has only just begun.
/// Thread safety: where it says so; everything else on the pump's thread, that is inside run_once().
class link : public net::pump::source, public std::enable_shared_from_this<link> {
 public:
  struct settings {
    std::string store = {};  ///< what kind of server it is, for messages: "redis"
    net::endpoint where = {};
    net::tls_settings tls = {};
    duration connect_timeout{};
  };

  /// Called on the pump's thread, without a mutex.
  class user {
   public:
    user() = default;
    user(const user&) = delete;
    user& operator=(const user&) = delete;
    virtual ~user() = default;

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

  /// Somebody needs the connection. From any thread.
  void want() SALLYPORT_EXCLUDES(mutex_);
  /// Ends the present connection or attempt and makes another. From any thread.
  void drop(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// Ends the present connection or attempt, and makes no other until somebody wants one. From any
  /// thread.
  void rest(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// As drop, and the next one goes elsewhere. From any thread.
  void retarget(net::endpoint where) SALLYPORT_EXCLUDES(mutex_);
  /// For good. The user is told nothing any more, but for what is just being told. From any thread.
  void close() SALLYPORT_EXCLUDES(mutex_);
  /// Calls link_due() at this time, or earlier. From any thread.
  void alarm(time_point when) { pump_->alarm(number_, when); }
  /// drop() or retarget() was called and has not happened yet: nothing more is to be sent. From any
  /// thread; steady on the pump's.
  [[nodiscard]] bool drop_pending() SALLYPORT_EXCLUDES(mutex_);
  /// For messages: "redis at host:6379". From any thread.
  [[nodiscard]] std::string describe() SALLYPORT_EXCLUDES(mutex_);

  /// REQUIRES, for the next two: between link_up() and link_down(), one thread at a time.
  [[nodiscard]] net::stream& stream() noexcept { return *stream_; }
  /// Whether link_ready() is to come when the stream can be written.
  void watch_output(bool on);
  /// The connection is of no use any more. On the pump's thread, while it is up.
  void fail(const base::failure& why);

  // net::pump::source
  void ready(std::uint32_t events) override;
  void due(time_point now) override;

  static constexpr duration first_pause = std::chrono::milliseconds{20};
  static constexpr duration longest_pause = std::chrono::seconds{1};
  /// A new request does not start an attempt sooner than this after the last one began.
  static constexpr duration least_pause = std::chrono::milliseconds{50};

 protected:
  link(std::shared_ptr<net::pump> engine, settings how, std::shared_ptr<const net::tls_context> tls,
       std::weak_ptr<user> whose);

  /// Makes a Link and enrolls it. Its constructor takes what this takes, with the TLS context before
  /// the last. Fails when the files that TLS needs can't be read.
  template <class Link, class Settings, class User>
  static base::result<std::shared_ptr<Link>> make_enrolled(std::shared_ptr<net::pump> engine,
                                                           Settings how,
                                                           std::weak_ptr<User> whose) {
    auto tls = context_of(how.tls);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    auto made = std::make_shared<Link>(std::move(engine), std::move(how), std::move(*tls),
                                       std::move(whose));
    made->enroll();
    return made;
  }

  // The protocol's part, on the pump's thread and without a mutex.
  /// What is said first on a new connection. What was heard on an earlier one is over.
  [[nodiscard]] virtual std::string greeting() = 0;
  /// Something may have come in answer to it: reads on. True: that was all, and the connection will
  /// do. False: more has to come. The failure ends the attempt.
  [[nodiscard]] virtual base::result<bool> hear_greeting() = 0;
  /// The greeting goes on with this. From inside hear_greeting(), which then says false.
  void say_more(std::string_view bytes) {
    greeting_ += bytes;
    more_to_say_ = true;
  }

  /// Appends to `into` what the reader makes of the bytes that have come. True: there may be more at
  /// once. The failure is the end of the connection.
  template <class Reader, class Heard>
  base::result<bool> read_with(Reader& reader, std::vector<Heard>& into) {
    std::string_view bytes;
    auto more = receive(bytes);
    if (!more || bytes.empty()) return more;
    reader.feed(bytes);
    for (;;) {
      auto next = reader.next();
      if (!next) return tl::unexpected(std::move(next.error()));
      if (!*next) return more;
      into.push_back(std::move(**next));
    }
  }

  [[nodiscard]] base::failure unavailable(const std::string& what);
  /// What became of an attempt, by what the network said.
  [[nodiscard]] base::failure network_failure(const base::failure& why);

 private:
  enum class stage : std::uint8_t { idle, dialing, greeting, up };

  /// What other threads have asked for.
  struct wishes {
    bool wanted = false;
    bool eager = false;
    bool closed = false;
    bool rest = false;
    std::optional<base::failure> drop;
  };

  /// Nothing: no TLS.
  static base::result<std::shared_ptr<const net::tls_context>> context_of(
      const net::tls_settings& tls);
  void enroll() { number_ = pump_->enroll(shared_from_this()); }
  wishes take_wishes() SALLYPORT_EXCLUDES(mutex_);
  void begin(time_point now);
  void dial(time_point now);
  void greet();
  void continue_greeting();
  void write_greeting();
  /// As read_with(), of bytes; none: nothing has come. They are good until the next call.
  base::result<bool> receive(std::string_view& bytes);
  /// Ends connection or attempt, tells the user, and plans the next attempt.
  void end(const base::failure& why, bool retry_at_once);
  void forget_stream() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] duration pause();

  // Constant.
  const std::shared_ptr<net::pump> pump_;
  const settings settings_;
  const std::shared_ptr<const net::tls_context> tls_;
  const std::weak_ptr<user> user_;
  net::pump::number number_ = 0;  // constant once enrolled

  // The pump's thread only.
  stage stage_ = stage::idle;
  bool wanted_ = false;
  std::optional<net::dialer> dialer_;
  std::unique_ptr<net::stream> stream_;
  std::array<char, 16 * 1024> buffer_;
  std::string greeting_;
  std::size_t greeting_written_ = 0;
  bool more_to_say_ = false;
  time_point began_{};  // the last attempt
  time_point give_up_ = time_point::max();
  time_point next_attempt_ = time_point::max();
  time_point up_since_{};
  unsigned failures_ = 0;
  base::random random_;

  base::mutex mutex_;
  wishes wishes_ SALLYPORT_GUARDED_BY(mutex_);
  net::endpoint where_ SALLYPORT_GUARDED_BY(mutex_);
  int socket_ SALLYPORT_GUARDED_BY(mutex_) = -1;  // of stream_, so that close() can end it
};

}  // namespace sallyport::backends::pipeline

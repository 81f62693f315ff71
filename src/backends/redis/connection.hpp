#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "backends/redis/link.hpp"
#include "backends/redis/reply.hpp"
#include "backends/redis/resp.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

/// One command and who waits for its reply.
class exchange {
 public:
  exchange() = default;
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  virtual ~exchange() = default;

  wire_command command;
  time_point answer_by = time_point::max();
  /// Commands of one key take effect in the order in which they were sent; zero: none.
  backend_api::holder_id order_key;

  /// Called exactly once, by answer_by at the latest, without a mutex: on the pump's thread or
  /// inside send(), drop() or close(). A reply of the server, also an error of its own; or
  ///   unavailable      not one byte of it was sent, or the server refused before it did anything
  ///   outcome_unknown  something of it was sent and no reply came
  ///   closed           the connection was closed before anything was sent
  virtual void answered(base::result<reply> said) = 0;
  /// It has waited for a connection, and now there is one: the server may be another than the one
  /// that the command was written for. False: it is not to be sent, and is answered `unavailable`.
  /// On the pump's thread, after owner::connected() and without a mutex.
  [[nodiscard]] virtual bool still_meant() { return true; }
};

/// The connection that carries commands: many callers share it, and it sends without waiting for
/// the replies of what was sent before.
///
/// Who does the work: send() writes in the calling thread, unless the pump's thread is just
/// dealing with replies; then that one writes when it is through, once for all that has gathered.
/// Reading happens on the pump's thread.
///
/// A command that is `asking` follows an ASKING of its own, whose reply nobody sees.
///
/// A script that the server does not know (NOSCRIPT) is sent again in full at once. If a later
/// command of the same order_key is under way already, it is answered `unavailable` instead.
///
/// Nobody reads while nobody waits for a reply. So before the first command after a pause the
/// connection is looked at: one that the server has ended (a restart, its `timeout`) is made again
/// first, and the command is not lost on it.
///
/// When the oldest command under way is overdue and nothing at all was heard since it was sent, the
/// peer is taken for gone, and a new connection is made.
/// Thread safety: all members, also from inside answered().
class connection final : public link::user, public std::enable_shared_from_this<connection> {
 public:
  struct settings {
    net::endpoint where = {};
    net::tls_settings tls = {};
    std::string user = {};
    std::string password = {};
    std::string client_name = {};
    int database = 0;
    duration connect_timeout = std::chrono::seconds{2};
    /// What may wait for a connection or for the peer to read; more is answered `unavailable`.
    std::size_t max_waiting_bytes = 8UL * 1024 * 1024;
    /// Commands sent and not replied to; further ones wait.
    std::size_t max_in_flight = 16'384;

    /// `what_for` is added to the client's name.
    static settings of(const link_settings& login, std::string_view what_for = {}) {
      return {.where = login.where,
              .tls = login.tls,
              .user = login.user,
              .password = login.password,
              .client_name = login.client_name + std::string(what_for),
              .database = login.database,
              .connect_timeout = login.connect_timeout};
    }
  };

  /// Told on the pump's thread, without a mutex.
  class owner {
   public:
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    virtual ~owner() = default;

    /// Said after logging in and before everything else; each has one reply.
    virtual std::vector<wire_command> greeting() = 0;
    /// A failure ends the attempt ("this is a replica"); those who wait are answered with it.
    virtual base::result<std::monostate> greeted(const std::vector<reply>& said) = 0;
    virtual void connected() = 0;
    /// The connection was lost, or an attempt failed. The next attempt follows by itself.
    virtual void disconnected(const base::failure& why) = 0;
  };

  /// Opens nothing yet: the first send() does. Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<connection>> make(std::shared_ptr<net::pump> engine,
                                                        settings how, std::weak_ptr<owner> whose);
  /// Use make().
  connection(const settings& how, std::weak_ptr<owner> whose);
  ~connection() override;

  void send(std::unique_ptr<exchange> what) SALLYPORT_EXCLUDES(mutex_);
  /// While it lives, what is sent gathers; it goes out in one piece when the last one ends.
  class gathering {
   public:
    explicit gathering(connection& whose) : whose_(whose) { whose_.begin_gathering(); }
    ~gathering() { whose_.end_gathering(); }
    gathering(const gathering&) = delete;
    gathering& operator=(const gathering&) = delete;

   private:
    connection& whose_;
  };
  /// Connects now, if it is not connected; send() does so by itself.
  void want() { link_->want(); }
  /// The next connection goes there, and the present one ends: what was sent is answered
  /// outcome_unknown, the rest waits for the new one.
  void retarget(net::endpoint where) SALLYPORT_EXCLUDES(mutex_);
  /// Ends the present connection and makes a new one.
  void drop(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// Ends the present connection; the next one is made when something is sent.
  void rest(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// For good: what was sent is answered outcome_unknown, the rest and all that comes later
  /// `closed`.
  void close() SALLYPORT_EXCLUDES(mutex_);

  /// Somebody waits for a reply: the pump must run.
  [[nodiscard]] bool unfinished() SALLYPORT_EXCLUDES(mutex_);

  // link::user
  std::vector<wire_command> link_greeting() override;
  base::result<std::monostate> link_greeted(const std::vector<reply>& said) override;
  void link_up() override SALLYPORT_EXCLUDES(mutex_);
  void link_down(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void link_ready(std::uint32_t events) override SALLYPORT_EXCLUDES(mutex_);
  void link_due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

 private:
  /// A command in the out buffer or behind it, whose reply is to come.
  struct flight {
    std::unique_ptr<exchange> who;  // null: answered already; its reply will be dropped
    backend_api::holder_id order_key;
    const script_source* script = nullptr;
    script_form form = script_form::by_name;
    std::uint64_t first_byte = 0;              // counted from the beginning of the connection
    std::uint64_t heard_before = 0;            // what heard_ was when it was sent
    time_point silent_by = time_point::max();  // when to ask whether the peer is still there
  };

  /// A queue in one piece of memory, which it keeps.
  class flight_queue {
   public:
    [[nodiscard]] bool empty() const noexcept { return first_ == all_.size(); }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size() - first_; }
    flight& front() { return all_[first_]; }
    void push(flight&& one);
    flight pop();
    [[nodiscard]] auto begin() { return all_.begin() + static_cast<std::ptrdiff_t>(first_); }
    [[nodiscard]] auto end() { return all_.end(); }
    [[nodiscard]] flight_queue take();

   private:
    std::vector<flight> all_;
    std::size_t first_ = 0;
  };

  using exchanges = std::vector<std::unique_ptr<exchange>>;

  void begin_gathering() SALLYPORT_EXCLUDES(mutex_);
  void end_gathering() SALLYPORT_EXCLUDES(mutex_);
  void put_in_flight(std::unique_ptr<exchange> what, script_form form) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] bool room_in_flight() SALLYPORT_REQUIRES(mutex_);
  /// Looks whether a connection that was not used for a while is still there.
  void look_after_pause() SALLYPORT_REQUIRES(mutex_);
  /// Writes what is in the buffer and what waits, as far as there is room.
  void send_waiting() SALLYPORT_REQUIRES(mutex_);
  void flush() SALLYPORT_REQUIRES(mutex_);
  void expect_by(time_point when) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] bool was_sent(const flight& one) const SALLYPORT_REQUIRES(mutex_);
  /// Moves what was sent to `lost`, and the rest back to those who wait.
  void take_back_flights(exchanges& lost) SALLYPORT_REQUIRES(mutex_);
  void forget_connection() SALLYPORT_REQUIRES(mutex_);
  /// Reads and dispatches what has come; false: the connection ended.
  bool take_replies() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] bool dispatch() SALLYPORT_EXCLUDES(mutex_);
  void heal(std::size_t index) SALLYPORT_EXCLUDES(mutex_);
  void finish_batch() SALLYPORT_EXCLUDES(mutex_);
  bool take_overdue(time_point now, exchanges& unknown, exchanges& unsent)
      SALLYPORT_REQUIRES(mutex_);
  /// Takes what is no longer meant off those who wait.
  void sort_waiting() SALLYPORT_EXCLUDES(mutex_);
  void answer_lost(exchanges& lost, const std::string& why);
  static void answer_all(exchanges& all, const base::failure& why);

  const std::size_t max_waiting_bytes_;
  const std::size_t max_in_flight_;
  const std::weak_ptr<owner> owner_;
  std::shared_ptr<link> link_;  // constant once made

  // The pump's thread only; they keep their memory.
  std::vector<reply> said_;
  std::vector<flight> batch_;

  base::mutex mutex_;
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool busy_ SALLYPORT_GUARDED_BY(mutex_) = false;  // the pump's thread deals with replies
  unsigned gatherings_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  bool watching_output_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool broken_ SALLYPORT_GUARDED_BY(mutex_) = false;  // writing failed; why_broken_ says how
  base::failure why_broken_ SALLYPORT_GUARDED_BY(mutex_);
  base::failure last_failure_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<exchange>> waiting_ SALLYPORT_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  flight_queue in_flight_ SALLYPORT_GUARDED_BY(mutex_);
  std::string out_ SALLYPORT_GUARDED_BY(mutex_);
  std::size_t out_done_ SALLYPORT_GUARDED_BY(mutex_) = 0;         // of out_, written
  std::uint64_t written_ SALLYPORT_GUARDED_BY(mutex_) = 0;        // bytes of this connection
  std::uint64_t may_have_left_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // at least written_
  std::uint64_t heard_ SALLYPORT_GUARDED_BY(mutex_) = 0;          // reads that brought something
  time_point quiet_since_ SALLYPORT_GUARDED_BY(mutex_){};         // the last replies, or the start
  time_point next_due_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
};

/// Says nothing and takes everybody: for servers that are only asked where others are.
class quiet_owner final : public connection::owner {
 public:
  std::vector<wire_command> greeting() override { return {}; }
  base::result<std::monostate> greeted(const std::vector<reply>& /*said*/) override {
    return std::monostate{};
  }
  void connected() override {}
  void disconnected(const base::failure& /*why*/) override {}
};

}  // namespace sallyport::backends::redis

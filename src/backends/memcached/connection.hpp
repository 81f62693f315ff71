#pragma once

#include "backend_api/requests.hpp"
#include "backends/memcached/link.hpp"
#include "backends/memcached/wire.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::memcached {

/// One command and who waits for its reply.
class exchange {
 public:
  exchange() = default;
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;
  virtual ~exchange() = default;

  wire_command command;
  time_point answer_by = time_point::max();
  /// Only on the connection of this number, or not at all; zero: on any.
  std::uint64_t bound_to = 0;
  /// The number of the connection that it was put on.
  std::uint64_t sent_on = 0;

  /// Called exactly once, by answer_by at the latest, without a mutex: on the pump's thread or
  /// inside send(), drop() or close(). A reply of the server; or
  ///   unavailable      not one byte of it was sent, or the server refused before it did anything
  ///   outcome_unknown  something of it was sent and no reply came
  ///   closed           the connection was closed before anything was sent
  virtual void answered(base::result<reply> said) = 0;
  /// Instead of answered(): not one byte of it was sent, since the connection that it is bound to is
  /// gone.
  virtual void not_bound() = 0;
};

/// The connection that carries commands: many callers share it, and it sends without waiting for
/// the replies of what was sent before.
///
/// Who does the work: send() writes in the calling thread, unless the pump's thread is just
/// dealing with replies; then that one writes when it is through, once for all that has gathered.
/// Reading happens on the pump's thread.
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
    duration connect_timeout = std::chrono::seconds{2};
    /// What may wait for a connection or for the peer to read; more is answered `unavailable`.
    std::size_t max_waiting_bytes = 8UL * 1024 * 1024;
    /// Commands sent and not replied to; further ones wait.
    std::size_t max_in_flight = 16'384;
  };

  /// Told on the pump's thread, without a mutex.
  class owner {
   public:
    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    virtual ~owner() = default;

    /// A failure ends the attempt ("it runs without CAS"); those who wait are answered with it.
    virtual base::result<std::monostate> greeted(const server_facts& said) = 0;
    /// Before anything is sent on it.
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
  /// Ends the present connection and makes a new one.
  void drop(base::failure why) SALLYPORT_EXCLUDES(mutex_);
  /// For good: what was sent is answered outcome_unknown, the rest and all that comes later
  /// `closed`.
  void close() SALLYPORT_EXCLUDES(mutex_);

  /// Somebody waits for a reply: the pump must run.
  [[nodiscard]] bool unfinished() SALLYPORT_EXCLUDES(mutex_);

  /// The number of the present connection, or of the last one; from 1, and none is given twice.
  [[nodiscard]] std::uint64_t number() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] std::string describe() const { return link_->describe(); }

  // link::user
  base::result<std::monostate> link_greeted(const server_facts& said) override;
  void link_up() override SALLYPORT_EXCLUDES(mutex_);
  void link_down(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void link_ready(std::uint32_t events) override SALLYPORT_EXCLUDES(mutex_);
  void link_due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

 private:
  /// A command in the out buffer or behind it, whose reply is to come.
  struct flight {
    std::unique_ptr<exchange> who;  // null: answered already; its reply will be dropped
    reply_builder answer{0, 0};
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
  void put_in_flight(std::unique_ptr<exchange> what) SALLYPORT_REQUIRES(mutex_);
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
  [[nodiscard]] base::result<std::monostate> dispatch() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] base::result<std::monostate> match() SALLYPORT_REQUIRES(mutex_);
  void finish_batch() SALLYPORT_EXCLUDES(mutex_);
  bool take_overdue(time_point now, exchanges& unknown, exchanges& unsent)
      SALLYPORT_REQUIRES(mutex_);
  /// Takes what is bound to another connection off those who wait.
  void sort_waiting() SALLYPORT_EXCLUDES(mutex_);
  void answer_lost(exchanges& lost, const std::string& why);
  static void answer_all(exchanges& all, const base::failure& why);

  const std::size_t max_waiting_bytes_;
  const std::size_t max_in_flight_;
  const std::weak_ptr<owner> owner_;
  std::shared_ptr<link> link_;  // constant once made

  // The pump's thread only; they keep their memory.
  std::vector<answer_line> said_;
  std::vector<std::pair<std::unique_ptr<exchange>, reply>> batch_;

  base::mutex mutex_;
  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::uint64_t number_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_tag_ SALLYPORT_GUARDED_BY(mutex_) = 0;
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

}  // namespace sallyport::backends::memcached

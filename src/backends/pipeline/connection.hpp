#pragma once

#include "backend_api/requests.hpp"
#include "backends/pipeline/link.hpp"
#include "backends/pipeline/outbox.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::pipeline {

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
///
/// A protocol derives its own, and brings
///   Link      a pipeline::link with read(), and `heard`: what it cuts the stream into
///   Exchange  a pipeline::exchange
///   Owner     is told, on the pump's thread and without a mutex: connected(), before anything is sent
///             over a new connection; disconnected(why), when one was lost or an attempt has failed
///   Trace     what has to be remembered of a command to understand its reply
/// and says how commands become bytes and which replies are theirs: put_in_flight(), match(). The bodies
/// are in connection_body.hpp, for the file that makes the instance.
/// Thread safety: all public members, also from inside answered().
template <class Link, class Exchange, class Owner, class Trace>
class connection : public Link::user {
 public:
  using owner = Owner;
  using reply_type = typename Exchange::reply_type;

  void send(std::unique_ptr<Exchange> what) SALLYPORT_EXCLUDES(mutex_);
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
  /// The number of the present connection, or of the last one; from 1, and none is given twice.
  [[nodiscard]] std::uint64_t number() SALLYPORT_EXCLUDES(mutex_);
  /// For messages: "redis at host:6379".
  [[nodiscard]] std::string describe() const { return link_->describe(); }

  // link::user
  void link_up() override SALLYPORT_EXCLUDES(mutex_);
  void link_down(const base::failure& why, bool was_up) override SALLYPORT_EXCLUDES(mutex_);
  void link_ready(std::uint32_t events) override SALLYPORT_EXCLUDES(mutex_);
  void link_due(time_point now) override SALLYPORT_EXCLUDES(mutex_);

 protected:
  struct limits {
    /// What may wait for a connection or for the peer to read; more is answered `unavailable`.
    std::size_t waiting_bytes = 8UL * 1024 * 1024;
    /// Commands sent and not replied to; further ones wait.
    std::size_t in_flight = 16'384;
  };

  /// A command in the outbox or behind it, whose reply is to come.
  struct flight {
    std::unique_ptr<Exchange> who;  // null: nobody waits for the reply any more
    Trace trace;
    std::uint64_t first_byte = 0;              // its place in the outbox
    std::uint64_t heard_before = 0;            // what heard_ was when it was sent
    time_point silent_by = time_point::max();  // when to ask whether the peer is still there
  };

  /// A queue in one piece of memory, which it keeps.
  class flight_queue {
   public:
    [[nodiscard]] bool empty() const noexcept { return first_ == all_.size(); }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size() - first_; }
    flight& front() { return all_[first_]; }
    flight& push();
    void pop() noexcept { ++first_; }
    [[nodiscard]] auto begin() { return all_.begin() + static_cast<std::ptrdiff_t>(first_); }
    [[nodiscard]] auto end() { return all_.end(); }
    [[nodiscard]] flight_queue take() { return std::exchange(*this, flight_queue{}); }

   private:
    std::vector<flight> all_;
    std::size_t first_ = 0;
  };

  connection(limits most, std::weak_ptr<Owner> whose);
  ~connection() override;
  /// Once, before anything else.
  void attach(std::shared_ptr<Link> made) { link_ = std::move(made); }

  /// Appends the command's bytes to the outbox, behind begin_flight().
  virtual void put_in_flight(std::unique_ptr<Exchange> what) SALLYPORT_REQUIRES(mutex_) = 0;
  /// Takes the flights off the queue that were answered by this, and gives tell() the answers. A
  /// failure is the end of the connection: it answered what nobody had asked, say.
  virtual base::result<std::monostate> match(std::vector<typename Link::heard>& said)
      SALLYPORT_REQUIRES(mutex_) = 0;

  /// What is appended to the outbox from now on belongs to a flight for this, which nobody waits for
  /// until `who` is set.
  flight& begin_flight(Exchange& what) SALLYPORT_REQUIRES(mutex_);
  /// Told when the mutex is free, from where it is: it stays there until the next match(). On the
  /// pump's thread.
  void tell(std::unique_ptr<Exchange> who, reply_type& said) {
    answers_.push_back({std::move(who), &said, nullptr});
  }
  void tell(std::unique_ptr<Exchange> who, base::failure why) {
    answers_.push_back({std::move(who), nullptr, std::make_unique<base::failure>(std::move(why))});
  }
  [[nodiscard]] static tl::unexpected<base::failure> nobody_asked();

  std::shared_ptr<Link> link_;  // constant once attached
  const std::weak_ptr<Owner> owner_;

  base::mutex mutex_;
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;  // what is sent goes into flight
  flight_queue in_flight_ SALLYPORT_GUARDED_BY(mutex_);
  outbox out_ SALLYPORT_GUARDED_BY(mutex_);

 private:
  using exchanges = std::vector<std::unique_ptr<Exchange>>;

  struct answer {
    std::unique_ptr<Exchange> who;
    reply_type* said = nullptr;
    std::unique_ptr<base::failure> why;  // instead of `said`
  };

  void begin_gathering() SALLYPORT_EXCLUDES(mutex_);
  void end_gathering() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] bool bound_elsewhere(const Exchange& what) SALLYPORT_REQUIRES(mutex_);
  [[nodiscard]] bool room_in_flight() SALLYPORT_REQUIRES(mutex_);
  /// Looks whether a connection that was not used for a while is still there.
  void look_after_pause() SALLYPORT_REQUIRES(mutex_);
  /// Writes what is in the outbox and what waits, as far as there is room.
  void send_waiting() SALLYPORT_REQUIRES(mutex_);
  void flush() SALLYPORT_REQUIRES(mutex_);
  void expect_by(time_point when) SALLYPORT_REQUIRES(mutex_);
  /// Moves what was sent to `lost`, and the rest back to those who wait.
  void take_back_flights(exchanges& lost) SALLYPORT_REQUIRES(mutex_);
  void take_waiting(exchanges& all) SALLYPORT_REQUIRES(mutex_);
  void forget_connection() SALLYPORT_REQUIRES(mutex_);
  /// Reads and dispatches what has come; false: the connection ended.
  bool take_replies() SALLYPORT_EXCLUDES(mutex_);
  [[nodiscard]] base::result<std::monostate> dispatch() SALLYPORT_EXCLUDES(mutex_);
  void finish_batch() SALLYPORT_EXCLUDES(mutex_);
  bool take_overdue(time_point now, exchanges& unknown, exchanges& unsent)
      SALLYPORT_REQUIRES(mutex_);
  /// Takes what is no longer meant off the first `count` of those who wait.
  void sort_waiting(std::size_t count) SALLYPORT_EXCLUDES(mutex_);
  static void answer_lost(exchanges& lost, const std::string& why);
  static void answer_all(exchanges& all, const base::failure& why);

  const limits most_;

  // The pump's thread only; they keep their memory.
  std::vector<typename Link::heard> said_;
  std::vector<answer> answers_;

  bool closed_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::uint64_t number_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  bool busy_ SALLYPORT_GUARDED_BY(mutex_) = false;  // the pump's thread deals with replies
  unsigned gatherings_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  base::failure last_failure_ SALLYPORT_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Exchange>> waiting_ SALLYPORT_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  std::uint64_t heard_ SALLYPORT_GUARDED_BY(mutex_) = 0;   // reads that brought something
  time_point quiet_since_ SALLYPORT_GUARDED_BY(mutex_){};  // the last replies, or the start
  time_point next_due_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
};

}  // namespace sallyport::backends::pipeline

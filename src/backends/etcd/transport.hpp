#pragma once

#include "backend_api/backend.hpp"
#include "backends/etcd/address.hpp"
#include "backends/etcd/codec.hpp"
#include "backends/etcd/poll_duty.hpp"
#include "backends/etcd/speech.hpp"
#include "base/mutex.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <pthread.h>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

namespace grpc {
class CompletionQueue;
class Status;
}  // namespace grpc

namespace sallyport::backends::etcd {

/// Why what was said on a stream is over: trouble, or one with another log-in takes its place.
enum class stream_end : std::uint8_t { broken, replaced };

/// Hears what comes unasked; from one thread at a time.
class transport_listener {
 public:
  transport_listener() = default;
  transport_listener(const transport_listener&) = delete;
  transport_listener& operator=(const transport_listener&) = delete;
  virtual ~transport_listener() = default;

  /// A connection was made, before anything is sent on it.
  virtual void connected() = 0;
  virtual void kept_alive(const codec::kept_alive& said) = 0;
  /// What was said on the stream and not answered will not be.
  virtual void keep_alives_over(stream_end how) = 0;
  virtual void watch_reported(const codec::watch_report& said) = 0;
  virtual void watches_over(stream_end how) = 0;
  virtual void watches_back() = 0;
  virtual void alarm_rang() = 0;
};

/// Bytes to and from the members of a cluster, by gRPC: requests with one answer, and the two
/// streams. Knows members, connections and log-ins, but nothing of locks. Members are tried in turn:
/// one that cannot be reached or does not answer is left for the next.
/// Thread safety: all members. Answers and reports come one at a time and without a mutex, on the
/// transport's own thread or on that of a caller which drives.
class transport final : public std::enable_shared_from_this<transport>,
                        private backend_api::drive_waker {
 public:
  using answer = std::function<void(const reply<std::string>& said)>;

  /// Does not wait for a connection. The listener must live until close() has returned, and hears
  /// nothing after that.
  static base::result<std::shared_ptr<transport>> make(const address& where,
                                                       transport_listener& listener);
  transport(const address& where, transport_listener& listener);
  ~transport() override;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;

  /// `method` is a path such as "/etcdserverpb.KV/Txn", and has to live on. The request may be sent
  /// more than once.
  void call(const char* method, const std::string& request, time_point answer_by, answer done)
      SALLYPORT_EXCLUDES(mutex_);
  void keep_alive(std::string request) SALLYPORT_EXCLUDES(mutex_);
  void watch(std::string request) SALLYPORT_EXCLUDES(mutex_);
  /// alarm_rang() is called then, or earlier.
  void set_alarm(time_point when) SALLYPORT_EXCLUDES(mutex_);
  /// The member seems to hang: goes on with the next one. Streams are opened anew.
  void doubt() SALLYPORT_EXCLUDES(mutex_);
  /// Ends all I/O; calls that are under way are answered `unknown` first. On return no answer or
  /// report is under way on another thread. May be called from inside one.
  void close() SALLYPORT_EXCLUDES(mutex_);
  /// Whether the calling thread is inside an answer or a report.
  [[nodiscard]] bool delivers_here() const noexcept;
  /// As backend::drive. `not_driven` only after close().
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline)
      SALLYPORT_EXCLUDES(mutex_);
  /// Somebody waits for what was called just now, and does not drive.
  void hurry() SALLYPORT_EXCLUDES(mutex_) { duty_.hurry(); }

 private:
  class tag;
  class unary;
  class stream;
  class bell;
  class connecting;
  struct member;
  struct line;

  void run();
  void deliver(void* what, bool ok) SALLYPORT_EXCLUDES(mutex_);
  backend_api::drive_outcome poll_for(backend_api::drive_ticket& ticket, time_point deadline)
      SALLYPORT_EXCLUDES(mutex_);
  void wake() noexcept override SALLYPORT_EXCLUDES(mutex_);
  base::result<std::monostate> connect(const address& where);
  void start(std::shared_ptr<unary> request) SALLYPORT_EXCLUDES(mutex_);
  void launch(const std::shared_ptr<unary>& request) SALLYPORT_REQUIRES(mutex_);
  void answered(const std::shared_ptr<unary>& request, const grpc::Status& status)
      SALLYPORT_EXCLUDES(mutex_);
  void log_in() SALLYPORT_REQUIRES(mutex_);
  void logged_in(const reply<std::string>& said) SALLYPORT_EXCLUDES(mutex_);
  /// Whether the present member can be talked to. If not, await_connection() may follow.
  bool ready() SALLYPORT_REQUIRES(mutex_);
  void await_connection() SALLYPORT_REQUIRES(mutex_);
  void connection_changed(bool changed) SALLYPORT_EXCLUDES(mutex_);
  void move_on(std::size_t from) SALLYPORT_REQUIRES(mutex_);
  void say(line& where, std::string request) SALLYPORT_EXCLUDES(mutex_);
  void open(line& where) SALLYPORT_REQUIRES(mutex_);
  void open_lines() SALLYPORT_REQUIRES(mutex_);
  /// Ends it; with the present log-in it is opened anew. A server goes by the one that it began with.
  void replace(stream& which) SALLYPORT_REQUIRES(mutex_);
  void stream_ended(stream& which, const grpc::Status& status) SALLYPORT_EXCLUDES(mutex_);
  void stream_said(stream& which, const std::string& bytes) SALLYPORT_EXCLUDES(mutex_);
  void ring_later(duration after) SALLYPORT_REQUIRES(mutex_);
  enum class bell_purpose : std::uint8_t { listener, reopening, driver };
  void bell_rang(bell_purpose what_for) SALLYPORT_EXCLUDES(mutex_);
  void set_bell(bell_purpose what_for, time_point when) SALLYPORT_REQUIRES(mutex_);

  transport_listener& listener_;
  const std::string user_;
  const std::string password_;
  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::vector<std::unique_ptr<member>> members_;  // which ones: constant once open
  std::thread thread_;                            // likewise
  poll_duty duty_;
  std::atomic<pthread_t> driver_{};  // the caller that polls; zero: none does

  base::mutex mutex_;
  bool shut_ SALLYPORT_GUARDED_BY(mutex_) = false;  // nothing is started any more
  std::size_t current_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  bool connecting_ SALLYPORT_GUARDED_BY(mutex_) = false;
  int last_state_ SALLYPORT_GUARDED_BY(mutex_) = 0;        // of the present member's connection
  std::size_t refusals_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // of members in a row
  std::vector<std::shared_ptr<unary>> parked_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_set<std::shared_ptr<unary>> active_ SALLYPORT_GUARDED_BY(mutex_);
  std::string token_ SALLYPORT_GUARDED_BY(mutex_);
  bool logging_in_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::unordered_set<bell*> bells_ SALLYPORT_GUARDED_BY(mutex_);
  time_point armed_ SALLYPORT_GUARDED_BY(mutex_) = time_point::max();
  bool reopening_ SALLYPORT_GUARDED_BY(mutex_) = false;
  // The lines themselves are always there; what is in them is guarded by mutex_.
  const std::unique_ptr<line> keep_alives_;
  const std::unique_ptr<line> watches_;
};

}  // namespace sallyport::backends::etcd

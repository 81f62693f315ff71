#pragma once

#include "backends/etcd/transport.hpp"

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

// What the transport is made of inside; for its own sources only.
namespace sallyport::backends::etcd {

/// A stream that broke is opened again after this.
inline constexpr duration reopen_pause = std::chrono::milliseconds{100};

[[nodiscard]] gpr_timespec deadline_at(time_point when);
[[nodiscard]] grpc::ByteBuffer buffer_of(const std::string& bytes);
[[nodiscard]] std::string bytes_of(const grpc::ByteBuffer& buffer);

/// What a status that is not OK says about the request.
enum class meaning : std::uint8_t {
  lost,
  not_done,
  no_such_lease,
  lease_exists,
  log_in_again,
  refused,
};

[[nodiscard]] meaning meaning_of(const grpc::Status& status);

/// What the completion queue hands back.
class transport::tag {
 public:
  tag() = default;
  tag(const tag&) = delete;
  tag& operator=(const tag&) = delete;
  virtual ~tag() = default;
  virtual void done(bool ok) = 0;
};

struct transport::member {
  void connect() {
    channel = make_channel();
    stub = std::make_unique<grpc::GenericStub>(channel);
  }

  std::function<std::shared_ptr<grpc::Channel>()> make_channel;  // constant
  // Guarded by the transport's mutex.
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
};

/// One request, over all its tries.
class transport::unary final : public tag, public std::enable_shared_from_this<unary> {
 public:
  unary(std::shared_ptr<transport> whose, const char* path, const std::string& bytes, time_point by,
        answer callback)
      : home(std::move(whose)),
        method(path),
        request(buffer_of(bytes)),
        answer_by(by),
        done_with(std::move(callback)) {}

  void done(bool /*ok*/) override {
    const auto alive = shared_from_this();  // the transport lets go of it meanwhile
    home->answered(alive, status);
  }
  void finish(const reply<std::string>& said) {
    if (const answer callback = std::exchange(done_with, nullptr)) callback(said);
  }

  const std::shared_ptr<transport> home;
  const char* const method;
  const grpc::ByteBuffer request;
  const time_point answer_by;
  answer done_with;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
  std::size_t asked = 0;  // the member
  std::shared_ptr<grpc::Channel> channel;
  std::string token;  // that it was sent with
  int tries = 0;
  bool doubtful = false;
  bool is_log_in = false;
};

/// One of the two streams, over all its openings.
struct transport::line {
  const char* method = nullptr;
  bool is_watch = false;
  std::deque<std::string> to_say;
  stream* open = nullptr;  // owned by its operations
  bool was_broken = false;
};

/// One opening of a stream. Deletes itself when its last operation has come back.
class transport::stream final {
 public:
  stream(std::shared_ptr<transport> whose, line& of, std::size_t at, time_point now)
      : home(std::move(whose)), where(of), asked(at), opened(now) {}

  /// Each kind of operation has a tag of its own.
  class operation final : public tag {
   public:
    operation(stream& whose, void (stream::*what)(bool)) : stream_(whose), what_(what) {}
    void done(bool ok) override { (stream_.*what_)(ok); }

   private:
    stream& stream_;
    void (stream::*what_)(bool);
  };

  void begin(grpc::GenericStub& stub, grpc::CompletionQueue& queue) {
    rpc = stub.PrepareCall(&context, where.method, &queue);
    under_way = 1;
    rpc->StartCall(&started_tag);
  }
  // The home's mutex is held for these.
  void read() {
    ++under_way;
    rpc->Read(&heard, &read_tag);
  }
  void write_next() {
    if (!ready || writing || over || where.to_say.empty()) return;
    writing = true;
    ++under_way;
    const grpc::ByteBuffer bytes = buffer_of(where.to_say.front());
    where.to_say.pop_front();
    rpc->Write(bytes, &written_tag);
  }
  void finish() {
    if (std::exchange(over, true)) return;
    ++under_way;
    rpc->Finish(&status, &finished_tag);
  }
  void started(bool ok);
  void was_read(bool ok);
  void written(bool ok);
  void finished(bool ok);
  void drop(int count);

  const std::shared_ptr<transport> home;
  line& where;
  const std::size_t asked;
  const time_point opened;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rpc;
  grpc::ByteBuffer heard;
  grpc::Status status;
  std::string token;
  operation started_tag{*this, &stream::started};
  operation read_tag{*this, &stream::was_read};
  operation written_tag{*this, &stream::written};
  operation finished_tag{*this, &stream::finished};
  int under_way = 0;
  bool ready = false;
  bool writing = false;
  bool over = false;
  bool replaced = false;
};

/// Rings once.
class transport::bell final : public tag {
 public:
  bell(std::shared_ptr<transport> whose, bell_purpose what_for)
      : home_(std::move(whose)), what_for_(what_for) {}
  void set(grpc::CompletionQueue& queue, time_point when) {
    alarm_.Set(&queue, deadline_at(when), this);
  }
  void cancel() { alarm_.Cancel(); }
  void done(bool /*ok*/) override {
    const std::unique_ptr<bell> self(this);
    {
      const base::mutex_lock lock(home_->mutex_);
      home_->bells_.erase(this);
    }
    home_->bell_rang(what_for_);
  }

 private:
  const std::shared_ptr<transport> home_;
  const bell_purpose what_for_;
  grpc::Alarm alarm_;
};

/// Hears of the present member's connection.
class transport::connecting final : public tag {
 public:
  explicit connecting(std::shared_ptr<transport> whose) : home_(std::move(whose)) {}
  void done(bool ok) override {
    const std::unique_ptr<connecting> self(this);
    home_->connection_changed(ok);
  }

 private:
  const std::shared_ptr<transport> home_;
};

}  // namespace sallyport::backends::etcd

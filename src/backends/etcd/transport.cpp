#include "backends/etcd/transport.hpp"

#include "base/check.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <pthread.h>
#include <utility>

namespace sallyport::backends::etcd {

namespace {

using namespace std::chrono_literals;

constexpr const char* keep_alive_method = "/etcdserverpb.Lease/LeaseKeepAlive";
constexpr const char* watch_method = "/etcdserverpb.Watch/Watch";
constexpr const char* log_in_method = "/etcdserverpb.Auth/Authenticate";

/// How long a connection may take to come about before the next member is tried.
constexpr duration connect_patience = 1s;
/// A stream that broke is opened again after this.
constexpr duration reopen_pause = 100ms;
constexpr duration log_in_patience = 2s;
/// Whoever could not be served is told this much before the last moment.
constexpr duration early_answer = 20ms;
/// With other members to go to, no member gets more than half of the time that is left, but this.
constexpr duration shortest_try = 300ms;
/// Of one request, however much time is left.
constexpr int most_tries = 6;
/// Answers are larger than gRPC's usual 4 MB only for lists of very many locks.
constexpr int largest_answer = 64 * 1024 * 1024;

gpr_timespec deadline_at(time_point when) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(when - lease_clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(std::max<std::int64_t>(left.count(), 0), GPR_TIMESPAN));
}

grpc::ByteBuffer buffer_of(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return out;
  for (const grpc::Slice& each : slices) {
    out.append(reinterpret_cast<const char*>(each.begin()), each.size());  // NOLINT
  }
  return out;
}

base::result<std::string> content_of(const std::string& path) {
  if (path.empty()) return std::string{};
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || text.empty()) {
    return base::fail(errc::bad_uri, "the file '" + path + "' can't be read or is empty");
  }
  return text;
}

/// What a status that is not OK says about the request.
enum class meaning { lost, not_done, no_such_lease, log_in_again, refused };

meaning meaning_of(const grpc::Status& status) {
  const std::string& text = status.error_message();
  const auto says = [&](std::string_view words) { return text.find(words) != std::string::npos; };
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return says("etcdserver: no leader") ? meaning::not_done : meaning::lost;
    case grpc::StatusCode::UNAUTHENTICATED:
      return meaning::log_in_again;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return says("user name is empty") || says("auth: revision in header is old")
                 ? meaning::log_in_again
                 : meaning::refused;
    case grpc::StatusCode::NOT_FOUND:
      return says("requested lease not found") ? meaning::no_such_lease : meaning::refused;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return says("too many requests") ? meaning::not_done : meaning::refused;
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNIMPLEMENTED:
      return meaning::refused;
    default:
      return meaning::lost;  // time-outs, broken connections, whatever else
  }
}

}  // namespace

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
  std::string name;
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
  std::string token;      // that it was sent with
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
  stream(std::shared_ptr<transport> whose, line& of, std::size_t at)
      : home(std::move(whose)), where(of), asked(at) {}

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
};

/// Rings once.
class transport::bell final : public tag {
 public:
  bell(std::shared_ptr<transport> whose, bool for_listener)
      : home_(std::move(whose)), for_listener_(for_listener) {}
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
    home_->bell_rang(for_listener_);
  }

 private:
  const std::shared_ptr<transport> home_;
  const bool for_listener_;
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

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<transport>> transport::make(const address& where,
                                                         transport_listener& listener) {
  auto made = std::make_shared<transport>(where, listener);
  if (auto done = made->connect(where); !done) return tl::unexpected(done.error());
  made->thread_ = std::thread([made] { made->run(); });
  return made;
}

transport::transport(const address& where, transport_listener& listener)
    : listener_(listener),
      user_(where.user),
      password_(where.password),
      queue_(std::make_unique<grpc::CompletionQueue>()),
      keep_alives_(std::make_unique<line>()),
      watches_(std::make_unique<line>()) {
  keep_alives_->method = keep_alive_method;
  watches_->method = watch_method;
  watches_->is_watch = true;
}

transport::~transport() {
  if (thread_.joinable()) thread_.detach();  // only its own end is left of it
}

base::result<std::monostate> transport::connect(const address& where) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (where.tls.on) {
    grpc::SslCredentialsOptions options;
    auto authority = content_of(where.tls.ca_file);
    auto certificate = content_of(where.tls.certificate_file);
    auto key =
        content_of(where.tls.key_file.empty() ? where.tls.certificate_file : where.tls.key_file);
    for (const auto* each : {&authority, &certificate, &key}) {
      if (!*each) return tl::unexpected(each->error());
    }
    options.pem_root_certs = std::move(*authority);
    options.pem_cert_chain = std::move(*certificate);
    options.pem_private_key = std::move(*key);
    credentials = grpc::SslCredentials(options);
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each client has its own connections
  arguments.SetMaxReceiveMessageSize(largest_answer);
  if (!where.tls.server_name.empty()) arguments.SetSslTargetNameOverride(where.tls.server_name);
  for (const net::endpoint& each : where.members) {
    auto made = std::make_unique<member>();
    made->name = each.describe();
    made->channel = grpc::CreateCustomChannel("dns:///" + made->name, credentials, arguments);
    made->stub = std::make_unique<grpc::GenericStub>(made->channel);
    members_.push_back(std::move(made));
  }
  return std::monostate{};
}

void transport::run() {
  pthread_setname_np(pthread_self(), "sally-etcd");
  void* next = nullptr;
  bool ok = false;
  while (queue_->Next(&next, &ok)) static_cast<tag*>(next)->done(ok);
}

bool transport::on_own_thread() const noexcept {
  return std::this_thread::get_id() == thread_.get_id();
}

void transport::close() {
  std::vector<std::shared_ptr<unary>> dropped;
  {
    const base::mutex_lock lock(mutex_);
    if (!std::exchange(shut_, true)) {
      dropped.swap(parked_);
      dropped.insert(dropped.end(), active_.begin(), active_.end());
      for (const auto& each : active_) each->context->TryCancel();
      for (bell* each : bells_) each->cancel();
      for (line* each : {keep_alives_.get(), watches_.get()}) {
        if (each->open != nullptr) each->open->context.TryCancel();
      }
      queue_->Shutdown();
    }
  }
  for (const auto& each : dropped) {
    each->finish(
        {.value = {}, .why = trouble::unknown, .text = "the client was closed", .doubtful = true});
  }
  if (thread_.joinable() && !on_own_thread()) thread_.join();
}

// ---- requests ------------------------------------------------------------------------------------

void transport::call(const char* method, std::string request, time_point answer_by, answer done) {
  start(std::make_shared<unary>(shared_from_this(), method, request, answer_by, std::move(done)));
}

void transport::start(std::shared_ptr<unary> request) {
  const base::mutex_lock lock(mutex_);
  if (shut_) return;
  if (!ready()) {
    parked_.push_back(std::move(request));
    await_connection();
    return;
  }
  if (!user_.empty() && token_.empty() && !request->is_log_in) {
    parked_.push_back(std::move(request));
    log_in();
    return;
  }
  launch(request);
}

void transport::launch(const std::shared_ptr<unary>& request) {
  const time_point now = lease_clock::now();
  time_point until = request->answer_by;
  if (members_.size() > 1) {
    until = std::min(until, now + std::max<duration>(shortest_try, (until - now) / 2));
  }
  ++request->tries;
  request->asked = current_;
  request->token = token_;
  request->context = std::make_unique<grpc::ClientContext>();
  request->context->set_deadline(deadline_at(until));
  // A member without a leader says so at once, instead of letting the request wait for one.
  request->context->AddMetadata("hasleader", "true");
  if (!token_.empty() && !request->is_log_in) request->context->AddMetadata("token", token_);
  request->reader = members_[current_]->stub->PrepareUnaryCall(
      request->context.get(), request->method, request->request, queue_.get());
  active_.insert(request);
  request->reader->StartCall();
  request->reader->Finish(&request->response, &request->status, request.get());
}

void transport::answered(const std::shared_ptr<unary>& request, const grpc::Status& status) {
  reply<std::string> said;
  said.text = status.error_message();
  bool again = false;
  {
    const base::mutex_lock lock(mutex_);
    active_.erase(request);
    if (shut_) return;
    const bool time_left = request->tries < most_tries && lease_clock::now() < request->answer_by;
    if (status.ok()) {
      refusals_ = 0;
    } else {
      const meaning what = meaning_of(status);
      const bool may_log_in = !user_.empty() && !request->is_log_in;
      if (what == meaning::lost) {
        request->doubtful = true;
        move_on(request->asked);
      } else if (what == meaning::not_done) {
        move_on(request->asked);
      } else if (what == meaning::log_in_again && request->token == token_) {
        token_.clear();
      }
      again =
          time_left && (what == meaning::lost || (what == meaning::log_in_again && may_log_in) ||
                        (what == meaning::not_done &&
                         static_cast<std::size_t>(request->tries) < members_.size()));
      said.why = what == meaning::no_such_lease ? trouble::no_such_lease
                 : what == meaning::refused || what == meaning::log_in_again ? trouble::refused
                 : request->doubtful                                         ? trouble::unknown
                                                                             : trouble::unavailable;
    }
  }
  said.doubtful = request->doubtful;
  if (status.ok()) said.value = bytes_of(request->response);
  if (again) {
    start(request);
  } else {
    request->finish(said);
  }
}

// ---- log-in --------------------------------------------------------------------------------------

void transport::log_in() {
  if (std::exchange(logging_in_, true)) return;
  const auto request = std::make_shared<unary>(
      shared_from_this(), log_in_method, codec::authenticate_request(user_, password_),
      lease_clock::now() + log_in_patience,
      [this](const reply<std::string>& said) { logged_in(said); });
  request->is_log_in = true;
  launch(request);
}

void transport::logged_in(const reply<std::string>& said) {
  std::vector<std::shared_ptr<unary>> waiting;
  const auto token = said.value ? codec::read_authenticate(*said.value) : std::nullopt;
  {
    const base::mutex_lock lock(mutex_);
    logging_in_ = false;
    if (token) token_ = *token;
    waiting.swap(parked_);
    if (token && !shut_) open_lines();
  }
  for (const auto& each : waiting) {
    if (token) {
      start(each);
    } else {
      // Nothing of the request itself was sent.
      each->finish({.value = {},
                    .why = said.why == trouble::refused ? trouble::refused : trouble::unavailable,
                    .text = "log-in: " + said.text,
                    .doubtful = each->doubtful});
    }
  }
}

// ---- connections ---------------------------------------------------------------------------------

bool transport::ready() {
  last_state_ = static_cast<int>(members_[current_]->channel->GetState(true));
  return last_state_ == GRPC_CHANNEL_READY;
}

void transport::await_connection() {
  if (shut_ || std::exchange(connecting_, true)) return;
  // Requests that were not sent are answered before it is too late to say so.
  time_point until = lease_clock::now() + connect_patience;
  for (const auto& each : parked_) until = std::min(until, each->answer_by - early_answer);
  // From the state that made us wait: should it have changed since, we hear of it at once.
  members_[current_]->channel->NotifyOnStateChange(
      static_cast<grpc_connectivity_state>(last_state_), deadline_at(until), queue_.get(),
      new connecting(shared_from_this()));  // NOLINT: owns itself
}

void transport::connection_changed(bool changed) {
  std::vector<std::shared_ptr<unary>> connected;
  std::vector<std::shared_ptr<unary>> given_up;
  {
    const base::mutex_lock lock(mutex_);
    connecting_ = false;
    if (shut_) return;
    const grpc_connectivity_state state = members_[current_]->channel->GetState(true);
    bool no_member = false;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !changed) {
      current_ = (current_ + 1) % members_.size();
      no_member = ++refusals_ >= members_.size();
    }
    if (ready()) {
      refusals_ = 0;
      connected.swap(parked_);
      open_lines();
    } else if (no_member) {
      refusals_ = 0;
      given_up.swap(parked_);
      if (!keep_alives_->to_say.empty() || !watches_->to_say.empty()) ring_later(reopen_pause);
    } else {
      const time_point soon = lease_clock::now() + early_answer;
      const auto late = std::stable_partition(
          parked_.begin(), parked_.end(), [&](const auto& each) { return each->answer_by > soon; });
      given_up.assign(late, parked_.end());
      parked_.erase(late, parked_.end());
      await_connection();
    }
  }
  for (const auto& each : connected) start(each);
  for (const auto& each : given_up) {
    each->finish({.value = {},
                  .why = each->doubtful ? trouble::unknown : trouble::unavailable,
                  .text = "no member can be reached",
                  .doubtful = each->doubtful});
  }
}

void transport::move_on(std::size_t from) {
  if (from != current_) return;
  current_ = (current_ + 1) % members_.size();
  // What is said on the streams goes to the next member, too.
  for (line* each : {keep_alives_.get(), watches_.get()}) {
    if (each->open != nullptr && each->open->asked == from) each->open->context.TryCancel();
  }
}

void transport::doubt() {
  const base::mutex_lock lock(mutex_);
  if (!shut_) move_on(current_);
}

// ---- streams -------------------------------------------------------------------------------------

void transport::keep_alive(std::string request) { say(*keep_alives_, std::move(request)); }

void transport::watch(std::string request) { say(*watches_, std::move(request)); }

void transport::say(line& where, std::string request) {
  const base::mutex_lock lock(mutex_);
  if (shut_) return;
  where.to_say.push_back(std::move(request));
  if (where.open != nullptr) {
    where.open->write_next();
  } else if (!reopening_) {
    open(where);
  }
}

void transport::open_lines() {
  for (line* each : {keep_alives_.get(), watches_.get()}) {
    if (each->open == nullptr && !each->to_say.empty()) open(*each);
  }
}

void transport::open(line& where) {
  if (!ready()) {
    await_connection();
    return;
  }
  if (!user_.empty() && token_.empty()) {
    log_in();
    return;
  }
  auto* const fresh = new stream(shared_from_this(), where, current_);  // NOLINT: owns itself
  where.open = fresh;
  fresh->token = token_;
  if (where.is_watch) fresh->context.AddMetadata("hasleader", "true");
  if (!token_.empty()) fresh->context.AddMetadata("token", token_);
  fresh->begin(*members_[current_]->stub, *queue_);
}

void transport::stream::started(bool ok) {
  {
    const base::mutex_lock lock(home->mutex_);
    if (home->shut_) {
      over = true;
    } else if (ok) {
      ready = true;
      read();
      write_next();
    } else {
      finish();
    }
  }
  drop(1);
}

void transport::stream::was_read(bool ok) {
  std::string bytes;
  {
    const base::mutex_lock lock(home->mutex_);
    if (home->shut_) {
      over = true;
    } else if (ok) {
      bytes = bytes_of(heard);
    } else {
      finish();
    }
  }
  if (!bytes.empty()) home->stream_said(*this, bytes);
  {
    const base::mutex_lock lock(home->mutex_);
    if (ok && !home->shut_ && !over) read();
  }
  drop(1);
}

void transport::stream::written(bool ok) {
  {
    const base::mutex_lock lock(home->mutex_);
    writing = false;
    if (home->shut_) {
      over = true;
    } else if (ok) {
      write_next();
    } else {
      finish();
    }
  }
  drop(1);
}

void transport::stream::finished(bool /*ok*/) {
  home->stream_ended(*this, status);
  drop(1);
}

void transport::stream::drop(int count) {
  bool last = false;
  {
    const base::mutex_lock lock(home->mutex_);
    under_way -= count;
    last = under_way == 0;
    if (last && where.open == this) where.open = nullptr;
  }
  if (last) delete this;  // NOLINT: owns itself
}

void transport::stream_said(stream& which, const std::string& bytes) {
  bool back = false;
  const bool is_watch = which.where.is_watch;
  {
    const base::mutex_lock lock(mutex_);
    if (which.where.open != &which) return;
    if (is_watch) back = std::exchange(which.where.was_broken, false);
  }
  if (!is_watch) {
    if (const auto said = codec::read_keep_alive(bytes)) listener_.kept_alive(*said);
    return;
  }
  const auto said = codec::read_watch(bytes);
  if (!said) return;
  listener_.watch_reported(*said);
  if (back) listener_.watches_back();
}

void transport::stream_ended(stream& which, const grpc::Status& status) {
  const bool is_watch = which.where.is_watch;
  {
    const base::mutex_lock lock(mutex_);
    if (shut_) return;
    if (which.where.open == &which) which.where.open = nullptr;
    // What was not said yet belongs to what the listener is about to say anew.
    which.where.to_say.clear();
    which.where.was_broken = true;
    if (meaning_of(status) == meaning::log_in_again && which.token == token_) token_.clear();
    if (meaning_of(status) == meaning::lost || meaning_of(status) == meaning::not_done) {
      move_on(which.asked);
    }
    reopening_ = true;
    ring_later(reopen_pause);
  }
  if (is_watch) {
    listener_.watches_broken();
  } else {
    listener_.keep_alives_broken();
  }
}

// ---- time ----------------------------------------------------------------------------------------

void transport::set_alarm(time_point when) {
  const base::mutex_lock lock(mutex_);
  if (shut_ || when >= armed_) return;
  armed_ = when;
  auto* const fresh = new bell(shared_from_this(), true);  // NOLINT: owns itself
  bells_.insert(fresh);
  fresh->set(*queue_, when);
}

void transport::ring_later(duration after) {
  if (shut_) return;
  auto* const fresh = new bell(shared_from_this(), false);  // NOLINT: owns itself
  bells_.insert(fresh);
  fresh->set(*queue_, lease_clock::now() + after);
}

void transport::bell_rang(bool for_listener) {
  {
    const base::mutex_lock lock(mutex_);
    if (shut_) return;
    if (for_listener) {
      armed_ = time_point::max();
    } else {
      reopening_ = false;
      open_lines();
    }
  }
  if (for_listener) listener_.alarm_rang();
}

}  // namespace sallyport::backends::etcd

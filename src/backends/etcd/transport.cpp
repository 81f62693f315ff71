#include "backends/etcd/transport_parts.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace sallyport::backends::etcd {

using backend_api::drive_outcome;
using backend_api::drive_ticket;

namespace {

using namespace std::chrono_literals;

constexpr const char* keep_alive_method = "/etcdserverpb.Lease/LeaseKeepAlive";
constexpr const char* watch_method = "/etcdserverpb.Watch/Watch";
constexpr const char* log_in_method = "/etcdserverpb.Auth/Authenticate";

/// How long a connection may take to come about before the next member is tried.
constexpr duration connect_patience = 1s;
constexpr duration log_in_patience = 2s;
/// Whoever could not be served is told this much before the last moment.
constexpr duration early_answer = 20ms;
/// With other members to go to, no member gets more than half of the time that is left, but this.
constexpr duration shortest_try = 300ms;
/// Of one request, however much time is left.
constexpr int most_tries = 6;
/// Answers are larger than gRPC's usual 4 MB only for lists of very many locks.
constexpr int largest_answer = 64 * 1024 * 1024;
/// Of a caller that somebody else polls for, before it looks around.
constexpr duration longest_sleep = 1h;

base::result<std::string> content_of(const std::string& path) {
  if (path.empty()) return std::string{};
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || text.empty()) {
    return base::fail(errc::bad_uri, "the file '" + path + "' can't be read or is empty");
  }
  return text;
}

}  // namespace

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
      return says("lease already exists") ? meaning::lease_exists : meaning::refused;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNIMPLEMENTED:
      return meaning::refused;
    default:
      return meaning::lost;  // time-outs, broken connections, whatever else
  }
}

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<transport>> transport::make(const address& where,
                                                         transport_listener& listener) {
  auto made = std::make_shared<transport>(where, listener);
  if (auto done = made->connect(where); !done) return tl::unexpected(done.error());
  try {
    made->thread_ = std::thread([made] { made->run(); });
  } catch (const std::system_error& refused) {
    return base::fail(errc::no_thread, "the thread that hears etcd could not be started: " +
                                           refused.code().message());
  }
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
  // A peer that is gone without a word; etcd takes it amiss more often than every 5 s.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  for (const net::endpoint& each : where.members) {
    auto made = std::make_unique<member>();
    made->make_channel = [target = "dns:///" + each.describe(), credentials, arguments] {
      return grpc::CreateCustomChannel(target, credentials, arguments);
    };
    made->connect();
    members_.push_back(std::move(made));
  }
  return std::monostate{};
}

void transport::run() {
  pthread_setname_np(pthread_self(), "sally-etcd");
  void* next = nullptr;
  bool ok = false;
  for (;;) {
    duty_.await_turn();
    if (!queue_->Next(&next, &ok)) return;
    deliver(next, ok);
    duty_.end_turn();
  }
}

void transport::deliver(void* what, bool ok) {
#if defined(__SANITIZE_THREAD__)
  // Every operation was started with the mutex held. The queue orders what was done before with what
  // follows, but the sanitizer does not see that: the library is not built with it.
  { const base::mutex_lock lock(mutex_); }
#endif
  static_cast<tag*>(what)->done(ok);
}

bool transport::delivers_here() const noexcept {
  return std::this_thread::get_id() == thread_.get_id() ||
         pthread_equal(driver_.load(), pthread_self()) != 0;
}

// ---- callers that poll ---------------------------------------------------------------------------

drive_outcome transport::drive(drive_ticket& ticket, time_point deadline) {
  if (ticket.finished()) return drive_outcome::finished;
  const auto alive = shared_from_this();
  const bool polls = duty_.begin(ticket);
  // Also when a delivery throws: the thread polls again only when no caller does.
  struct duty_end {
    poll_duty& duty;
    bool polls;
    ~duty_end() { duty.end(polls); }
  } const until_the_end{duty_, polls};
  auto outcome = drive_outcome::finished;
  if (polls) {
    outcome = poll_for(ticket, deadline);
  } else {
    while (!ticket.finished() && outcome == drive_outcome::finished) {
      const auto now = lease_clock::now();
      if (now >= deadline) outcome = drive_outcome::deadline_passed;
      ticket.wait_for(std::min<duration>(deadline - now, longest_sleep));
    }
  }
  return outcome;
}

drive_outcome transport::poll_for(drive_ticket& ticket, time_point deadline) {
  const gpr_timespec until =
      deadline == time_point::max() ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : deadline_at(deadline);
  if (!ticket.begin_drive(*this)) return drive_outcome::finished;
  driver_.store(pthread_self());
  struct drive_end {
    std::atomic<pthread_t>& driver;
    drive_ticket& ticket;
    ~drive_end() {
      driver.store({});
      ticket.end_drive();
    }
  } const until_the_end{driver_, ticket};
  auto outcome = drive_outcome::finished;
  while (!ticket.finished() && outcome == drive_outcome::finished) {
    void* next = nullptr;
    bool ok = false;
    switch (queue_->AsyncNext(&next, &ok, until)) {
      case grpc::CompletionQueue::GOT_EVENT:
        deliver(next, ok);
        break;
      case grpc::CompletionQueue::TIMEOUT:
        outcome = drive_outcome::deadline_passed;
        break;
      case grpc::CompletionQueue::SHUTDOWN:
        outcome = drive_outcome::not_driven;
        break;
    }
  }
  return outcome;
}

void transport::wake() noexcept {
  // The driver looks at its ticket after all that it did itself.
  if (pthread_equal(driver_.load(), pthread_self()) != 0) return;
  const base::mutex_lock lock(mutex_);
  set_bell(bell_purpose::driver, lease_clock::now());
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
  duty_.close();
  for (const auto& each : dropped) {
    each->finish(
        {.value = {}, .why = trouble::unknown, .text = "the client was closed", .doubtful = true});
  }
  if (thread_.joinable() && std::this_thread::get_id() != thread_.get_id()) thread_.join();
}

// ---- requests ------------------------------------------------------------------------------------

void transport::call(const char* method, const std::string& request, time_point answer_by,
                     answer done) {
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
  request->channel = members_[current_]->channel;
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
        // The connection may have a hole that nobody tells of: its next use begins with a new one.
        const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
        member& one = *members_[request->asked];
        if (silent && request->channel == one.channel) one.connect();
      } else if (what == meaning::not_done) {
        move_on(request->asked);
      } else if (what == meaning::log_in_again && request->token == token_) {
        token_.clear();
      }
      again =
          time_left && (what == meaning::lost || (what == meaning::log_in_again && may_log_in) ||
                        (what == meaning::not_done &&
                         static_cast<std::size_t>(request->tries) < members_.size()));
      said.why = what == meaning::no_such_lease  ? trouble::no_such_lease
                 : what == meaning::lease_exists ? trouble::lease_exists
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
    waiting.swap(parked_);
    if (token) token_ = *token;
    if (token && !shut_) {
      for (line* each : {keep_alives_.get(), watches_.get()}) {
        if (each->open != nullptr && each->open->token != token_) replace(*each->open);
      }
      open_lines();
    }
  }
  for (const auto& each : waiting) {
    if (token) {
      start(each);
    } else {
      // Nothing of the request itself was sent, unless an earlier try was.
      const trouble refused =
          said.why == trouble::refused ? trouble::refused : trouble::unavailable;
      each->finish({.value = {},
                    .why = each->doubtful ? trouble::unknown : refused,
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
  bool made = false;
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
      made = true;
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
  if (made) listener_.connected();
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

// ---- time ----------------------------------------------------------------------------------------

void transport::set_alarm(time_point when) {
  const base::mutex_lock lock(mutex_);
  if (shut_ || when >= armed_) return;
  armed_ = when;
  set_bell(bell_purpose::listener, when);
}

void transport::ring_later(duration after) {
  set_bell(bell_purpose::reopening, lease_clock::now() + after);
}

void transport::set_bell(bell_purpose what_for, time_point when) {
  if (shut_) return;
  auto* const fresh = new bell(shared_from_this(), what_for);  // NOLINT: owns itself
  bells_.insert(fresh);
  fresh->set(*queue_, when);
}

void transport::bell_rang(bell_purpose what_for) {
  {
    const base::mutex_lock lock(mutex_);
    if (shut_) return;
    if (what_for == bell_purpose::listener) armed_ = time_point::max();
    if (what_for == bell_purpose::reopening) {
      reopening_ = false;
      open_lines();
    }
  }
  if (what_for == bell_purpose::listener) listener_.alarm_rang();
}

}  // namespace sallyport::backends::etcd

#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/crew.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/etcd_probe.hpp"
#include "tests/kit/etcd_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <etcd.pb.h>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Locks on etcd: alone, beside the two requests of a raw gRPC client; contended, beside Go's
/// clientv3/concurrency. One member, whose data is in memory, unless a group says otherwise.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;
namespace wire = sallyport::etcd::wire;

constexpr double raw_bar = 1 / 0.8;
constexpr double go_bar = 1 / 5.0;
constexpr double requests_bar = 3;
/// Go's waiters often learn of a release a tenth of a second later: less would show chance.
constexpr seconds shortest_contest = 1s;
/// Rows that are measured once last so many rounds.
constexpr double contended_rounds = 10;

std::unique_ptr<kit::etcd_cluster> bench_member(bool on_disk) {
  return std::make_unique<kit::etcd_cluster>(kit::etcd_options{.on_disk = on_disk});
}

/// The rows that are compared with each other talk to one member: with a fresh one each, the figures
/// would also tell of how members begin.
const kit::etcd_cluster& common_member(bool on_disk) {
  static std::array<std::unique_ptr<kit::etcd_cluster>, 2> members;
  auto& one = members[on_disk ? 1 : 0];
  if (one == nullptr) one = bench_member(on_disk);
  return *one;
}

/// How a raw client waits for its answers.
enum class waits : std::uint8_t {
  itself,     ///< gRPC's blocking call: the calling thread reads the connection
  for_thread  ///< a thread reads a completion queue and wakes the caller, as a client with streams
              ///< needs it
};

/// What a lock on etcd costs at least: a transaction that puts the key if it is not there, and a
/// deletion.
class raw_client {
 public:
  raw_client(std::uint16_t port, waits how)
      : how_(how),
        channel_(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                     grpc::InsecureChannelCredentials())),
        stub_(channel_) {
    if (how_ == waits::for_thread) reader_ = std::thread([this] { read(); });
    wire::LeaseGrantRequest wanted;
    wanted.set_ttl(30);
    const auto granted = call<wire::LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", wanted);
    wire::Compare& absent = *txn_.add_compare();
    absent.set_target(wire::Compare::CREATE);
    absent.set_key(key);
    absent.set_create_revision(0);
    wire::PutRequest& put = *txn_.add_success()->mutable_request_put();
    put.set_key(key);
    put.set_lease(granted.id());
    erase_.set_key(key);
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() {
    queue_.Shutdown();
    if (reader_.joinable()) reader_.join();
  }

  void pair() {
    if (!call<wire::TxnResponse>("/etcdserverpb.KV/Txn", txn_).succeeded()) {
      throw std::runtime_error("the key was there");
    }
    if (call<wire::DeleteRangeResponse>("/etcdserverpb.KV/DeleteRange", erase_).deleted() != 1) {
      throw std::runtime_error("the key was gone");
    }
  }

 private:
  static constexpr const char* key = "bench/raw";

  template <class Answer, class Request>
  Answer call(const char* method, const Request& what) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 10s);
    Answer answer;
    const grpc::Status said = how_ == waits::itself ? call_blocking(method, context, what, answer)
                                                    : call_queued(method, context, what, answer);
    if (!said.ok()) throw std::runtime_error(said.error_message());
    return answer;
  }

  template <class Answer, class Request>
  grpc::Status call_blocking(const char* method, grpc::ClientContext& context, const Request& what,
                             Answer& answer) {
    return grpc::internal::BlockingUnaryCall(
        channel_.get(), grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC),
        &context, what, &answer);
  }

  template <class Answer, class Request>
  grpc::Status call_queued(const char* method, grpc::ClientContext& context, const Request& what,
                           Answer& answer) {
    const grpc::Slice bytes{what.SerializeAsString()};
    const grpc::ByteBuffer request{&bytes, 1};
    grpc::ByteBuffer response;
    grpc::Status said;
    const std::uint64_t before = answered_.load();
    const auto reader = stub_.PrepareUnaryCall(&context, method, request, &queue_);
    reader->StartCall();
    reader->Finish(&response, &said, this);
    answered_.wait(before);
    grpc::Slice whole;
    if (said.ok() && response.DumpToSingleSlice(&whole).ok()) {
      answer.ParseFromArray(whole.begin(), static_cast<int>(whole.size()));
    }
    return said;
  }

  void read() {
    void* tag = nullptr;
    bool good = false;
    while (queue_.Next(&tag, &good)) {
      ++answered_;
      answered_.notify_all();
    }
  }

  const waits how_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::atomic<std::uint64_t> answered_{0};
  std::thread reader_;
  wire::TxnRequest txn_;
  wire::DeleteRangeRequest erase_;
};

template <waits How>
double raw_pair(seconds time, bool on_disk) {
  raw_client raw(common_member(on_disk).port(0), How);
  raw.pair();
  return nanoseconds_per_call(time, [&raw] { raw.pair(); }) / 1e3;
}

double mutex_pair(seconds time, bool on_disk) {
  mutex lock{client::open(common_member(on_disk).address()), "bench"};
  const auto take_and_give_back = [&lock] {
    lease held = lock.acquire();
    if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
  };
  take_and_give_back();
  return nanoseconds_per_call(time, take_and_give_back) / 1e3;
}

library sallyport_on(const kit::etcd_cluster& member) {
  library out = sallyport_itself();
  out.environment.push_back(std::string(store_variable) + "=" + member.address());
  return out;
}

library go_on(const std::string& endpoint) {
  return {.id = "go",
          .title = "Go: clientv3/concurrency",
          .program = SALLYPORT_GO_CONCURRENCY,
          .arguments = {},
          .environment = {"BENCH_ETCD=" + endpoint, "GOMAXPROCS=2"},
          .trial = {"--trial"},
          .remedy = "install golang-go, build the target bench_peers"};
}

std::string endpoint_of(const kit::etcd_cluster& member) {
  return "127.0.0.1:" + std::to_string(member.port(0));
}

/// Transactions, reads and deletions that the member has answered, as its metrics count them.
double requests_of(const kit::etcd_probe& etcd) {
  std::istringstream lines{etcd.page("/metrics")};
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("grpc_server_handled_total{")) continue;
    if (line.find("grpc_service=\"etcdserverpb.KV\"") == std::string::npos) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

/// What the member had answered at some moment.
struct sample {
  double requests = 0;
  std::int64_t at = 0;
};

sample sample_of(const kit::etcd_probe& etcd) {
  return {.requests = requests_of(etcd), .at = stopwatch::now().time_since_epoch().count()};
}

struct contest_figures {
  turn_figures turns;
  double requests_per_turn = 0;
};

/// Requests are counted while all stand in line already, and nobody leaves for good.
contest_figures measure_contest(const library& which, const contest& wanted,
                                const kit::etcd_cluster& member, seconds time) {
  constexpr auto settling = 400ms;
  const auto control = bench_server(false);
  const kit::etcd_probe etcd{member.port(0)};
  sample first;
  sample last;
  std::jthread sampling;
  contest how = wanted;
  how.lead = settling;
  how.at_begin = [&] {
    sampling = std::jthread([&] {
      std::this_thread::sleep_for(settling);
      first = sample_of(etcd);
      std::this_thread::sleep_for(time);
      last = sample_of(etcd);
    });
  };
  auto outcome = crew{which, how, *control}.run(time);
  sampling.join();
  const auto counted = std::count_if(
      outcome.turns.begin(), outcome.turns.end(),
      [&](const turn& each) { return each.entered_at >= first.at && each.entered_at < last.at; });
  if (counted == 0) throw std::runtime_error("nobody had a turn");
  return {.turns = figures_of(std::move(outcome.turns), outcome.counted, how.processes * how.seats),
          .requests_per_turn = (last.requests - first.requests) / static_cast<double>(counted)};
}

program pair_program(std::string id, std::string group, std::string title, std::string limit,
                     bar wanted, double (*measure)(seconds, bool), bool on_disk) {
  return {.id = std::move(id),
          .group = std::move(group),
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure = [measure, on_disk](const measure_settings& how) {
            return std::vector<double>{measure(how.time, on_disk)};
          }};
}

/// Both in one round, on a member each, one after the other: their ratio is the figure.
program beside_go(const std::string& id, const std::string& group, const contest& how, bar wanted) {
  return {.id = id,
          .group = group,
          .title = "sallyport::mutex beside Go's clientv3/concurrency",
          .limit = {},
          .figures = {{.name = "changes of holder, sallyport", .unit = "per s"},
                      {.name = "changes of holder, Go", .unit = "per s"},
                      {.name = "Go's to sallyport's", .unit = "", .wanted = wanted},
                      {.name = "hand-off p50, sallyport", .unit = "us"},
                      {.name = "hand-off p50, Go", .unit = "us"},
                      {.name = "requests per turn, sallyport", .unit = ""},
                      {.name = "requests per turn, Go", .unit = ""}},
          .measure =
              [how](const measure_settings& settings) {
                const seconds time = std::max<seconds>(settings.time, shortest_contest);
                const auto first = bench_member(false);
                const auto ours = measure_contest(sallyport_on(*first), how, *first, time);
                const auto second = bench_member(false);
                const auto theirs =
                    measure_contest(go_on(endpoint_of(*second)), how, *second, time);
                return std::vector<double>{
                    ours.turns.changes_per_second,
                    theirs.turns.changes_per_second,
                    theirs.turns.changes_per_second / ours.turns.changes_per_second,
                    ours.turns.handoff_p50_us,
                    theirs.turns.handoff_p50_us,
                    ours.requests_per_turn,
                    theirs.requests_per_turn};
              },
          .why_missing = [] { return why_missing(go_on({})); }};
}

program crowd(int waiters) {
  constexpr int processes = 8;
  const contest how{.processes = processes, .seats = waiters / processes, .hold = 1ms};
  return {.id = "etcd-crowd/" + std::to_string(waiters),
          .group = "etcd: a crowd in 8 processes, held for 1 ms",
          .title = std::to_string(waiters) + " waiters",
          .limit = {},
          .figures = {{.name = "requests per turn", .unit = "", .wanted = at_most(requests_bar)},
                      {.name = "most/fewest turns", .unit = ""},
                      {.name = "turns", .unit = "per s"}},
          .repeat = repetition::once,
          .measure = [how](const measure_settings& settings) {
            const auto member = bench_member(false);
            const auto made = measure_contest(sallyport_on(*member), how, *member,
                                              settings.time * contended_rounds);
            return std::vector<double>{made.requests_per_turn, made.turns.most_to_fewest,
                                       made.turns.turns_per_second};
          }};
}

}  // namespace

std::vector<program> etcd_programs() {
  const std::string alone = "etcd: one thread, nobody else wants the lock";
  const std::string disk = "etcd on disk: one thread, nobody else wants the lock";
  return {
      pair_program("etcd-1/raw", alone, "gRPC: Txn (put if absent), DeleteRange", "", {},
                   &raw_pair<waits::itself>, false),
      pair_program("etcd-1/raw-thread", alone, "gRPC: the same, answers read by another thread",
                   "etcd-1/raw", {}, &raw_pair<waits::for_thread>, false),
      pair_program("etcd-1/mutex", alone, "sallyport::mutex acquire(), release()", "etcd-1/raw",
                   times_limit(raw_bar), &mutex_pair, false),
      pair_program("etcd-1-disk/raw", disk, "gRPC: Txn (put if absent), DeleteRange", "", {},
                   &raw_pair<waits::itself>, true),
      pair_program("etcd-1-disk/mutex", disk, "sallyport::mutex acquire(), release()",
                   "etcd-1-disk/raw", {}, &mutex_pair, true),
      beside_go("etcd-8/go", "etcd: 8 processes, empty critical section", {.processes = 8},
                at_most(go_bar)),
      beside_go("etcd-8-threads/go", "etcd: 8 contenders in one process, empty critical section",
                {.processes = 1, .seats = 8}, {}),
      crowd(8),
      crowd(32),
      crowd(128),
  };
}

}  // namespace sallyport::bench

#include "tests/kit/etcd_server.hpp"

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr const char* server_program = SALLYPORT_ETCD_PROGRAM;
constexpr const char* control_program = SALLYPORT_ETCDCTL_PROGRAM;

std::filesystem::path parent_for(const etcd_options& options) {
  const std::filesystem::path memory = "/dev/shm";
  const bool there = std::filesystem::is_directory(memory);
  return options.on_disk || !there ? std::filesystem::temp_directory_path() : memory;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) out.push_back(line);
  }
  return out;
}

}  // namespace

struct etcd_cluster::member {
  explicit member(const etcd_options& options) : folder("etcd", parent_for(options)) {}

  const temporary_folder folder;
  const free_port client_port;
  const free_port peer_port;
  std::map<std::size_t, std::unique_ptr<fault_proxy>> ways{};  // to the others
  std::unique_ptr<child_process> process;
};

etcd_cluster::etcd_cluster(etcd_options options) : options_(std::move(options)) {
  for (std::size_t i = 0; i < options_.members; ++i) {
    members_.push_back(std::make_unique<member>(options_));
  }
  if (options_.detours) make_detours();
  for (std::size_t i = 0; i < size(); ++i) start(i);
  wait_until_healthy();
}

etcd_cluster::~etcd_cluster() = default;

std::uint16_t etcd_cluster::port(std::size_t which) const {
  return members_[which]->client_port.number();
}

std::string etcd_cluster::address() const {
  std::string out = options_.tls ? "etcds://" : "etcd://";
  for (std::size_t i = 0; i < size(); ++i) {
    out += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(port(i)));
  }
  return out;
}

std::string etcd_cluster::client_url(std::size_t which) const {
  return (options_.tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port(which));
}

std::string etcd_cluster::address(std::size_t which) const {
  return (options_.tls ? "etcds://127.0.0.1:" : "etcd://127.0.0.1:") + std::to_string(port(which));
}

// All members have to say the same address of a member. That of a unix socket is a name in the
// working folder of whoever connects, and each has a folder of its own: so every pair has its own way.
std::string etcd_cluster::peer_url(std::size_t which) const {
  return (options_.detours ? "unix://127.0.0.1:" : "http://127.0.0.1:") +
         std::to_string(members_[which]->peer_port.number());
}

void etcd_cluster::make_detours() {
  for (std::size_t from = 0; from < size(); ++from) {
    for (std::size_t to = 0; to < size(); ++to) {
      if (from == to) continue;
      const std::uint16_t target = members_[to]->peer_port.number();
      members_[from]->ways[to] = std::make_unique<fault_proxy>(
          target, members_[from]->folder.path() / ("127.0.0.1:" + std::to_string(target)));
    }
  }
}

fault_proxy& etcd_cluster::between(std::size_t from, std::size_t to) {
  return *members_.at(from)->ways.at(to);
}

void etcd_cluster::cut_off(std::size_t which) {
  for (std::size_t other = 0; other < size(); ++other) {
    if (other == which) continue;
    for (fault_proxy* const way : {&between(which, other), &between(other, which)}) {
      way->set(flow::to_server, fault::hold());
      way->set(flow::to_client, fault::hold());
    }
  }
}

void etcd_cluster::rejoin(std::size_t which) {
  for (std::size_t other = 0; other < size(); ++other) {
    if (other == which) continue;
    between(which, other).heal();
    between(other, which).heal();
  }
}

void etcd_cluster::start(std::size_t which) {
  member& one = *members_[which];
  if (one.process && one.process->running()) throw kit_error("the member runs already");
  std::string all;
  for (std::size_t i = 0; i < size(); ++i) {
    all += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + peer_url(i);
  }
  std::vector<std::string> arguments{
      "--name=m" + std::to_string(which),
      "--data-dir=" + (one.folder.path() / "data").string(),
      "--listen-client-urls=" + client_url(which),
      "--advertise-client-urls=" + client_url(which),
      "--listen-peer-urls=http://127.0.0.1:" + std::to_string(one.peer_port.number()),
      "--initial-advertise-peer-urls=" + peer_url(which),
      "--initial-cluster=" + all,
      "--initial-cluster-token=kit-" + std::to_string(members_[0]->peer_port.number()),
      "--heartbeat-interval=" + std::to_string(options_.election.count() / 10),
      "--election-timeout=" + std::to_string(options_.election.count()),
      "--logger=zap",
      "--log-level=warn"};
  if (options_.tls) {
    arguments.push_back("--cert-file=" + options_.tls->certificate.string());
    arguments.push_back("--key-file=" + options_.tls->key.string());
    arguments.push_back("--trusted-ca-file=" + options_.tls->authority.string());
    if (options_.tls->clients) arguments.emplace_back("--client-cert-auth");
  }
  arguments.insert(arguments.end(), options_.flags.begin(), options_.flags.end());
  one.process = std::make_unique<child_process>(child_options{.program = server_program,
                                                              .called_as = "etcd",
                                                              .arguments = std::move(arguments),
                                                              .environment = {"GOMAXPROCS=2"},
                                                              .folder = one.folder.path(),
                                                              .log = one.folder.path() / "log",
                                                              .run_as = {}});
}

void etcd_cluster::kill(std::size_t which) { members_[which]->process->kill(); }

void etcd_cluster::pause(std::size_t which) { members_[which]->process->pause(); }

void etcd_cluster::resume(std::size_t which) { members_[which]->process->resume(); }

void etcd_cluster::wait_until_healthy() {
  for (std::size_t i = 0; i < size(); ++i) {
    child_process& process = *members_[i]->process;
    if (!process.running() || process.paused()) continue;
    const bool healthy = eventually([&] {
      if (!process.running()) return true;  // no use in waiting on
      // Some right that every user has is enough: it tells that there is a leader.
      ctl({"get", "kit-is-anybody-there"}, i);
      return true;
    });
    if (!healthy || !process.running()) {
      throw kit_error("etcd does not answer\n" + process.log_tail());
    }
  }
}

std::size_t etcd_cluster::leader() {
  for (std::size_t i = 0; i < size(); ++i) {
    if (!members_[i]->process->running() || members_[i]->process->paused()) continue;
    // "http://..., id, version, size, is leader, is learner, term, index, applied, errors"
    const std::string status = ctl({"endpoint", "status"}, i);
    std::vector<std::string> fields;
    std::istringstream stream{status};
    for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
    if (fields.size() > 4 && fields[4].find("true") != std::string::npos) return i;
  }
  throw kit_error("no member leads");
}

std::string etcd_cluster::ctl(const std::vector<std::string>& arguments,
                              std::optional<std::size_t> only) {
  for (std::size_t i = 0; !only && i < size(); ++i) {
    if (members_[i]->process->running() && !members_[i]->process->paused()) only = i;
  }
  if (!only) throw kit_error("no member is awake");
  const auto output = members_[*only]->folder.path() / ("ctl-" + std::to_string(++calls_));
  std::vector<std::string> all{"--endpoints=" + client_url(*only), "--command-timeout=3s",
                               "--dial-timeout=1s"};
  if (options_.tls) all.push_back("--cacert=" + options_.tls->authority.string());
  if (options_.tls && options_.tls->clients) {
    all.push_back("--cert=" + options_.tls->clients->certificate.string());
    all.push_back("--key=" + options_.tls->clients->key.string());
  }
  all.insert(all.end(), always_.begin(), always_.end());
  all.insert(all.end(), arguments.begin(), arguments.end());
  child_process process{child_options{.program = control_program,
                                      .called_as = "etcdctl",
                                      .arguments = std::move(all),
                                      .environment = {"ETCDCTL_API=3"},
                                      .folder = members_[*only]->folder.path(),
                                      .log = output,
                                      .run_as = {}}};
  const auto ended = process.wait_for_end();
  std::ifstream file{output};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::error_code ignored;
  std::filesystem::remove(output, ignored);
  if (ended != 0) throw kit_error("etcdctl " + arguments.at(0) + " failed: " + text);
  return text;
}

std::vector<std::string> etcd_cluster::keys(const std::string& prefix) {
  auto all = lines_of(prefix.empty() ? ctl({"get", "--keys-only", "--from-key", ""})
                                     : ctl({"get", "--keys-only", "--prefix", prefix}));
  std::erase_if(all, [](const std::string& each) { return each.ends_with("\x01store"); });
  return all;
}

std::size_t etcd_cluster::leases() {
  const auto lines = lines_of(ctl({"lease", "list"}));
  return lines.empty() ? 0 : lines.size() - 1;  // the first says how many
}

}  // namespace sallyport::kit

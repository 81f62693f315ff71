#include "tests/kit/zookeeper_server.hpp"

#include <arpa/inet.h>
#include <array>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

/// Debian's jars; package zookeeper brings no service along (that is zookeeperd).
std::string class_path() {
  std::string out;
  for (const char* const jar : {"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple",
                                "metrics-core", "netty-all", "commons-cli", "snappy-java"}) {
    out += (out.empty() ? "" : ":") + std::string("/usr/share/java/") + jar + ".jar";
  }
  return out;
}

}  // namespace

struct zookeeper_ensemble::server {
  temporary_folder folder{"zookeeper"};
  free_port client;
  free_port quorum;
  free_port election;
  std::map<std::size_t, std::unique_ptr<fault_proxy>> ways{};  // to the others
  std::unique_ptr<child_process> process{};

  [[nodiscard]] bool awake() const { return process && process->running() && !process->paused(); }
};

zookeeper_ensemble::zookeeper_ensemble(zookeeper_options options) : options_(std::move(options)) {
  for (std::size_t i = 0; i < options_.servers; ++i) servers_.push_back(std::make_unique<server>());
  for (std::size_t i = 0; i < options_.servers; ++i) write_configuration(i);
  for (std::size_t i = 0; i < options_.servers; ++i) start(i);
  wait_until_serving();
}

zookeeper_ensemble::~zookeeper_ensemble() = default;

void zookeeper_ensemble::write_configuration(std::size_t number) {
  server& mine = *servers_[number];
  std::ofstream file{mine.folder.path() / "zoo.cfg"};
  file << "tickTime=" << options_.tick.count() << "\n"
       << "initLimit=100\n"
       << "syncLimit=" << options_.sync_limit << "\n"
       << "dataDir=" << mine.folder.path().string() << "\n"
       << "clientPort=" << mine.client.number() << "\n"
       << "clientPortAddress=" << host(number) << "\n"
       << "maxClientCnxns=0\n"
       << "minSessionTimeout=" << 2 * options_.tick.count() << "\n"
       << "maxSessionTimeout=200000000\n"
       << "admin.enableServer=false\n"
       << "4lw.commands.whitelist=*\n";
  if (servers_.size() > 1) {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      // Each server listens where it finds itself, and goes to the others where it is told.
      std::uint16_t way = servers_[i]->quorum.number();
      if (options_.detours && i != number) {
        mine.ways[i] = std::make_unique<fault_proxy>(way);
        way = mine.ways[i]->port();
      }
      file << "server." << i + 1 << "=127.0.0.1:" << way << ":" << servers_[i]->election.number()
           << "\n";
    }
    std::ofstream{mine.folder.path() / "myid"} << number + 1 << "\n";
  }
  for (const std::string& line : options_.config) file << line << "\n";
  if (!file.flush()) throw kit_error("cannot write zoo.cfg");
}

std::uint16_t zookeeper_ensemble::port(std::size_t number) const {
  return servers_.at(number)->client.number();
}

std::string zookeeper_ensemble::host(std::size_t number) const {
  return "127.0.0." + std::to_string(number + 1);
}

std::string zookeeper_ensemble::address() const {
  std::string out = "zookeeper://";
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    out += (i == 0 ? "" : ",") + host(i) + ":" + std::to_string(port(i));
  }
  return out;
}

std::string zookeeper_ensemble::address(std::size_t number) const {
  return "zookeeper://" + host(number) + ":" + std::to_string(port(number));
}

fault_proxy& zookeeper_ensemble::between(std::size_t from, std::size_t to) {
  return *servers_.at(from)->ways.at(to);
}

std::string zookeeper_ensemble::tick_option() const {
  return "tick=" + std::to_string(options_.tick.count());
}

void zookeeper_ensemble::kill(std::size_t number) { servers_.at(number)->process->kill(); }

void zookeeper_ensemble::start(std::size_t number) {
  server& mine = *servers_.at(number);
  if (mine.process && mine.process->running()) throw kit_error("the server runs already");
  mine.process = std::make_unique<child_process>(child_options{
      .program = "java",
      .called_as = {},
      .arguments = {"-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dzookeeper.forceSync=no",  // tests pull no plugs
                    "-Dznode.container.checkIntervalMs=" + std::to_string(options_.sweep.count()),
                    "-Dznode.container.maxPerMinute=1000000", "-cp", class_path(),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    (mine.folder.path() / "zoo.cfg").string()},
      .environment = {},
      .folder = mine.folder.path(),
      .log = mine.folder.path() / "log",
      .run_as = {}});
}

void zookeeper_ensemble::pause(std::size_t number) { servers_.at(number)->process->pause(); }
void zookeeper_ensemble::resume(std::size_t number) { servers_.at(number)->process->resume(); }

void zookeeper_ensemble::wait_until_serving() {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    server& each = *servers_[i];
    if (!each.awake()) continue;
    const bool serving = eventually(
        [&] {
          if (!each.process->running()) return true;  // no use in waiting on
          return say(i, "srvr").find("Mode: ") != std::string::npos;
        },
        3 * patience);
    if (!serving || !each.process->running()) {
      throw kit_error("a ZooKeeper server does not serve: " + each.process->log_tail());
    }
  }
}

std::size_t zookeeper_ensemble::leader() {
  std::optional<std::size_t> found;
  const bool there = eventually([&] {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      if (!servers_[i]->awake()) continue;
      const std::string said = say(i, "srvr");
      if (said.find("Mode: leader") == std::string::npos &&
          said.find("Mode: standalone") == std::string::npos) {
        continue;
      }
      found = i;
      return true;
    }
    return false;
  });
  if (!there) throw kit_error("no ZooKeeper server leads");
  return *found;
}

std::string zookeeper_ensemble::say(std::size_t number, const std::string& word) const {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port(number));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK + static_cast<std::uint32_t>(number));
  std::string said;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 &&
      ::send(socket, word.data(), word.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(word.size())) {
    std::array<char, 65536> buffer{};
    for (;;) {
      pollfd wait{socket, POLLIN, 0};
      if (::poll(&wait, 1, 2000) <= 0) break;
      const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      said.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  ::close(socket);
  return said;
}

std::string zookeeper_ensemble::log_tails() const {
  std::string out;
  for (const auto& each : servers_) {
    if (each->process) out += each->process->log_tail() + "\n";
  }
  return out;
}

std::vector<std::string> zookeeper_ensemble::ephemerals(const std::string& root) const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i]->awake()) continue;
    std::istringstream lines{say(i, "dump")};
    for (std::string line; std::getline(lines, line);) {
      const auto slash = line.find('/');
      if (slash == std::string::npos || line.find_first_not_of(" \t") != slash) continue;
      const std::string path = line.substr(slash);
      if (path.starts_with(root + "/")) out.push_back(path);
    }
    break;
  }
  return out;
}

}  // namespace sallyport::kit

#include "tests/kit/redis_server.hpp"

#include "tests/kit/shifted_clock.hpp"

#include <fstream>
#include <utility>

namespace sallyport::kit {

namespace {

/// One binary is server, sentinel and checker; it becomes what it is called. This name of it is in
/// the package that brings no service along.
constexpr const char* server_program = "/usr/bin/redis-check-rdb";

constexpr const char* probe_user = "kit-probe";
constexpr const char* probe_password = "kit-probe-password";

std::optional<free_port> port_if(bool wanted) {
  return wanted ? std::optional<free_port>{std::in_place} : std::nullopt;
}

const char* word_for(redis_client_certificates clients) {
  switch (clients) {
    case redis_client_certificates::not_asked:
      return "no";
    case redis_client_certificates::optional:
      return "optional";
    case redis_client_certificates::required:
      return "yes";
  }
  return "";
}

const char* lines_for(redis_persistence persistence) {
  switch (persistence) {
    case redis_persistence::none:
      return "appendonly no\n";
    case redis_persistence::append_every_second:
      return "appendonly yes\nappendfsync everysec\n";
    case redis_persistence::append_always:
      return "appendonly yes\nappendfsync always\n";
  }
  return "";
}

/// The probe logs in as a user of its own where there are users, so that tests may take away any
/// right from the others.
redis_address address_for(const redis_options& options, std::uint16_t port) {
  redis_address address{.port = port, .unix_path = {}, .user = {}, .password = options.password};
  if (!options.users.empty()) {
    address.user = probe_user;
    address.password = probe_password;
  }
  return address;
}

}  // namespace

redis_server::redis_server(redis_options options)
    : options_(std::move(options)),
      tls_port_(port_if(options_.tls.has_value())),
      bus_port_(port_if(options_.cluster)),
      unix_path_(options_.unix_socket ? (folder_.path() / "socket").string() : std::string{}),
      address_(address_for(options_, port_.number())) {
  write_configuration();
  start();
}

redis_server::~redis_server() = default;

void redis_server::write_configuration() const {
  std::ofstream file{folder_.path() / "redis.conf"};
  file << "bind 127.0.0.1\n"
       << "port " << port() << "\n"
       << "dir " << folder_.path().string() << "\n"
       << "daemonize no\n"
       << "loglevel notice\n"
       << "protected-mode no\n";
  if (!options_.password.empty() && options_.users.empty()) {
    file << "requirepass " << options_.password << "\n";
  }
  if (!options_.users.empty()) {
    file << "aclfile " << (folder_.path() / "users.acl").string() << "\n";
    std::ofstream users{folder_.path() / "users.acl"};
    for (const std::string& line : users_lines()) users << line << "\n";
  }
  if (options_.tls) {
    file << "tls-port " << tls_port() << "\n"
         << "tls-cert-file " << options_.tls->certificate.string() << "\n"
         << "tls-key-file " << options_.tls->key.string() << "\n"
         << "tls-ca-cert-file " << options_.tls->authority.string() << "\n"
         << "tls-auth-clients " << word_for(options_.tls->clients) << "\n";
  }
  if (!options_.sentinel) {
    file << "save \"\"\n"
         << lines_for(options_.persistence) << "enable-debug-command "
         << (options_.debug_command ? "local" : "no") << "\n"
         << "repl-diskless-sync-delay 0\n";  // by default, a replica waits 5 s for others to come
    if (!unix_path_.empty()) file << "unixsocket " << unix_path_ << "\n";
    if (options_.replica_of != 0) file << "replicaof 127.0.0.1 " << options_.replica_of << "\n";
    if (!options_.master_password.empty())
      file << "masterauth " << options_.master_password << "\n";
    if (options_.cluster) {
      file << "cluster-enabled yes\n"
           << "cluster-port " << bus_port() << "\n";
    }
  }
  for (const std::string& line : options_.config) file << line << "\n";
  if (!file.flush()) throw kit_error("cannot write " + (folder_.path() / "redis.conf").string());
}

std::vector<std::string> redis_server::users_lines() const {
  std::vector<std::string> lines = options_.users;
  lines.push_back(std::string{"user "} + probe_user + " on >" + probe_password + " ~* &* +@all");
  // The file speaks for all users: requirepass would be ignored beside it.
  if (!options_.password.empty()) {
    lines.push_back("user default on >" + options_.password + " ~* &* +@all");
  }
  return lines;
}

void redis_server::start() {
  if (running()) throw kit_error("redis-server runs already");
  child_options child{.program = server_program,
                      .called_as = options_.sentinel ? "redis-sentinel" : "redis-server",
                      .arguments = {(folder_.path() / "redis.conf").string()},
                      .environment = {},
                      .folder = folder_.path(),
                      .log = folder_.path() / "log",
                      .run_as = {}};
  if (options_.clock != nullptr) child.environment = options_.clock->environment();
  process_ = std::make_unique<child_process>(std::move(child));
  wait_until_ready();
}

void redis_server::wait_until_ready() {
  std::string last;
  const bool ready = eventually([&] {
    if (!process_->running()) return true;  // no use in waiting on
    try {
      redis_probe probe{address_, std::chrono::seconds{1}};
      const redis_reply reply = probe.command({"PING"}, std::chrono::seconds{1});
      last = reply.text;
      return reply.text == "PONG";
    } catch (const kit_error& error) {
      last = error.what();
      return false;
    }
  });
  if (!ready || !process_->running()) {
    throw kit_error("redis-server does not answer PING (" + last + ")\n" + log_tail());
  }
}

void redis_server::stop(bool saving) {
  if (!running()) return;
  process_->resume();  // one that stands still does not hear the command
  try {
    redis_probe last{address_};
    // NOW and FORCE: neither replicas that lag nor a disk that failed hold it up.
    last.send({"SHUTDOWN", saving ? "SAVE" : "NOSAVE", "NOW", "FORCE"});
    if (process_->wait_for_end() == 0) return;
  } catch (const kit_error&) {
    // Told below, with the log.
  }
  throw kit_error("redis-server did not shut down\n" + log_tail());
}

void redis_server::kill() {
  if (process_) process_->kill();
}

void redis_server::restart() {
  stop();
  start();
}

void redis_server::pause() { process_->pause(); }

void redis_server::resume() { process_->resume(); }

std::string redis_server::log_tail() const { return process_ ? process_->log_tail() : ""; }

}  // namespace sallyport::kit

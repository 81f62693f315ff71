#include "backends/zookeeper/wire.hpp"

#include "base/log.hpp"
#include "base/mutex.hpp"

#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <unordered_map>
#include <utility>

namespace sallyport::backends::zookeeper {
namespace {

/// Nobody answers there: a line that is to be left to itself is sent there, because the library ends
/// the session of every connection that it closes. It takes servers of one address for the same,
/// whatever their ports, so it has to be one that no server has.
constexpr const char* nowhere = "127.255.255.254:1";

/// For zoo_set_servers_resolution_delay().
constexpr int only_without_connection = -1;

status status_of(int code) {
  switch (code) {
    case ZOK:
      return status::ok;
    case ZNONODE:
      return status::no_node;
    case ZNODEEXISTS:
      return status::node_exists;
    case ZBADVERSION:
      return status::bad_version;
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZSESSIONMOVED:
    case ZCLOSING:
      return status::connection_lost;
    case ZSESSIONEXPIRED:
      return status::session_ended;
    default:
      return status::refused;
  }
}

node_stat stat_of(const Stat& from) {
  return {.created = from.czxid,
          .modified = from.mzxid,
          .children_changed = from.pzxid,
          .created_ms = from.ctime,
          .owner = from.ephemeralOwner,
          .version = from.version,
          .children = from.numChildren};
}

void drop_line(const char* /*text*/) {}  // what matters is told by answers

std::string joined(const std::vector<std::string>& all) {
  std::string out;
  for (const std::string& each : all) out += (out.empty() ? "" : ",") + each;
  return out;
}

}  // namespace

/// One handle of the library. Its callbacks find it by its address, so it lives until the library's
/// threads are gone.
class wire::line : public std::enable_shared_from_this<line> {
 public:
  line(line_number number, wire_listener& listener, duration timeout, bool plain_folders)
      : number_(number), listener_(listener), timeout_(timeout), no_containers_(plain_folders) {}
  line(const line&) = delete;
  line& operator=(const line&) = delete;
  ~line() = default;

  void open(const std::string& servers, const std::string& login) {
    if (handle_ != nullptr) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    handle_ = zookeeper_init2(servers.c_str(), &line::watched,
                              static_cast<int>(std::max<std::int64_t>(ms, 1)), nullptr, this,
                              ZOO_NO_LOG_CLIENTENV, &drop_line);
    if (handle_ == nullptr) return;
    // By default the library looks up its servers' names at every turn of its loop, on the thread that
    // also keeps the session alive. Whoever has lost its connection looks anyway.
    zoo_set_servers_resolution_delay(handle_, only_without_connection);
    with_login_ = !login.empty();
    if (with_login_) {
      zoo_add_auth(handle_, "digest", login.data(), static_cast<int>(login.size()), nullptr,
                   nullptr);
    }
  }
  void send(errand_number errand, const request& what);
  /// Lets go of the present server and goes to another one.
  void next_server(const std::vector<std::string>& servers) {
    if (handle_ == nullptr) return;
    // In a buffer that all lines share: if another one writes to it just now, none of ours is named,
    // and the present server may be tried again.
    const char* const present = zoo_get_current_server(handle_);
    const std::string left = present == nullptr ? std::string{} : present;
    std::vector<std::string> others;
    for (const std::string& each : servers) {
      if (each != left) others.push_back(each);
    }
    abandon();
    zoo_set_servers(handle_, joined(others.empty() ? servers : others).c_str());
    knows_all_ = others.empty() || others.size() == servers.size();
  }
  void know_all(const std::vector<std::string>& servers) {
    if (handle_ == nullptr || std::exchange(knows_all_, true)) return;
    zoo_set_servers(handle_, joined(servers).c_str());
  }
  /// Its session is left to itself: without a connection the library can't end it.
  void abandon() {
    if (handle_ != nullptr) zoo_set_servers(handle_, nowhere);
  }
  /// Joins the library's threads, unless it is on one of them.
  void end() {
    if (zhandle_t* const handle = std::exchange(handle_, nullptr)) zookeeper_close(handle);
  }
  [[nodiscard]] bool on_own_thread() const noexcept { return current_ == this; }
  [[nodiscard]] bool is_open() const noexcept { return handle_ != nullptr; }

 private:
  /// One request, until it is answered.
  struct call {
    line& home;
    errand_number errand;
    request what;
    bool as_folder = false;
    // For requests of several parts; the library fills them.
    std::array<zoo_op_t, 2> parts{};
    std::array<zoo_op_result_t, 2> results{};
  };
  /// Marks the thread as the line's own.
  class visit {
   public:
    explicit visit(line& here) : before_(std::exchange(current_, &here)) {}
    ~visit() { current_ = before_; }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

   private:
    line* const before_;
  };

  int dispatch(call& made);
  int create(call& made, int mode);
  void finish(call& made, int code, reply said);

  static void watched(zhandle_t* handle, int type, int state, const char* path, void* context);
  static void done(int code, const void* data);
  static void done_stat(int code, const Stat* stat, const void* data);
  static void done_data(int code, const char* value, int length, const Stat* stat,
                        const void* data);
  static void done_create(int code, const char* path, const Stat* stat, const void* data);
  static void done_list(int code, const String_vector* names, const Stat* stat, const void* data);
  static call& call_of(const void* data) {
    return *static_cast<call*>(const_cast<void*>(data));  // NOLINT: the library's way
  }

  static thread_local line* current_;

  const line_number number_;
  wire_listener& listener_;
  const duration timeout_;
  zhandle_t* handle_ = nullptr;
  bool with_login_ = false;
  bool knows_all_ = true;  // the servers

  base::mutex mutex_;
  bool no_containers_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<const call*, std::unique_ptr<call>> calls_ SALLYPORT_GUARDED_BY(mutex_);
};

thread_local wire::line* wire::line::current_ = nullptr;

void wire::line::send(errand_number errand, const request& what) {
  auto made = std::make_unique<call>(call{.home = *this, .errand = errand, .what = what});
  call& mine = *made;
  {
    const base::mutex_lock lock(mutex_);
    calls_.emplace(&mine, std::move(made));
  }
  const int code = handle_ == nullptr ? ZINVALIDSTATE : dispatch(mine);
  if (code != ZOK) finish(mine, code, {.is = status::not_sent});
}

namespace {

/// Users who have locks of their own under one root have one store.
const ACL_vector& creator_all_others_read() {
  static std::array<ACL, 2> rights{
      {{ZOO_PERM_ALL, ZOO_AUTH_IDS}, {ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE}}};
  static const ACL_vector all{static_cast<std::int32_t>(rights.size()), rights.data()};
  return all;
}

}  // namespace

int wire::line::create(call& made, int mode) {
  const request& what = made.what;
  const ACL_vector& rights = !with_login_                     ? ZOO_OPEN_ACL_UNSAFE
                             : what.what == verb::create_kept ? creator_all_others_read()
                                                              : ZOO_CREATOR_ALL_ACL;
  return zoo_acreate2(handle_, what.path.c_str(), what.data.data(),
                      static_cast<int>(what.data.size()), &rights, mode, &line::done_create, &made);
}

int wire::line::dispatch(call& made) {
  const request& what = made.what;
  const char* const path = what.path.c_str();
  const auto size = static_cast<int>(what.data.size());
  switch (what.what) {
    case verb::create_contender:
      return create(made, ZOO_EPHEMERAL_SEQUENTIAL);
    case verb::create_kept:
      return create(made, ZOO_PERSISTENT);
    case verb::create_folder: {
      bool plain = false;
      {
        const base::mutex_lock lock(mutex_);
        plain = no_containers_;
      }
      made.as_folder = !plain;
      return create(made, plain ? ZOO_PERSISTENT : ZOO_CONTAINER);
    }
    case verb::list:
      return zoo_awget_children2(handle_, path, what.watch ? &line::watched : nullptr, this,
                                 &line::done_list, &made);
    case verb::await_end:
      // A node without children tells those who watch them only of its own end.
      return zoo_awget_children2(handle_, path, &line::watched, this, &line::done_list, &made);
    case verb::read:
      return zoo_awget(handle_, path, what.watch ? &line::watched : nullptr, this, &line::done_data,
                       &made);
    case verb::look:
      return zoo_awexists(handle_, path, what.watch ? &line::watched : nullptr, this,
                          &line::done_stat, &made);
    case verb::write:
      return zoo_aset(handle_, path, what.data.data(), size, what.version, &line::done_stat, &made);
    case verb::remove:
      return zoo_adelete(handle_, path, what.version, &line::done, &made);
    case verb::replace: {
      const ACL_vector& rights = with_login_ ? ZOO_CREATOR_ALL_ACL : ZOO_OPEN_ACL_UNSAFE;
      zoo_create_op_init(made.parts.data(), what.other.c_str(), what.data.data(), size, &rights,
                         ZOO_EPHEMERAL, nullptr, 0);
      zoo_delete_op_init(&made.parts[1], path, what.version);
      return zoo_amulti(handle_, 2, made.parts.data(), made.results.data(), &line::done, &made);
    }
    case verb::sync:
      // The answer's path is of no use.
      return zoo_async(
          handle_, path,
          [](int code, const char* /*value*/, const void* data) { done(code, data); }, &made);
  }
  return ZBADARGUMENTS;
}

void wire::line::finish(call& made, int code, reply said) {
  const errand_number errand = made.errand;
  if (code != ZOK && said.is != status::not_sent) {
    said.is = status_of(code);
    said.text = std::string(zerror(code)) + " (" + made.what.path + ")";
    if (code == ZNOAUTH) {
      said.text += with_login_
                       ? ": the node belongs to another user; log in as that one, or let an "
                         "administrator give this one all rights (setAcl)"
                       : ": the node is closed to strangers; log in as its user "
                         "(?user=NAME&password_file=FILE)";
    }
  }
  {
    const base::mutex_lock lock(mutex_);
    calls_.erase(&made);
  }
  listener_.answered(errand, std::move(said));
}

void wire::line::done(int code, const void* data) {
  call& made = call_of(data);
  const visit here(made.home);
  made.home.finish(made, code, {.is = status::ok});
}

void wire::line::done_stat(int code, const Stat* stat, const void* data) {
  call& made = call_of(data);
  const visit here(made.home);
  reply said{.is = status::ok};
  if (code == ZOK && stat != nullptr) said.stat = stat_of(*stat);
  made.home.finish(made, code, std::move(said));
}

void wire::line::done_data(int code, const char* value, int length, const Stat* stat,
                           const void* data) {
  call& made = call_of(data);
  const visit here(made.home);
  reply said{.is = status::ok};
  if (code == ZOK && stat != nullptr) said.stat = stat_of(*stat);
  if (code == ZOK && length > 0) said.data.assign(value, static_cast<std::size_t>(length));
  made.home.finish(made, code, std::move(said));
}

void wire::line::done_create(int code, const char* path, const Stat* stat, const void* data) {
  call& made = call_of(data);
  line& home = made.home;
  const visit here(home);
  if (made.as_folder && code == ZUNIMPLEMENTED) {
    // An old server: plain nodes do, but nobody sweeps them away.
    {
      const base::mutex_lock lock(home.mutex_);
      home.no_containers_ = true;
    }
    if (home.dispatch(made) == ZOK) return;
  }
  reply said{.is = status::ok};
  if (code == ZOK && path != nullptr) said.path = path;
  if (code == ZOK && stat != nullptr) said.stat = stat_of(*stat);
  home.finish(made, code, std::move(said));
}

void wire::line::done_list(int code, const String_vector* names, const Stat* stat,
                           const void* data) {
  call& made = call_of(data);
  const visit here(made.home);
  reply said{.is = status::ok};
  if (code == ZOK && names != nullptr) {
    said.children.assign(names->data, names->data + names->count);
  }
  if (code == ZOK && stat != nullptr) said.stat = stat_of(*stat);
  made.home.finish(made, code, std::move(said));
}

void wire::line::watched(zhandle_t* handle, int type, int state, const char* path, void* context) {
  line& home = *static_cast<line*>(context);
  const visit here(home);
  if (type != ZOO_SESSION_EVENT) {
    if (type == ZOO_NOTWATCHING_EVENT || path == nullptr) return;
    home.listener_.happened(path, type == ZOO_DELETED_EVENT, type == ZOO_CHILD_EVENT);
    return;
  }
  // Every watch of the library hears of its session; the first one says it all.
  if (path != nullptr && path[0] != '\0') return;
  if (state == ZOO_CONNECTED_STATE) {
    home.listener_.line_up(home.number_, zoo_client_id(handle)->client_id,
                           std::chrono::milliseconds{zoo_recv_timeout(handle)});
  } else if (state == ZOO_EXPIRED_SESSION_STATE) {
    home.listener_.line_ended(home.number_);
  } else {
    if (state == ZOO_AUTH_FAILED_STATE) {
      base::log(base::log_level::error, "ZooKeeper refuses the log-in");
    }
    home.listener_.line_down(home.number_);
  }
}

// ---- the wire ------------------------------------------------------------------------------------

wire::wire(const address& where, wire_listener& listener)
    : servers_(joined(where.servers)),
      login_(where.user.empty() ? std::string{} : where.user + ":" + where.password),
      all_(where.servers),
      // kazoo's lock makes its path once, and fails when the path has been swept away.
      plain_folders_(where.nodes.speech == dialect::kazoo),
      listener_(listener) {}

wire::~wire() {
  for (const auto& [number, each] : lines_) {
    each->abandon();
    end(each);
  }
  for (const auto& each : dead_) end(each);
}

/// Ends it now, on whatever thread.
void wire::end(std::shared_ptr<line> which) {
  const bool own = which->on_own_thread();
  which->end();
  if (!own) return;
  // The library lets go of this thread when the callback has returned, which needs the line until
  // then; nobody can tell when that is over.
  static base::mutex mutex;
  static std::vector<std::shared_ptr<line>> for_ever;
  const base::mutex_lock lock(mutex);
  for_ever.push_back(std::move(which));
}

wire::line* wire::find(line_number number) {
  const auto found = lines_.find(number);
  return found == lines_.end() ? nullptr : found->second.get();
}

void wire::open(line_number number, duration timeout) {
  bury();
  auto& fresh = lines_[number];
  fresh = std::make_shared<line>(number, listener_, timeout, plain_folders_);
  fresh->open(servers_, login_);
}

void wire::send(line_number number, errand_number errand, const request& what) {
  bury();
  line* const where = find(number);
  if (where == nullptr) {
    listener_.answered(errand, {.is = status::not_sent});
  } else {
    where->send(errand, what);
  }
}

void wire::close(line_number number, bool abandon) {
  const auto found = lines_.find(number);
  if (found == lines_.end()) return;
  std::shared_ptr<line> gone = std::move(found->second);
  lines_.erase(found);
  if (abandon) gone->abandon();
  if (gone->on_own_thread()) {
    dead_.push_back(std::move(gone));
  } else {
    gone->end();
  }
}

void wire::doubt(line_number number, bool hangs) {
  line* const where = find(number);
  if (where == nullptr) return;
  if (!where->is_open()) {
    where->open(servers_, login_);
  } else if (hangs && all_.size() > 1) {
    where->next_server(all_);
  } else if (!hangs) {
    where->know_all(all_);
  }
}

void wire::bury() {
  for (auto each = dead_.begin(); each != dead_.end();) {
    if ((*each)->on_own_thread()) {
      ++each;
      continue;
    }
    (*each)->end();
    each = dead_.erase(each);
  }
}

}  // namespace sallyport::backends::zookeeper

#include "backends/zookeeper/session.hpp"
#include "base/random.hpp"
#include "base/uri.hpp"
#include "base/wall_clock.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <set>
#include <utility>

// list, who and break_lock: what the store shows of a name, and putting a holder out.
namespace sallyport::backends::zookeeper {

using backend_api::break_mode;
using backend_api::completion;
using std::chrono::milliseconds;

namespace {

/// Of holders that do not say for how long they go on: as long as a session is by default at most.
constexpr std::int64_t foreign_trust_ms = 40'000;
/// A holder whose node changes while it is being broken is looked at again, this often.
constexpr int most_looks = 5;
constexpr std::size_t most_names_below_a_folder = 100'000;
/// A list asks about so many names together, so that it does not take a round trip for each.
constexpr std::size_t names_at_once = 32;

/// A contender with what it says about itself.
struct seen_node {
  child place;
  std::string path;
  description said{};
  node_stat stat{};
  bool ours = false;

  [[nodiscard]] fencing_token token() const {
    const auto number = place.lease ? stat.created : stat.modified;
    return fencing_token{said.token != 0 ? said.token : static_cast<std::uint64_t>(number)};
  }
  [[nodiscard]] milliseconds age() const {
    return milliseconds{std::max<std::int64_t>(base::wall_clock_ms() - stat.created_ms, 0)};
  }
  [[nodiscard]] milliseconds trust() const {
    return milliseconds{ours && said.trust_ms > 0 ? said.trust_ms : foreign_trust_ms};
  }
};

bool is_trouble(const reply& said) { return said.is != status::ok && said.is != status::no_node; }

holder_info holder_from(const seen_node& from) {
  return {.token = from.token(),
          .mode = from.place.shared ? lock_mode::shared : lock_mode::exclusive,
          .host = from.said.host,
          .pid = from.said.pid,
          .label = from.said.label,
          .value = from.said.value,
          .held_for = from.age(),
          .remaining = from.trust(),
          .local_waiters = from.said.waiters,
          .claimed = true};
}

waiter_info waiter_from(const seen_node& from) {
  return {.mode = from.place.shared ? lock_mode::shared : lock_mode::exclusive,
          .host = from.said.host,
          .pid = from.said.pid,
          .label = from.said.label,
          .waited = from.age(),
          .local_waiters = from.said.waiters};
}

}  // namespace

/// What a name's folder holds.
struct session::sight {
  std::string name;
  std::string folder;
  std::vector<seen_node> line{};    // the queue, in order; of a semaphore: its line
  std::vector<seen_node> leases{};  // of a semaphore
  std::uint32_t permits = 0;        // as stored; 0: not
  std::vector<std::string> others{};

  [[nodiscard]] bool semaphore() const { return !leases.empty() || in_line_folder; }
  bool in_line_folder = false;

  /// How many of `line` are in; of a semaphore, of `leases`.
  [[nodiscard]] std::size_t inside() const {
    if (semaphore())
      return permits == 0 ? leases.size() : std::min<std::size_t>(leases.size(), permits);
    if (line.empty()) return 0;
    if (!line.front().place.shared) return 1;
    const auto writer = std::find_if(line.begin(), line.end(),
                                     [](const seen_node& each) { return !each.place.shared; });
    return static_cast<std::size_t>(writer - line.begin());
  }
  [[nodiscard]] std::optional<lock_info> info() const;
  [[nodiscard]] lock_kind kind_of_line() const;  // REQUIRES: somebody is there
};

std::optional<lock_info> session::sight::info() const {
  if (line.empty() && leases.empty()) return std::nullopt;
  lock_info out;
  out.name = name;
  out.permits = permits == 0 ? 1 : permits;
  const std::vector<seen_node>& grants = semaphore() ? leases : line;
  const std::size_t in = inside();
  std::set<std::string> shown;
  for (std::size_t i = 0; i < in; ++i) {
    if (grants[i].said.closed) {
      out.closed_for = std::max(out.closed_for, milliseconds{grants[i].said.trust_ms});
    } else {
      out.holders.push_back(holder_from(grants[i]));
    }
    shown.insert(grants[i].place.whose);
  }
  for (std::size_t i = semaphore() ? 0 : in; i < line.size(); ++i) {
    if (!shown.contains(line[i].place.whose)) out.waiters.push_back(waiter_from(line[i]));
  }
  out.kind = kind_of_line();
  return out;
}

lock_kind session::sight::kind_of_line() const {
  if (semaphore()) return lock_kind::semaphore;
  const seen_node& first = line.front();
  if (first.place.kind) return *first.place.kind;
  for (const lock_kind each : {lock_kind::mutex, lock_kind::shared_mutex, lock_kind::election}) {
    if (first.said.kind == to_string(each)) return each;
  }
  return first.place.shared ? lock_kind::shared_mutex : lock_kind::mutex;
}

void session::see(const std::string& name, std::function<void(base::result<sight>)> done) {
  auto what = std::make_shared<sight>(sight{.name = name, .folder = nodes_.folder(name)});
  if (what->folder.empty()) {
    done(std::move(*what));
    return;
  }
  const std::string line = join(what->folder, line_folder);
  const std::string leases = join(what->folder, lease_folder);
  ask(0,
      {{},
       {.what = verb::list, .path = what->folder},
       {.what = verb::list, .path = line},
       {.what = verb::list, .path = leases},
       {.what = verb::read, .path = leases}},
      [this, what, line, leases, done = std::move(done)](answers said) mutable {
        for (const reply& each : said) {
          if (!is_trouble(each)) continue;
          done(tl::unexpected(failure_of(each)));
          return;
        }
        const auto take = [&](const reply& from, const std::string& folder,
                              std::vector<seen_node>& into) {
          for (child& each : contenders_among(from.children, what->others)) {
            std::string path = join(folder, each.name);
            into.push_back({.place = std::move(each), .path = std::move(path)});
          }
        };
        take(said[1], what->folder, what->line);
        std::vector<seen_node> in_line;
        take(said[2], line, in_line);
        take(said[3], leases, what->leases);
        if (what->line.empty() && !in_line.empty()) {
          what->in_line_folder = true;
          what->line = std::move(in_line);
        }
        what->permits = base::parse_number(said[4].data, 1, 1'000'000'000).value_or(0);
        see_nodes(what, std::move(done));
      });
}

void session::see_nodes(const std::shared_ptr<sight>& what,
                        std::function<void(base::result<sight>)> done) {
  std::vector<request> all;
  for (const auto* const group : {&what->line, &what->leases}) {
    for (const seen_node& each : *group) all.push_back({.what = verb::read, .path = each.path});
  }
  if (all.empty()) {
    done(std::move(*what));
    return;
  }
  ask(0, std::move(all), [what, done = std::move(done)](answers said) {
    std::size_t next = 0;
    for (auto* const group : {&what->line, &what->leases}) {
      std::vector<seen_node> there;
      for (seen_node& each : *group) {
        const reply& from = said.at(next++);
        if (is_trouble(from)) {
          done(tl::unexpected(failure_of(from)));
          return;
        }
        if (from.is == status::no_node) continue;
        each.stat = from.stat;
        if (auto read = from_json(from.data)) {
          each.said = std::move(*read);
          each.ours = true;
        }
        there.push_back(std::move(each));
      }
      *group = std::move(there);
    }
    done(std::move(*what));
  });
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  see(name.text(), [done = std::move(done)](base::result<sight> seen) {
    if (!seen) {
      done(tl::unexpected(seen.error()));
    } else {
      done(seen->info());
    }
  });
}

// ---- list ----------------------------------------------------------------------------------------

struct session::scan {
  std::string prefix;
  std::string after;
  std::size_t limit = 0;
  completion<std::vector<lock_info>> done;
  std::set<std::string> names{};  // to be looked at, in byte order
  std::size_t folders = 0;        // being listed
  std::vector<lock_info> found{};
  std::vector<std::optional<lock_info>> looked_at{};  // those asked about together, in byte order
  std::size_t unanswered = 0;                         // of them
  std::optional<base::failure> failed{};
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  auto all =
      std::make_shared<scan>(scan{std::string(prefix), std::string(after), limit, std::move(done)});
  scan_folder(all, nodes_.root(), {});
}

/// `name` with a slash: what names below it begin with.
void session::scan_folder(const std::shared_ptr<scan>& all, const std::string& folder,
                          const std::string& name) {
  ++all->folders;
  ask(0, {{}, {.what = verb::list, .path = folder}}, [this, all, folder, name](answers said) {
    if (is_trouble(said[1])) all->failed = failure_of(said[1]);
    for (const std::string& each : said[1].children) {
      const bool ours_to_see = !(folder == "/" && each == "zookeeper");
      if (!ours_to_see || (!name.empty() && read_child(each))) continue;
      const std::optional<std::string> segment =
          nodes_.names_are_paths() ? each : layout::name_of(each);
      if (!segment) continue;
      const std::string full = name + *segment;
      if (full.size() > lock_name::max_bytes) continue;
      if (full.starts_with(all->prefix) && full > all->after) all->names.insert(full);
      const std::string below = full + "/";
      const bool may_match = all->prefix.starts_with(below) || below.starts_with(all->prefix);
      if (nodes_.names_are_paths() && may_match && each != line_folder && each != lease_folder &&
          all->names.size() < most_names_below_a_folder) {
        scan_folder(all, join(folder, each), below);
      }
    }
    if (--all->folders == 0) scan_on(all);
  });
}

void session::scan_on(const std::shared_ptr<scan>& all) {
  if (all->failed) {
    all->done(tl::unexpected(std::move(*all->failed)));
    return;
  }
  if (all->names.empty() || all->found.size() >= all->limit) {
    all->done(std::move(all->found));
    return;
  }
  const std::size_t count =
      std::min({names_at_once, all->names.size(), all->limit - all->found.size()});
  all->looked_at.assign(count, std::nullopt);
  all->unanswered = count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = all->names.extract(all->names.begin()).value();
    see(name, [this, all, i](base::result<sight> seen) {
      if (seen) {
        all->looked_at[i] = seen->info();
      } else {
        all->failed = seen.error();
      }
      if (--all->unanswered > 0) return;
      for (auto& each : all->looked_at) {
        if (each) all->found.push_back(std::move(*each));
      }
      scan_on(all);
    });
  }
}

// ---- break ---------------------------------------------------------------------------------------

struct session::breaking {
  std::string name;
  fencing_token observed;
  break_mode mode;
  completion<std::monostate> done;
  int looks = 0;
  seen_node holder{};
};

void session::break_lock(const lock_name& name, fencing_token observed, break_mode mode,
                         completion<std::monostate> done) {
  break_seen(std::make_shared<breaking>(breaking{name.text(), observed, mode, std::move(done)}));
}

void session::break_seen(const std::shared_ptr<breaking>& what) {
  see(what->name, [this, what](base::result<sight> seen) {
    if (!seen) {
      what->done(tl::unexpected(seen.error()));
      return;
    }
    std::vector<seen_node>& grants = seen->semaphore() ? seen->leases : seen->line;
    bool any = false;
    bool there = false;
    for (std::size_t i = 0; i < seen->inside(); ++i) {
      if (grants[i].said.closed) continue;
      any = true;
      if (grants[i].token() != what->observed) continue;
      what->holder = std::move(grants[i]);
      there = true;
      break;
    }
    if (!any) {
      what->done(base::fail(errc::no_such_lock, "nobody holds '" + what->name + "'"));
    } else if (!there) {
      what->done(
          base::fail(errc::token_mismatch, "'" + what->name + "' is held under another token"));
    } else if (what->mode == break_mode::at_once) {
      put_out(what, 0);
    } else {
      // The tombstone's session outlives whoever broke the lock, and ends by itself.
      put_out(what, open_line(what->holder.trust()));
    }
  });
}

void session::put_out(const std::shared_ptr<breaking>& what, line_number line) {
  request order{
      .what = verb::remove, .path = what->holder.path, .version = what->holder.stat.version};
  if (what->mode == break_mode::safe) {
    backend_api::holder_id fresh;
    base::fill_from_kernel(std::as_writable_bytes(std::span(&fresh, 1)));
    description card{.host = what->holder.said.host,
                     .label = what->holder.said.label,
                     .pid = what->holder.said.pid,
                     .trust_ms = what->holder.trust().count(),
                     .closed = true};
    order.what = verb::replace;
    order.data = to_json(card);
    order.other = layout::in_place_of(parent_of(what->holder.path), what->holder.place,
                                      nodes_.whose(fresh), false);
  }
  ask(line, {order}, [this, what, line](answers said) {
    // What was not answered may have been done: the end of the session would take the tombstone along.
    const bool perhaps = said[0].is == status::ok || said[0].is == status::connection_lost;
    if (line != 0) end_line(line, perhaps);
    switch (said[0].is) {
      case status::ok:
        what->done(std::monostate{});
        return;
      case status::bad_version:
      case status::no_node:
        if (++what->looks < most_looks) {
          break_seen(what);  // it has changed since it was looked at
          return;
        }
        [[fallthrough]];
      case status::node_exists:
      case status::not_sent:
      case status::connection_lost:
      case status::session_ended:
      case status::refused:
        what->done(tl::unexpected(failure_of(said[0])));
        return;
    }
  });
}

}  // namespace sallyport::backends::zookeeper

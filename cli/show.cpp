#include "cli/show.hpp"

#include "cli/text.hpp"

#include <algorithm>
#include <numeric>

namespace sallyport::cli {
namespace {

std::string kind_text(const lock_info& lock) {
  std::string text{to_string(lock.kind)};
  if (lock.kind == lock_kind::semaphore) text += " of " + std::to_string(lock.permits);
  return text;
}

std::string token_text(fencing_token token) {
  return token.value() == 0 ? "-" : std::to_string(token.value());
}

std::string label_text(const std::string& label) { return label.empty() ? "-" : label; }

/// Callers of the holder's process that wait behind it.
std::size_t waiting(const holder_info& holder) { return holder.local_waiters; }
/// The one in the queue, and callers of its process that wait behind it.
std::size_t waiting(const waiter_info& waiter) { return std::size_t{1} + waiter.local_waiters; }

/// All callers of all processes.
std::size_t waiting(const lock_info& lock) {
  const auto add = [](std::size_t sum, const auto& each) { return sum + waiting(each); };
  const auto in_queue =
      std::accumulate(lock.waiters.begin(), lock.waiters.end(), std::size_t{0}, add);
  return std::accumulate(lock.holders.begin(), lock.holders.end(), in_queue, add);
}

/// A column with how many wait in a process is shown only where it says more than the rows.
struct waiting_column {
  bool shown;

  [[nodiscard]] std::vector<std::string> with(std::vector<std::string> row,
                                              std::string last) const {
    if (shown) row.push_back(std::move(last));
    return row;
  }
};

std::string closed_text(const lock_info& lock) {
  return "closed for " + to_text(lock.closed_for) +
         " more: a grant was broken, and its holder may "
         "not know yet\n";
}

}  // namespace

std::string list_text(const std::vector<lock_info>& locks) {
  table made{
      {"NAME", "KIND", "HOLDERS", "WAITING", "TOKEN", "PID", "HOST", "LABEL", "HELD FOR", "LEFT"}};
  for (const lock_info& lock : locks) {
    std::vector<std::string> row{lock.name, kind_text(lock), std::to_string(lock.holders.size()),
                                 std::to_string(waiting(lock))};
    if (lock.holders.empty()) {
      const bool closed = lock.closed_for.count() > 0;
      row.insert(row.end(), {"-", "-", "-", closed ? "(broken)" : "-", "-",
                             closed ? to_text(lock.closed_for) : "-"});
    } else {
      const holder_info& first = lock.holders.front();
      row.insert(row.end(),
                 {token_text(first.token), std::to_string(first.pid), first.host,
                  label_text(first.label), to_text(first.held_for), to_text(first.remaining)});
    }
    made.add(std::move(row));
  }
  return made.text();
}

std::string who_text(const lock_info& lock) {
  std::string text = printable(lock.name) + ": " + kind_text(lock) + ", " +
                     (lock.holders.empty() ? "not held" : "held") + ", " +
                     std::to_string(waiting(lock)) + " waiting\n";
  if (lock.closed_for.count() > 0) text += closed_text(lock);
  const waiting_column column{waiting(lock) != lock.waiters.size()};
  if (!lock.holders.empty()) {
    table holders{column.with(
        {"HOLDER", "TOKEN", "PID", "HOST", "LABEL", "MODE", "HELD FOR", "LEFT"}, "WAITING")};
    for (std::size_t i = 0; i < lock.holders.size(); ++i) {
      const holder_info& each = lock.holders[i];
      holders.add(
          column.with({std::to_string(i + 1), token_text(each.token), std::to_string(each.pid),
                       each.host, label_text(each.label), std::string(to_string(each.mode)),
                       to_text(each.held_for), to_text(each.remaining)},
                      std::to_string(waiting(each))));
    }
    text += holders.text();
    for (const holder_info& each : lock.holders) {
      if (!each.value.empty()) text += "says: " + printable(each.value) + "\n";
    }
  }
  if (!lock.waiters.empty()) {
    table waiters{column.with({"WAITER", "PID", "HOST", "LABEL", "MODE", "WAITED"}, "WAITING")};
    for (std::size_t i = 0; i < lock.waiters.size(); ++i) {
      const waiter_info& each = lock.waiters[i];
      waiters.add(column.with(
          {std::to_string(i + 1), std::to_string(each.pid), each.host, label_text(each.label),
           std::string(to_string(each.mode)), to_text(each.waited)},
          std::to_string(waiting(each))));
    }
    text += waiters.text();
  }
  return text;
}

void write_json(json_writer& into, const lock_info& lock) {
  into.begin_object().key("name").value(lock.name).key("kind").value(to_string(lock.kind));
  into.key("permits").value(lock.permits).key("holders").begin_array();
  for (const holder_info& each : lock.holders) {
    into.begin_object().key("token").value(std::to_string(each.token.value()));
    into.key("mode").value(to_string(each.mode)).key("host").value(each.host);
    into.key("pid").value(each.pid).key("label").value(each.label);
    if (lock.kind == lock_kind::election) into.key("value").value(each.value);
    into.key("held_for_ms").value(each.held_for.count());
    into.key("remaining_ms").value(each.remaining.count());
    into.key("local_waiters").value(each.local_waiters);
    into.key("claimed").value(each.claimed).end_object();
  }
  into.end_array().key("waiters").begin_array();
  for (std::size_t i = 0; i < lock.waiters.size(); ++i) {
    const waiter_info& each = lock.waiters[i];
    into.begin_object().key("position").value(i + 1).key("mode").value(to_string(each.mode));
    into.key("host").value(each.host).key("pid").value(each.pid).key("label").value(each.label);
    into.key("waited_ms").value(each.waited.count());
    into.key("local_waiters").value(each.local_waiters).end_object();
  }
  into.end_array().key("waiting").value(waiting(lock));
  into.key("closed_for_ms").value(lock.closed_for.count()).end_object();
}

}  // namespace sallyport::cli

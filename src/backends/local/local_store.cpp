#include "backends/local/local_store.hpp"

#include "backends/local/machine.hpp"
#include "base/fork_generation.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace sallyport::backends::local {
namespace {

/// How much housekeeping does before it lets others in again.
constexpr std::size_t names_at_a_time = 64;
constexpr std::size_t clients_at_a_time = 4;

/// Stores are told apart by their folder, whatever it is called.
using store_key = std::pair<dev_t, ino_t>;

/// The stores of this process. Opened and closed under the mutex: a process has one attachment to a
/// folder at most, because its record locks would go with the first of two.
struct store_registry {
  struct entry {
    std::unique_ptr<local_store> store;
    std::size_t users = 0;
  };
  base::mutex mutex;
  std::map<store_key, entry> stores SALLYPORT_GUARDED_BY(mutex);
};

/// A forked child has none of its parent's stores, nor the registry itself: another thread of the
/// parent may have held its mutex at the fork.
store_registry& registry() {
  struct of_one_process {
    std::uint32_t generation;
    store_registry stores;
  };
  // Never destroyed: clients in static storage may close after it would have been.
  static constinit std::atomic<of_one_process*> current{nullptr};
  const std::uint32_t generation = base::fork_generation();
  of_one_process* known = current.load();
  if (known != nullptr && known->generation == generation) return known->stores;
  auto* const fresh = new of_one_process{generation, {}};
  if (current.compare_exchange_strong(known, fresh)) return fresh->stores;
  delete fresh;
  return known->stores;
}

/// Whether all processes behind this client have ended. The second is asked only when it matters.
bool ended(const client_record& who) {
  const auto dead = [](const process_identity& one) {
    return watched_process(one).state() == process_state::dead;
  };
  return dead(who.process) && dead(who.companion);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

std::string name_of_token_space(const token_mark& mark) {
  std::string text = "local:";
  for (const std::uint64_t word : mark.store) {
    std::array<char, 17> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), word, 16).ptr;
    text.append(16 - static_cast<std::size_t>(end - digits.data()), '0');
    text.append(digits.data(), end);
  }
  return text;
}

}  // namespace

base::result<std::shared_ptr<local_store>> local_store::find_or_open(const store_address& address) {
  store_registry& all = registry();
  const base::mutex_lock lock(all.mutex);
  if (address.initialise) {
    struct stat about {};
    if (::stat(machine_path, &about) == 0 && all.stores.contains({about.st_dev, about.st_ino})) {
      return base::fail(errc::bad_option, "local:machine is open in this process; close it first");
    }
    if (auto made = make_machine_store(address); !made) return tl::unexpected(made.error());
  }
  auto where = address.machine ? open_machine_place() : open_place(address.path);
  if (!where) return tl::unexpected(where.error());
  struct stat about {};
  if (::fstat(where->folder.number(), &about) != 0) {
    return tl::unexpected(system_failure(errno, "look at the store's folder"));
  }
  const store_key key{about.st_dev, about.st_ino};
  store_registry::entry& one = all.stores[key];
  if (!one.store) {
    auto held = attach(std::move(*where), address);
    if (!held) {
      all.stores.erase(key);
      return tl::unexpected(held.error());
    }
    one.store = std::make_unique<local_store>(std::move(*held), host_name());
  }
  ++one.users;
  return std::shared_ptr<local_store>(one.store.get(), [key, &all](local_store*) {
    const base::mutex_lock closing(all.mutex);
    const auto left = all.stores.find(key);
    if (--left->second.users == 0) all.stores.erase(left);
  });
}

local_store::local_store(attachment held, std::string host)
    : held_(std::move(held)),
      pipes_(held_.where.ready_made ? pipes::ready_made : pipes::made_by_clients),
      host_(std::move(host)),
      id_(name_of_token_space(held_.tokens->mark())),
      out_(held_.where.folder.number(), pipes_) {}

local_store::~local_store() = default;

bool local_store::dead(client_number who, table& inside) {
  const base::mutex_lock lock(mutex_);
  if (const auto known = peers_.find(who); known != peers_.end()) return known->second->dead();
  const auto value = inside.get(record_key::client(who));
  const auto record = value ? read_record<client_record>(*value) : std::nullopt;
  if (!record) return true;
  auto met = std::make_shared<const peer>(*record);
  if (!met->knowable()) return false;
  if (peers_.size() >= most_peers_known) {
    std::erase_if(peers_, [](const auto& known) { return known.second->dead(); });
    if (peers_.size() >= most_peers_known) peers_.erase(peers_.begin());
  }
  return peers_.emplace(who, std::move(met)).first->second->dead();
}

std::shared_ptr<const peer> local_store::find_peer(client_number who) {
  const base::mutex_lock lock(mutex_);
  const auto known = peers_.find(who);
  return known != peers_.end() ? known->second : nullptr;
}

void local_store::distribute(std::vector<notice>& all, client_number self,
                             std::vector<notice>& own) {
  const base::mutex_lock lock(mutex_);
  for (notice& each : all) {
    if (each.client == self) {
      own.push_back(std::move(each));
    } else {
      out_.post(each.client, each);
      reached(step::told);
    }
  }
}

void local_store::serve_on(std::vector<std::string> names, time_point until, client_number self,
                           std::vector<notice>& own) {
  for (auto served = names.begin(); served != names.end();) {
    std::vector<notice> notices;
    aftermath left;
    auto serve = [&](lock_rules& rules) {
      rules.serve_on(*served);
      return true;
    };
    if (!transact_once(until, notices, left, serve)) return;
    distribute(notices, self, own);
    if (left.unserved.empty()) ++served;
  }
}

void local_store::sweep_everything(std::chrono::milliseconds patience) {
  std::optional<std::string> after = "";
  do {
    std::vector<notice> notices;
    aftermath left;
    auto sweep = [&](lock_rules& rules) { return rules.sweep(*after, names_at_a_time); };
    auto swept = transact_once(lease_clock::now() + patience, notices, left, sweep);
    if (!swept) return;
    std::vector<notice> nobody;
    distribute(notices, 0, nobody);
    serve_on(std::move(left.unserved), lease_clock::now() + patience, 0, nobody);
    after = std::move(*swept);
  } while (after);
}

void local_store::forget_peer(client_number who) {
  const base::mutex_lock lock(mutex_);
  peers_.erase(who);
  out_.forget(who);
}

void local_store::bury(client_number who, std::chrono::milliseconds patience) {
  // The pipe goes first: nothing else would lead to it once the record is gone.
  if (pipes_ == pipes::made_by_clients) {
    ::unlinkat(folder(), inbox_name(who, pipes_).c_str(), 0);
  }
  std::vector<notice> nobody;
  // Once the record is gone, everything that points to it belongs to a dead client: dying in the
  // middle of this loses nothing.
  const auto first = transact(lease_clock::now() + patience, 0, nobody,
                              [&](lock_rules& rules) { return rules.remove_client(who); });
  forget_peer(who);
  if (!first || !*first) return;
  sweep_everything(patience);
}

void local_store::peer_ended(client_number who) {
  // The pipe is the first thing that goes when a client closes or is buried. Without it there is
  // nothing to do, in a crowd the usual case, or somebody does it. A ready-made one says nothing.
  if (pipes_ == pipes::made_by_clients &&
      ::faccessat(folder(), inbox_name(who, pipes_).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    forget_peer(who);
    return;
  }
  bury(who, burial_patience);
}

base::result<client_number> local_store::add_client(const client_record& who,
                                                    std::string_view label, number_slot slot) {
  std::vector<notice> nobody;
  std::vector<listed_client> others;
  const std::uint64_t draw = base::kernel_seed();
  auto number =
      transact(lease_clock::now() + patience_in_a_crowd, 0, nobody, [&](lock_rules& rules) {
        others = rules.some_clients(draw, clients_at_a_time);
        return rules.add_client(who, label, slot);
      });
  if (!number) return number;
  // Outside the gate: the kernel takes its time to tell of processes.
  for (const listed_client& each : others) {
    if (ended(each.record)) bury(each.number, burial_patience);
  }
  return number;
}

void local_store::remove_client(client_number who) {
  const time_point until = lease_clock::now() + patience_in_a_crowd;
  for (;;) {
    std::vector<notice> nobody;
    const auto removed =
        transact(std::min(until, lease_clock::now() + patience_with_the_stopped), 0, nobody,
                 [&](lock_rules& rules) { return rules.remove_client(who); });
    if (removed || removed.error().code != errc::unavailable) return;
    if (lease_clock::now() >= until || held_.way_in->held_up()) return;
  }
}

}  // namespace sallyport::backends::local

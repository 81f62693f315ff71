#include "backends/redis/cluster.hpp"

#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <utility>

namespace sallyport::backends::redis {

/// CLUSTER SLOTS, to one node.
class cluster::question final : public exchange {
 public:
  question(std::weak_ptr<cluster> home, net::endpoint asked)
      : home_(std::move(home)), asked_(std::move(asked)) {}
  void answered(base::result<reply> said) override {
    if (const auto home = home_.lock()) home->map_came(std::move(said), asked_);
  }

 private:
  const std::weak_ptr<cluster> home_;
  const net::endpoint asked_;
};

base::result<std::shared_ptr<router>> cluster::make(const std::shared_ptr<net::pump>& engine,
                                                    settings how,
                                                    std::shared_ptr<const protocol> speech,
                                                    std::weak_ptr<node_listener> whose) {
  auto made =
      std::make_shared<cluster>(engine, std::move(how), std::move(speech), std::move(whose));
  if (auto done = made->connect(); !done) return tl::unexpected(done.error());
  return made;
}

cluster::cluster(std::shared_ptr<net::pump> engine, settings how,
                 std::shared_ptr<const protocol> speech, std::weak_ptr<node_listener> whose)
    : pump_(std::move(engine)),
      how_(std::move(how)),
      speech_(std::move(speech)),
      listener_(std::move(whose)),
      random_(base::kernel_seed()),
      informants_place_(how_.seeds.front()),
      owners_(slot_count, nowhere) {}

base::result<std::monostate> cluster::connect() {
  const link_settings& login = how_.login;
  manners_ = std::make_shared<quiet_owner>();
  auto made = connection::make(pump_,
                               {.where = how_.seeds.front(),
                                .tls = login.tls,
                                .user = login.user,
                                .password = login.password,
                                .client_name = login.client_name + ":map",
                                .connect_timeout = answer_patience},
                               manners_);
  if (!made) return tl::unexpected(made.error());
  informant_ = std::move(*made);
  number_ = pump_->enroll(shared_from_this());
  return std::monostate{};
}

// ---- the router ----------------------------------------------------------------------------------

cluster::place_number cluster::number_of(const net::endpoint& where) {
  const auto found = std::ranges::find(places_, where, &place::where);
  if (found != places_.end()) return static_cast<place_number>(found - places_.begin());
  if (places_.size() < most_places) {
    places_.push_back({where, nullptr});
    return static_cast<place_number>(places_.size() - 1);
  }
  const auto unused = std::ranges::find_if(places_, [](const place& each) {
    // A command that is on its way there, or about to be, keeps the server, too.
    return !each.owns_slots && !each.in_new_map && each.server.use_count() <= 1;
  });
  if (unused == places_.end()) return nowhere;
  if (unused->server) unused->server->close();
  *unused = {where, nullptr};
  return static_cast<place_number>(unused - places_.begin());
}

std::shared_ptr<node> cluster::server_at(place_number number) {
  if (number == nowhere || closed_) return nullptr;
  place& there = places_[number];
  if (there.server) return there.server;
  link_settings login = how_.login;
  login.where = there.where;
  auto made = node::make(pump_, {.login = std::move(login)}, speech_, listener_);
  if (!made) {
    trouble_ = made.error();
    return nullptr;
  }
  there.server = std::move(*made);
  return there.server;
}

std::shared_ptr<node> cluster::node_for(std::uint32_t slot) {
  {
    const base::mutex_lock lock(mutex_);
    const place_number owner = owners_[slot];
    if (owner != nowhere) return server_at(owner);
    if (known_) {
      trouble_ = {make_error_code(errc::unavailable),
                  "no node of the cluster serves slot " + std::to_string(slot)};
    }
  }
  read_soon();
  return nullptr;
}

base::failure cluster::trouble() {
  const base::mutex_lock lock(mutex_);
  return trouble_;
}

router::redirection cluster::redirect(const reply& error, std::uint32_t slot,
                                      const std::shared_ptr<node>& from) {
  const std::string_view word = error.error_word();
  if (word == "CLUSTERDOWN" || word == "READONLY") {
    {
      const base::mutex_lock lock(mutex_);
      tell_ = true;
    }
    read_soon();
    return {};
  }
  const net::endpoint asked = from->where();
  const auto target = target_of(error, asked);
  if (!target) return {};
  redirection found{.to = nullptr, .asking = word == "ASK"};
  std::shared_ptr<node> before;
  {
    const base::mutex_lock lock(mutex_);
    const place_number there = number_of(*target);
    found.to = server_at(there);
    if (!found.to || found.asking) return found;
    const place_number owner = std::exchange(owners_[slot], there);
    places_[there].owns_slots = true;
    if (owner != nowhere && owner != there) before = places_[owner].server;
  }
  if (before) before->forget_slot(slot);
  // Where one slot has gone others may go.
  read_soon();
  return found;
}

void cluster::node_lost(const net::endpoint& where) {
  {
    const base::mutex_lock lock(mutex_);
    const auto found = std::ranges::find(places_, where, &place::where);
    if (found == places_.end() || !found->owns_slots) return;
  }
  read_soon();
}

std::vector<std::shared_ptr<node>> cluster::all() {
  const base::mutex_lock lock(mutex_);
  std::vector<std::shared_ptr<node>> masters;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].owns_slots) continue;
    if (auto server = server_at(static_cast<place_number>(i))) masters.push_back(std::move(server));
  }
  return masters;
}

void cluster::begin() { read_soon(); }

bool cluster::unfinished() {
  const base::mutex_lock lock(mutex_);
  if (reading_ || next_reading_ != time_point::max()) return true;
  return std::ranges::any_of(
      places_, [](const place& each) { return each.server && each.server->unfinished(); });
}

void cluster::close() {
  std::vector<std::shared_ptr<node>> servers;
  {
    const base::mutex_lock lock(mutex_);
    closed_ = true;
    for (const place& each : places_) {
      if (each.server) servers.push_back(each.server);
    }
  }
  pump_->dismiss(number_);
  informant_->close();
  for (const auto& each : servers) each->close();
}

// ---- the map -------------------------------------------------------------------------------------

void cluster::read_soon() {
  const time_point now = lease_clock::now();
  {
    const base::mutex_lock lock(mutex_);
    if (closed_ || next_reading_ != time_point::max()) return;
    if (reading_) {
      again_ = true;
      return;
    }
    next_reading_ = now;
  }
  pump_->alarm(number_, now);
}

void cluster::due(time_point now) {
  {
    const base::mutex_lock lock(mutex_);
    if (closed_ || reading_) return;
    if (now < next_reading_) {
      if (next_reading_ != time_point::max()) pump_->alarm(number_, next_reading_);
      return;
    }
  }
  read(now);
}

void cluster::read(time_point now) {
  net::endpoint where;
  bool elsewhere = false;
  {
    const base::mutex_lock lock(mutex_);
    reading_ = true;
    again_ = false;
    next_reading_ = time_point::max();
    // Masters first: what seeds were is known from the address only.
    std::vector<net::endpoint> candidates;
    for (const place& each : places_) {
      if (each.owns_slots) candidates.push_back(each.where);
    }
    candidates.insert(candidates.end(), how_.seeds.begin(), how_.seeds.end());
    last_candidate_ = (candidate_ + 1) % candidates.size() == 0;
    where = candidates[candidate_ % candidates.size()];
    elsewhere = !(informants_place_ == where);
    informants_place_ = where;
  }
  if (elsewhere) informant_->retarget(where);
  auto asked = std::make_unique<question>(weak_from_this(), where);
  asked->command = plain_command({"CLUSTER", "SLOTS"});
  asked->answer_by = now + answer_patience;
  informant_->send(std::move(asked));
}

void cluster::map_came(base::result<reply> said, const net::endpoint& asked) {
  bool changed = false;
  bool first = false;
  bool good = false;
  bool next_at_once = false;
  std::shared_ptr<node> greeter;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    reading_ = false;
    const auto ranges = said ? slots_in(*said, asked) : std::nullopt;
    const bool useful = ranges && !ranges->empty();
    // One that does not know says nothing about the cluster; all of them do.
    next_at_once = !useful && !last_candidate_;
    if (useful) {
      changed = take_map(*ranges);
      first = !std::exchange(known_, true);
      trouble_ = {};
      good = well();
      // Any master tells what servers these are; who was asked is known to be up.
      const auto there = std::ranges::find(places_, asked, &place::where);
      const bool asked_a_master = there != places_.end() && there->owns_slots;
      if (first) {
        greeter = server_at(asked_a_master ? number_of(asked) : owners_[ranges->front().first]);
      }
    } else if (!next_at_once) {
      trouble_ = trouble_with(said, asked);
    }
    if (!good) ++candidate_;
    if (good && !changed) changed = std::exchange(tell_, false);
  }
  if (next_at_once) {
    read_soon();
    return;
  }
  plan_next(lease_clock::now(), good);
  if (greeter) greeter->commands().want();
  if (!changed || first) return;
  if (const auto told = listener_.lock()) told->gap_ended();
}

base::failure cluster::trouble_with(const base::result<reply>& said, const net::endpoint& asked) {
  const std::string who = "redis at " + asked.describe();
  if (!said) {
    return {make_error_code(errc::unavailable),
            "no node of the cluster tells its slots: " + said.error().detail};
  }
  if (said->is_error() && said->text.find("cluster support disabled") != std::string::npos) {
    return {make_error_code(errc::store_refused),
            who + ": this server is no node of a cluster; use redis:// for its address"};
  }
  return {make_error_code(errc::unavailable),
          who + " knows of no slots: " +
              (said->is_error() ? said->text : std::string("is it part of the cluster?"))};
}

bool cluster::take_map(const std::vector<slot_range>& ranges) {
  std::vector<place_number> owners(slot_count, nowhere);
  std::vector<bool> owns(most_places, false);
  for (const slot_range& each : ranges) {
    const place_number master = number_of(each.master);
    std::fill(owners.begin() + each.first, owners.begin() + each.last + 1, master);
    if (master == nowhere) continue;
    owns[master] = true;
    places_[master].in_new_map = true;
  }
  const bool changed = owners != owners_;
  for (std::uint32_t slot = 0; changed && slot < slot_count; ++slot) {
    const place_number before = owners_[slot];
    if (before == nowhere || before == owners[slot] || !places_[before].server) continue;
    places_[before].server->forget_slot(slot);
  }
  owners_ = std::move(owners);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    place& each = places_[i];
    const bool retires = each.owns_slots && !owns[i];
    const bool returns = !each.owns_slots && owns[i];
    each.owns_slots = owns[i];
    each.in_new_map = false;
    if (returns && each.server) each.server->commands().want();
    if (retires && each.server) {
      each.server->rest({make_error_code(errc::unavailable), "the node serves no slots any more"});
    }
  }
  return changed;
}

bool cluster::well() {
  // A master that is in the map but not reached: its replica will stand there soon, or itself.
  const bool reached = std::ranges::none_of(places_, [](const place& each) {
    return each.owns_slots && each.server && each.server->trouble();
  });
  return reached && std::ranges::find(owners_, nowhere) == owners_.end();
}

void cluster::plan_next(time_point now, bool good) {
  time_point next = time_point::max();
  {
    const base::mutex_lock lock(mutex_);
    if (good) in_vain_ = 0;
    if (good && !std::exchange(again_, false)) return;
    duration longest = first_pause;
    for (unsigned i = 0; i < in_vain_ && longest < longest_pause; ++i) longest *= 2;
    longest = std::min(longest, longest_pause);
    if (!good) ++in_vain_;
    next = next_reading_ =
        now + duration(static_cast<duration::rep>(static_cast<double>(longest.count()) *
                                                  (0.5 + random_.unit() / 2)));
  }
  pump_->alarm(number_, next);
}

}  // namespace sallyport::backends::redis

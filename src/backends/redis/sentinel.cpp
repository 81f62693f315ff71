#include "backends/redis/sentinel.hpp"

#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace sallyport::backends::redis {
namespace {

constexpr std::string_view switches = "+switch-master";

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What SENTINEL MASTER says about the master's configuration; 0: it was not told.
std::uint64_t epoch_in(const reply& said) {
  for (std::size_t i = 0; i + 1 < said.elements.size(); i += 2) {
    if (said.elements[i].text == "config-epoch") {
      return number_in<std::uint64_t>(said.elements[i + 1].text).value_or(0);
    }
  }
  return 0;
}

}  // namespace

/// Two commands to one sentinel: where the master is, and since which epoch. The second one's
/// answer ends it.
class sentinel::question final : public std::enable_shared_from_this<question> {
 public:
  question(std::weak_ptr<sentinel> home, std::uint64_t round, std::size_t which)
      : home_(std::move(home)), round_(round), which_(which) {}

  void put(connection& where, const std::string& group, time_point answer_by) {
    const auto send = [&](std::string_view subcommand,
                          void (question::*then)(base::result<reply>)) {
      auto asked = std::make_unique<part>(shared_from_this(), then);
      asked->command = plain_command({"SENTINEL", subcommand, group});
      asked->answer_by = answer_by;
      where.send(std::move(asked));
    };
    send("GET-MASTER-ADDR-BY-NAME", &question::place_came);
    send("MASTER", &question::epoch_came);
  }

 private:
  class part final : public exchange {
   public:
    part(std::shared_ptr<question> whole, void (question::*then)(base::result<reply>))
        : whole_(std::move(whole)), then_(then) {}
    void answered(base::result<reply> said) override { ((*whole_).*then_)(std::move(said)); }

   private:
    const std::shared_ptr<question> whole_;
    void (question::*const then_)(base::result<reply>);
  };

  void place_came(base::result<reply> said) {
    if (!said) {
      word_.trouble = said.error().detail;
      return;
    }
    if (said->is_error()) {
      word_.trouble = "it said: " + said->text;
      return;
    }
    word_.answered = true;
    if (said->elements.size() != 2) return;
    const auto port = number_in<std::uint16_t>(said->elements[1].text);
    if (!port || said->elements[0].text.empty()) return;
    word_.master = net::endpoint{said->elements[0].text, *port, {}};
  }

  void epoch_came(base::result<reply> said) {
    if (said) word_.epoch = epoch_in(*said);
    word_.given = true;
    if (const auto home = home_.lock()) home->hear(round_, which_, std::move(word_));
  }

  const std::weak_ptr<sentinel> home_;
  const std::uint64_t round_;
  const std::size_t which_;
  word word_;
};

base::result<std::shared_ptr<router>> sentinel::make(const std::shared_ptr<net::pump>& engine,
                                                     settings how,
                                                     const std::shared_ptr<const protocol>& speech,
                                                     std::weak_ptr<node_listener> whose) {
  auto made = std::make_shared<sentinel>(engine, std::move(how));
  if (auto done = made->connect(speech, std::move(whose)); !done) {
    return tl::unexpected(done.error());
  }
  return made;
}

sentinel::sentinel(std::shared_ptr<net::pump> engine, settings how)
    : pump_(std::move(engine)), how_(std::move(how)), random_(base::kernel_seed()) {}

base::result<std::monostate> sentinel::connect(const std::shared_ptr<const protocol>& speech,
                                               std::weak_ptr<node_listener> whose) {
  auto master = node::make(pump_, {.login = how_.master_login}, speech, std::move(whose));
  if (!master) return tl::unexpected(master.error());
  master_ = std::move(*master);
  const link_settings& login = how_.sentinel_login;
  manners_ = std::make_shared<quiet_owner>();
  for (const net::endpoint& each : how_.sentinels) {
    auto made = connection::make(pump_,
                                 {.where = each,
                                  .tls = login.tls,
                                  .user = login.user,
                                  .password = login.password,
                                  .client_name = login.client_name,
                                  .connect_timeout = login.connect_timeout},
                                 manners_);
    if (!made) return tl::unexpected(made.error());
    sentinels_.push_back(std::move(*made));
  }
  auto announcements = subscriber::make(pump_,
                                        {.where = how_.sentinels.front(),
                                         .tls = login.tls,
                                         .user = login.user,
                                         .password = login.password,
                                         .client_name = login.client_name + ":notices",
                                         .connect_timeout = login.connect_timeout},
                                        weak_from_this());
  if (!announcements) return tl::unexpected(announcements.error());
  announcements_ = std::move(*announcements);
  number_ = pump_->enroll(shared_from_this());
  return std::monostate{};
}

// ---- the router ----------------------------------------------------------------------------------

std::shared_ptr<node> sentinel::node_for(std::uint32_t /*slot*/) {
  {
    const base::mutex_lock lock(mutex_);
    if (known_) return master_;
  }
  ask_at(lease_clock::now());
  return nullptr;
}

base::failure sentinel::trouble() {
  const base::mutex_lock lock(mutex_);
  return trouble_;
}

router::redirection sentinel::redirect(const reply& error, std::uint32_t /*slot*/,
                                       const std::shared_ptr<node>& from) {
  if (error.is_from_replica()) {
    // It was the master. Whichever connection has heard so: the one for commands, when it is lost,
    // has the sentinels asked.
    from->commands().drop({make_error_code(errc::unavailable), "the server has become a replica"});
  }
  return {};
}

void sentinel::node_lost(const net::endpoint& /*where*/) { ask_at(lease_clock::now()); }

std::vector<std::shared_ptr<node>> sentinel::all() {
  const base::mutex_lock lock(mutex_);
  if (!known_) return {};
  return {master_};
}

void sentinel::begin() {
  announcements_->subscribe(switches, false);
  ask_at(lease_clock::now());
}

bool sentinel::unfinished() {
  {
    // While announcements can come somebody has to hear them: the sooner a fail-over is known, the
    // less is said to a server that is no master any more.
    const base::mutex_lock lock(mutex_);
    if (hears_announcements_ || asking_ || next_round_ != time_point::max()) return true;
  }
  return master_->unfinished();
}

void sentinel::close() {
  pump_->dismiss(number_);
  announcements_->close();
  for (const auto& each : sentinels_) each->close();
  master_->close();
}

// ---- rounds --------------------------------------------------------------------------------------

void sentinel::ask_at(time_point when) {
  {
    const base::mutex_lock lock(mutex_);
    if (asking_) {
      again_ = true;
      return;
    }
    if (when >= next_round_ && fruitless_ == 0) return;
    // While rounds bring nothing their pauses count, however often somebody asks.
    if (next_round_ != time_point::max() && fruitless_ > 0) return;
    next_round_ = when;
  }
  rouse(when);
}

duration sentinel::pause() {
  duration longest = first_pause;
  for (unsigned i = 0; i < fruitless_ && longest < longest_pause; ++i) longest *= 2;
  longest = std::min(longest, longest_pause);
  return duration(static_cast<duration::rep>(static_cast<double>(longest.count()) *
                                             (0.5 + random_.unit() / 2)));
}

void sentinel::due(time_point now) {
  net::endpoint announcer;
  bool change_announcer = false;
  bool ask = false;
  {
    const base::mutex_lock lock(mutex_);
    if (now >= next_announcer_at_) {
      next_announcer_at_ = time_point::max();
      announcer_ = (announcer_ + 1) % how_.sentinels.size();
      announcer = how_.sentinels[announcer_];
      change_announcer = true;
    }
    ask = !asking_ && now >= next_round_;
  }
  if (change_announcer) announcements_->retarget(announcer);
  if (ask) begin_round(now);
  const base::mutex_lock lock(mutex_);
  const time_point next = std::min(next_round_, next_announcer_at_);
  if (next != time_point::max()) rouse(next);
}

void sentinel::begin_round(time_point now) {
  std::uint64_t round = 0;
  {
    const base::mutex_lock lock(mutex_);
    asking_ = true;
    again_ = false;
    next_round_ = time_point::max();
    round = ++round_;
    words_.assign(sentinels_.size(), {});
  }
  for (std::size_t i = 0; i < sentinels_.size(); ++i) {
    std::make_shared<question>(weak_from_this(), round, i)
        ->put(*sentinels_[i], how_.group, now + answer_patience);
  }
}

std::optional<net::endpoint> sentinel::verdict() {
  const word* best = nullptr;
  bool denied = false;
  std::string why;
  for (const word& each : words_) {
    if (!each.given) continue;
    if (each.master) {
      if (best == nullptr || each.epoch > best->epoch) best = &each;
    } else if (each.answered) {
      denied = true;
    } else {
      why += (why.empty() ? "" : "; ") + each.trouble;
    }
  }
  if (best != nullptr) return best->master;
  if (denied) {
    trouble_ = {make_error_code(errc::store_refused),
                "the sentinels know no group '" + how_.group +
                    "'; it is the first part of the address behind the sentinels, and SENTINEL "
                    "MASTERS names those that they know"};
  } else {
    trouble_ = {make_error_code(errc::unavailable),
                "no sentinel tells where '" + how_.group + "' is: " + why};
  }
  return std::nullopt;
}

void sentinel::hear(std::uint64_t round, std::size_t which, word said) {
  std::optional<net::endpoint> found;
  bool first = false;  // that decides this round; words that come later may overrule it
  {
    const base::mutex_lock lock(mutex_);
    if (round != round_) return;
    words_[which] = std::move(said);
    const auto given = std::ranges::count_if(words_, &word::given);
    const auto useful =
        std::ranges::count_if(words_, [](const word& each) { return !!each.master; });
    const auto everybody = std::ssize(words_);
    if (given < everybody && 2 * useful <= everybody) return;
    found = verdict();
    first = std::exchange(asking_, false);
  }
  if (found) adopt(*found);
  if (!first) return;

  // While a fail-over is under way they name the old master, which is not reached.
  const bool reached = found && !master_->trouble() && master_->facts();
  time_point next = time_point::max();
  {
    const base::mutex_lock lock(mutex_);
    if (asking_) return;
    if (reached) fruitless_ = 0;
    if (!reached || std::exchange(again_, false)) {
      next_round_ = next = lease_clock::now() + pause();
      if (!reached) ++fruitless_;
    }
  }
  if (next != time_point::max()) rouse(next);
}

void sentinel::adopt(const net::endpoint& where) {
  bool first = false;
  {
    const base::mutex_lock lock(mutex_);
    first = !std::exchange(known_, true);
    trouble_ = {};
  }
  if (first || !(master_->where() == where)) {
    if (!first) {
      base::log(base::log_level::info, "redis: the sentinels say that the master of '" +
                                           how_.group + "' is " + where.describe());
    }
    master_->retarget(where);
  }
  master_->commands().want();
}

// ---- announcements -------------------------------------------------------------------------------

void sentinel::subscribed(std::string_view /*channel*/) {
  {
    const base::mutex_lock lock(mutex_);
    hears_announcements_ = true;
  }
  // A switch may have been missed.
  ask_at(lease_clock::now());
}

void sentinel::message(std::string_view /*channel*/, std::string_view payload) {
  if (!payload.starts_with(how_.group + ' ')) return;
  {
    const base::mutex_lock lock(mutex_);
    fruitless_ = 0;
  }
  ask_at(lease_clock::now());
}

void sentinel::lost(const base::failure& /*why*/) {
  time_point when{};
  {
    const base::mutex_lock lock(mutex_);
    hears_announcements_ = false;
    if (how_.sentinels.size() < 2 || next_announcer_at_ != time_point::max()) return;
    when = next_announcer_at_ = lease_clock::now() + pause();
  }
  rouse(when);
}

void sentinel::refused(std::string_view /*channel*/, std::string_view servers_words) {
  base::log(base::log_level::warning, "redis: a sentinel does not let us listen (" +
                                          std::string(servers_words) +
                                          "); a fail-over is noticed when the master is gone");
}

}  // namespace sallyport::backends::redis

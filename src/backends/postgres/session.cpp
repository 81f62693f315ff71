#include "backends/postgres/session.hpp"

#include "backends/postgres/answers.hpp"
#include "backends/postgres/lookup.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::postgres {
namespace {

/// Whatever else there is becomes '?', as in PostgreSQL itself; pgbouncer refuses it.
std::string printable(std::string text) {
  for (char& each : text) {
    if (each < ' ' || each > '~') each = '?';
  }
  return text;
}

}  // namespace

using backend_api::delivery_gate;

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto engine = net::pump::make();
  if (!engine) return tl::unexpected(engine.error());
  auto attention = backend_api::hearing::make_attention((*engine)->descriptor_number());
  if (!attention) return tl::unexpected(attention.error());
  auto made = std::make_shared<session>(std::move(*where), request, std::move(*engine),
                                        std::move(*attention));
  made->connect_both();
  const auto trouble = made->wait_for_first_connection();
  std::optional<server_facts> facts;
  {
    const base::mutex_lock lock(made->mutex_);
    facts = made->facts_;
  }
  // Wrong passwords and wrong addresses do not get better by waiting.
  if (!facts && trouble && trouble->code == errc::store_refused) {
    made->close();
    return tl::unexpected(*trouble);
  }
  made->set_capabilities(capabilities_of(facts, made->address_));
  return made;
}

session::session(address where, const backend_api::open_request& request,
                 std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention)
    : sql::session(request.listener, std::move(engine), std::move(attention), "postgres",
                   where.store, "/" + where.database + ":" + where.schema),
      address_(std::move(where)),
      speech_({.schema = address_.schema,
               .durable = address_.durable,
               .client = base::kernel_seed(),
               .owner = request.owner}),
      random_(base::kernel_seed()) {}

void session::connect_both() {
  wire_parameters where = address_.where;
  const auto has = [&](std::string_view keyword) {
    return std::ranges::any_of(where, [&](const auto& one) { return one.first == keyword; });
  };
  where.emplace_back("client_encoding", "UTF8");
  if (!has("application_name")) {
    where.emplace_back("application_name", "sallyport:" + printable(speech_.how().owner.label));
  }
  const connection::settings how{
      .find = [where = std::move(where)] { return search_for(where); },
      .worth_repeating = &worth_repeating,
      .description = address_.description,
      .connect_timeout = std::chrono::seconds{address_.connect_timeout_s}};
  connect(how);
  notices_ = listening::make(pump_, how, std::static_pointer_cast<session>(shared_from_this()));
}

void session::close() {
  if (notices_) notices_->close();
  sql::session::close();
}

// ---- answers -------------------------------------------------------------------------------------

base::failure session::meaning_of(const reply& error) const { return failure_of(error); }

void session::failed(const reply& error) {
  if (error.error_code == "55P03") end_cut_calls();
}

void session::end_cut_calls() {
  {
    const base::mutex_lock lock(mutex_);
    const time_point now = lease_clock::now();
    if (now < next_end_of_cut_calls_) return;
    next_end_of_cut_calls_ = now + cut_calls_interval;
  }
  ask(speech_.end_cut_calls(), [](const base::result<reply>& /*said*/) {});
}

void session::told_to_wait(const backend_api::holder_id& /*who*/, const reply& /*said*/,
                           backend_api::waiting& answer) {
  if (stateless()) {
    answer.ask_again_after = poll_after(answer.ask_again_after);
  } else {
    listen();
  }
}

void session::about_to_renew() {
  if (!stateless()) listen();
}

// ---- notices -------------------------------------------------------------------------------------

void session::listen() {
  if (listens_.exchange(true)) return;
  notices_->listen(speech_.channel());
}

duration session::poll_after(duration told) {
  const base::mutex_lock lock(mutex_);
  const double share = 0.6 + 0.4 * random_.unit();
  const auto poll =
      duration(static_cast<duration::rep>(static_cast<double>(longest_poll.count()) * share));
  return std::min(told, poll);
}

void session::watch(const lock_name& name, bool on) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open() || stateless()) return;
  be_heard_always();
  if (!on) {
    std::string channel;
    {
      const base::mutex_lock lock(mutex_);
      const auto known = watched_channels_.find(name.text());
      if (known != watched_channels_.end()) {
        channel = known->second;
        watched_channels_.erase(known);
      }
      watched_.erase(channel);
    }
    if (!channel.empty()) notices_->unlisten(channel);
    return;
  }
  {
    const base::mutex_lock lock(mutex_);
    watched_channels_.emplace(name.text(), "");
  }
  ask_channel(name);
}

void session::ask_channel(const lock_name& name) {
  ask(speech_.change_channel(name), [this, name](base::result<reply> said) {
    if (said && !said->is_error() && said->rows.size() == 1 && said->rows.front().size() == 1) {
      watch_at(name, said->rows.front().front());
    }
  });
}

void session::watch_at(const lock_name& name, const std::string& channel) {
  {
    const base::mutex_lock lock(mutex_);
    const auto wanted = watched_channels_.find(name.text());
    if (wanted == watched_channels_.end()) return;
    wanted->second = channel;
    watched_.insert_or_assign(channel, name);
  }
  notices_->listen(channel);
}

void session::message(std::string_view channel, std::string_view payload) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  if (channel == speech_.channel()) {
    if (const auto said = parse_notice(payload)) {
      if (said->grant) {
        listener_.granted_notice(said->holder, said->grant);
      } else {
        listener_.lost_notice(said->holder);
      }
    }
    return;
  }
  std::optional<lock_name> changed;
  {
    const base::mutex_lock lock(mutex_);
    const auto found = watched_.find(std::string(channel));
    if (found != watched_.end()) changed = found->second;
  }
  if (changed) listener_.changed_notice(*changed);
}

// ---- the connection for calls --------------------------------------------------------------------

base::result<std::optional<std::string>> session::greet(const reply* said, int server_process) {
  if (said == nullptr) greeting_.emplace(address_, server_process);
  auto next = greeting_->next(said);
  if (next && !*next) {
    pooled_.store(greeting_->facts().pooled, std::memory_order_relaxed);
    {
      const base::mutex_lock lock(mutex_);
      facts_ = greeting_->facts();
    }
    if (auto named = greeted(greeting_->facts().store); !named) {
      return tl::unexpected(named.error());
    }
  }
  return next;
}

void session::connected() {
  if (!std::exchange(ever_connected_, true)) return;
  // Names that began to be watched while nobody could say where.
  std::vector<std::string> unknown;
  {
    const base::mutex_lock lock(mutex_);
    for (const auto& [name, channel] : watched_channels_) {
      if (channel.empty()) unknown.push_back(name);
    }
  }
  for (const std::string& each : unknown) ask_channel(lock_name(each));
  // The last connection may have been given up because no answer came.
  end_cut_calls();
  gap_ended();
}

}  // namespace sallyport::backends::postgres

#include "backends/redis/connection.hpp"

#include "backends/pipeline/connection_body.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace sallyport::backends {

template class pipeline::connection<redis::link, redis::exchange, redis::connection_owner,
                                    redis::command_trace>;

namespace redis {

base::result<std::shared_ptr<connection>> connection::make(std::shared_ptr<net::pump> engine,
                                                           settings how,
                                                           std::weak_ptr<owner> whose) {
  auto made = std::make_shared<connection>(how, std::move(whose));
  auto linked = link::make(std::move(engine),
                           {.where = std::move(how.where),
                            .tls = std::move(how.tls),
                            .user = std::move(how.user),
                            .password = std::move(how.password),
                            .client_name = std::move(how.client_name),
                            .database = how.database,
                            .connect_timeout = how.connect_timeout},
                           made);
  if (!linked) return tl::unexpected(linked.error());
  made->attach(std::move(*linked));
  return made;
}

connection::connection(const settings& how, std::weak_ptr<owner> whose)
    : command_pipeline({.waiting_bytes = how.max_waiting_bytes, .in_flight = how.max_in_flight},
                       std::move(whose)) {}

std::vector<wire_command> connection::link_greeting() {
  const std::shared_ptr<owner> whose = owner_.lock();
  return whose ? whose->greeting() : std::vector<wire_command>{};
}

std::vector<wire_command> connection::link_greeting_goes_on(const std::vector<reply>& said) {
  const std::shared_ptr<owner> whose = owner_.lock();
  return whose ? whose->greeting_goes_on(said) : std::vector<wire_command>{};
}

base::result<std::monostate> connection::link_greeted(const std::vector<reply>& said) {
  const std::shared_ptr<owner> whose = owner_.lock();
  if (!whose) return base::fail(errc::closed, "the client was closed");
  return whose->greeted(said);
}

void connection::put_in_flight(std::unique_ptr<exchange> what) {
  put_in_flight(std::move(what), script_form::by_name);
}

void connection::put_in_flight(std::unique_ptr<exchange> what, script_form form) {
  if (what->command.asking) {
    static_cast<void>(begin_flight(*what));
    constexpr std::array<std::string_view, 1> asking{"ASKING"};
    append_command(out_.bytes(), asking);
  }
  flight& one = begin_flight(*what);
  one.trace = {.order_key = what->order_key, .script = what->command.script, .form = form};
  append_command(out_.bytes(), what->command, form);
  one.who = std::move(what);
}

base::result<std::monostate> connection::match(std::vector<reply>& said) {
  // What is healed is put behind these, and is not answered by any of this.
  std::size_t asked = in_flight_.size();
  bool replica = false;
  for (reply& each : said) {
    if (asked-- == 0) return nobody_asked();
    flight& oldest = in_flight_.front();
    const bool unknown_script = oldest.trace.script != nullptr &&
                                oldest.trace.form == script_form::by_name &&
                                each.error_word() == "NOSCRIPT";
    std::unique_ptr<exchange> who = std::move(oldest.who);
    in_flight_.pop();
    replica = replica || each.is_from_replica();
    if (!who) continue;
    if (unknown_script) {
      heal(std::move(who));
    } else if (who->again(each)) {
      repeat(std::move(who));
    } else {
      tell(std::move(who), each);
    }
  }
  if (replica) return base::fail(errc::unavailable, "the server has become a replica");
  return std::monostate{};
}

bool connection::too_late_for(const exchange& what) {
  if (!up_) return true;
  return what.order_key != backend_api::holder_id{} &&
         std::any_of(in_flight_.begin(), in_flight_.end(),
                     [&](const flight& other) { return other.trace.order_key == what.order_key; });
}

void connection::repeat(std::unique_ptr<exchange> what) {
  if (too_late_for(*what)) {
    tell(std::move(what), {make_error_code(errc::unavailable),
                           link_->describe() + " was not ready, and nothing was done; ask again"});
    return;
  }
  put_in_flight(std::move(what));
}

void connection::heal(std::unique_ptr<exchange> what) {
  if (too_late_for(*what)) {
    tell(std::move(what),
         {make_error_code(errc::unavailable),
          link_->describe() + " no longer knew the script, and nothing was done; ask again"});
    return;
  }
  // The first one that carries the text makes the server know it for those behind.
  const bool on_its_way = std::any_of(
      in_flight_.begin(), in_flight_.end(), [script = what->command.script](const flight& other) {
        return other.trace.script == script && other.trace.form == script_form::in_full;
      });
  put_in_flight(std::move(what), on_its_way ? script_form::by_name : script_form::in_full);
}

}  // namespace redis
}  // namespace sallyport::backends

#include "backends/memcached/connection.hpp"

#include "backends/pipeline/connection_body.hpp"
#include <sallyport/error.hpp>

#include <utility>

namespace sallyport::backends {

template class pipeline::connection<memcached::link, memcached::exchange,
                                    memcached::connection_owner, memcached::reply_builder>;

namespace memcached {

base::result<std::shared_ptr<connection>> connection::make(std::shared_ptr<net::pump> engine,
                                                           settings how,
                                                           std::weak_ptr<owner> whose) {
  auto made = std::make_shared<connection>(how, std::move(whose));
  auto linked = link::make(std::move(engine),
                           {.where = std::move(how.where),
                            .tls = std::move(how.tls),
                            .user = std::move(how.user),
                            .password = std::move(how.password),
                            .connect_timeout = how.connect_timeout},
                           made);
  if (!linked) return tl::unexpected(linked.error());
  made->attach(std::move(*linked));
  return made;
}

connection::connection(const settings& how, std::weak_ptr<owner> whose)
    : command_pipeline({.waiting_bytes = how.max_waiting_bytes, .in_flight = how.max_in_flight},
                       std::move(whose)) {}

base::result<std::monostate> connection::link_greeted(const server_facts& said) {
  const std::shared_ptr<owner> whose = owner_.lock();
  if (!whose) return base::fail(errc::closed, "the client was closed");
  return whose->greeted(said);
}

void connection::put_in_flight(std::unique_ptr<exchange> what) {
  flight& one = begin_flight(*what);
  one.trace = reply_builder(++last_tag_, what->command.lines);
  append_command(out_.bytes(), what->command, last_tag_);
  one.who = std::move(what);
}

base::result<std::monostate> connection::match(std::vector<answer_line>& said) {
  whole_.clear();
  whole_.reserve(said.size());  // what is told stays where it is
  for (answer_line& line : said) {
    if (in_flight_.empty()) return nobody_asked();
    flight& oldest = in_flight_.front();
    auto whole = oldest.trace.take(std::move(line));
    if (!whole) return tl::unexpected(std::move(whole.error()));
    if (!*whole) continue;
    if (oldest.who) {
      tell(std::move(oldest.who), whole_.emplace_back(oldest.trace.finished()));
    }
    in_flight_.pop();
  }
  return std::monostate{};
}

}  // namespace memcached
}  // namespace sallyport::backends

#include "backends/memcached/link.hpp"

#include <sallyport/error.hpp>

#include <cstddef>
#include <utility>

namespace sallyport::backends::memcached {

base::result<std::shared_ptr<link>> link::make(std::shared_ptr<net::pump> engine, link_settings how,
                                               std::weak_ptr<user> whose) {
  return make_enrolled<link>(std::move(engine), std::move(how), std::move(whose));
}

link::link(std::shared_ptr<net::pump> engine, link_settings how,
           std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose)
    : pipeline::link(std::move(engine),
                     {.store = "memcached",
                      .where = how.where,
                      .tls = how.tls,
                      .connect_timeout = how.connect_timeout},
                     std::move(tls), whose),
      settings_(std::move(how)),
      user_(std::move(whose)) {}

base::failure link::refusal(const std::string& said) {
  const std::string quoted = said.substr(0, 200);
  // Servers that are full let us in later.
  if (said.find("Too many open connections") != std::string::npos) {
    return unavailable("it takes no more connections: " + quoted + "; its limit is -c");
  }
  return {make_error_code(errc::store_refused),
          describe() + ": it refused us: " + quoted +
              (settings_.password.empty()
                   ? "; it may want a user and a password (password_file, password_env)"
                   : "; check the user and the password")};
}

std::string link::greeting() {
  reader_.emplace();
  said_.clear();
  std::string bytes;
  if (!settings_.password.empty()) {
    const std::string login = settings_.user + " " + settings_.password;
    bytes += "set login 0 0 " + std::to_string(login.size()) + "\r\n" + login + "\r\n";
  }
  bytes += "stats\r\nstats settings\r\n";
  return bytes;
}

link::greeting_state link::look_at_greeting(std::string& objection) const {
  std::size_t ends = 0;
  for (const answer_line& each : said_) {
    if (each.text == "END") {
      ++ends;
    } else if (!each.text.starts_with("STAT ") && each.text != "STORED") {
      objection = each.text;
      return greeting_state::refused;
    }
  }
  if (ends > 2) {
    objection = "it says more than it was asked";
    return greeting_state::refused;
  }
  return ends == 2 ? greeting_state::whole : greeting_state::partial;
}

base::result<bool> link::hear_greeting() {
  std::string objection;
  bool more = true;
  while (more) {
    auto got = read(said_);
    // A server that throws us out says why first.
    switch (look_at_greeting(objection)) {
      case greeting_state::partial:
        if (!got) return tl::unexpected(network_failure(got.error()));
        more = *got;
        break;
      case greeting_state::refused:
        return tl::unexpected(refusal(objection));
      case greeting_state::whole:
        return judge_greeting();
    }
  }
  return false;
}

base::result<bool> link::judge_greeting() {
  const std::shared_ptr<user> whose = user_.lock();
  if (!whose) return false;
  const server_facts facts = facts_in(said_);
  said_.clear();
  if (auto verdict = whose->link_greeted(facts); !verdict) {
    return base::fail(verdict.error().code, describe() + ": " + verdict.error().detail);
  }
  return true;
}

}  // namespace sallyport::backends::memcached

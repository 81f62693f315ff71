#include "backends/redis/link.hpp"

#include "backends/redis/protocol.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

namespace sallyport::backends::redis {
namespace {

constexpr std::string_view login_remedy =
    "the address may need a user and a password (password_file, password_env)";

}  // namespace

base::result<std::shared_ptr<link>> link::make(std::shared_ptr<net::pump> engine, link_settings how,
                                               std::weak_ptr<user> whose) {
  return make_enrolled<link>(std::move(engine), std::move(how), std::move(whose));
}

link::link(std::shared_ptr<net::pump> engine, link_settings how,
           std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose)
    : pipeline::link(std::move(engine),
                     {.store = "redis",
                      .where = how.where,
                      .tls = how.tls,
                      .connect_timeout = how.connect_timeout},
                     std::move(tls), whose),
      settings_(std::move(how)),
      user_(std::move(whose)) {}

base::failure link::refusal(const std::string& what, const reply& said, std::string_view remedy) {
  // Servers that are full let us in later.
  const bool full = said.text.find("max number of clients") != std::string::npos;
  return {full ? make_error_code(errc::unavailable) : failure_of(said).code,
          describe() + ": it refused " + what + ": " + said.text + "; " + std::string(remedy)};
}

std::string link::greeting() {
  reader_.emplace();
  said_.clear();
  expected_ = 0;
  gone_on_ = false;
  std::string bytes;
  const auto say = [&](std::initializer_list<std::string_view> words) {
    append_command(bytes, std::span(words.begin(), words.size()));
    ++expected_;
  };
  if (!settings_.user.empty()) {
    // Also without a password, which some users need not have: the server would take us for the
    // default user.
    say({"AUTH", settings_.user, settings_.password});
  } else if (!settings_.password.empty()) {
    say({"AUTH", settings_.password});
  }
  if (settings_.database != 0) say({"SELECT", std::to_string(settings_.database)});
  if (!settings_.client_name.empty()) say({"CLIENT", "SETNAME", settings_.client_name});
  prelude_count_ = expected_;
  if (const std::shared_ptr<user> whose = user_.lock()) {
    for (const wire_command& each : whose->link_greeting()) {
      append_command(bytes, each, script_form::by_name);
      ++expected_;
    }
  }
  if (expected_ == 0) {
    say({"PING"});
    prelude_count_ = 1;
  }
  return bytes;
}

base::result<bool> link::hear_greeting() {
  bool more = true;
  while (more && said_.size() < expected_) {
    auto got = read(said_);
    if (!got) {
      // A server that throws us out says why first.
      const auto error = std::find_if(said_.begin(), said_.end(),
                                      [](const reply& each) { return each.is_error(); });
      if (error == said_.end()) return tl::unexpected(network_failure(got.error()));
      // Newer servers end the connection when somebody who has not logged in says this much.
      return tl::unexpected(
          refusal("the connection", *error,
                  error->error_word() == "NOAUTH" ? login_remedy : "ask who runs the server"));
    }
    more = *got;
  }
  if (said_.size() < expected_ || go_on()) return false;
  if (auto verdict = judge_greeting(); !verdict) return tl::unexpected(std::move(verdict.error()));
  return true;
}

bool link::go_on() {
  const std::shared_ptr<user> whose = user_.lock();
  if (!whose || std::exchange(gone_on_, true) || said_.size() > expected_) return false;
  const auto prelude_end = said_.begin() + static_cast<std::ptrdiff_t>(prelude_count_);
  // Who is not let in has nothing more to say.
  if (std::any_of(said_.begin(), prelude_end, [](const reply& each) { return each.is_error(); })) {
    return false;
  }
  std::string bytes;
  for (const wire_command& each :
       whose->link_greeting_goes_on(std::vector<reply>(prelude_end, said_.end()))) {
    append_command(bytes, each, script_form::in_full);
    ++expected_;
  }
  if (bytes.empty()) return false;
  say_more(bytes);
  return true;
}

base::result<std::monostate> link::judge_greeting() {
  if (said_.size() > expected_)
    return tl::unexpected(unavailable("it says more than it was asked"));
  std::size_t index = 0;
  const auto refused = [&](bool asked, std::string_view what,
                           std::string_view remedy) -> std::optional<base::failure> {
    if (!asked) return std::nullopt;
    const reply& said = said_[index++];
    if (!said.is_error()) return std::nullopt;
    return refusal(std::string(what), said, remedy);
  };
  const bool with_password = !settings_.password.empty();
  if (const auto why =
          refused(with_password || !settings_.user.empty(), "the login",
                  with_password
                      ? "check the user and the password"
                      : "the address names a user and no password (password_file, password_env)")) {
    return tl::unexpected(*why);
  }
  if (const auto why =
          refused(settings_.database != 0, "database " + std::to_string(settings_.database),
                  "the server's setting 'databases' says how many it has")) {
    return tl::unexpected(*why);
  }
  if (index < prelude_count_) {
    // The name is for people who look at the server; a user without the right to set it may lock.
    if (said_[index].is_error() && said_[index].error_word() != "NOPERM" &&
        said_[index].text.find("unknown") == std::string::npos) {
      return tl::unexpected(refusal("us", said_[index], login_remedy));
    }
  }
  said_.erase(said_.begin(), said_.begin() + static_cast<std::ptrdiff_t>(prelude_count_));
  const std::shared_ptr<user> whose = user_.lock();
  if (!whose) return std::monostate{};
  auto verdict = whose->link_greeted(said_);
  said_.clear();
  if (!verdict) {
    return base::fail(verdict.error().code, describe() + ": " + verdict.error().detail);
  }
  return verdict;
}

}  // namespace sallyport::backends::redis

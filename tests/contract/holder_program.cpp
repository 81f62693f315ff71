// contract_holder STORE NAME [--mode mutex|exclusive|shared|semaphore=N|election=VALUE] [--lease-ms
// N]                 [--renew automatic|never] [--label TEXT] [--heartbeat-ms N] [--request-ms N]
//
// A holder in a process of its own, for tests that kill, stop and continue it. Reads one command a
// line from stdin and answers each with one line on stdout; the first line, "ready", comes unasked.
//
//   acquire [MS]  acquired TOKEN | busy | error CODE       waits for MS milliseconds, or as long as
// it takes   try           acquired TOKEN | busy | error CODE   release       released |
// already_lost | unknown | not_held   token         TOKEN | not_held                         0:
// this grant carries none   valid         true | false   state         held | suspect | lost |
// released | not_held   remaining     milliseconds to the deadline, by the holder's own clock |
// not_held   hold          holding                                  then hears nothing more: only a
// signal ends it   exit          bye                                      releases and ends; so
// does the end of stdin

#include <sallyport/sallyport.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace {

using sallyport::lease;

struct settings {
  std::string store;
  std::string name;
  std::string mode = "mutex";
  sallyport::lock_options options;
  sallyport::client_options client;
};

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw std::invalid_argument("not a number: " + std::string(text));
  }
  return value;
}

settings read_arguments(int count, char** arguments) {
  if (count < 3)
    throw std::invalid_argument("usage: contract_holder STORE NAME [--OPTION VALUE]...");
  settings read;
  read.store = arguments[1];
  read.name = arguments[2];
  for (int i = 3; i < count; i += 2) {
    const std::string_view option = arguments[i];
    if (i + 1 == count) throw std::invalid_argument(std::string(option) + " needs a value");
    const std::string_view value = arguments[i + 1];
    if (option == "--mode") {
      read.mode = value;
    } else if (option == "--lease-ms") {
      read.options.lease_length = std::chrono::milliseconds{number(value)};
    } else if (option == "--renew") {
      read.options.renew =
          value == "never" ? sallyport::renewal::never : sallyport::renewal::automatic;
    } else if (option == "--heartbeat-ms") {
      read.client.heartbeat = std::chrono::milliseconds{number(value)};
    } else if (option == "--request-ms") {
      read.client.request_timeout = std::chrono::milliseconds{number(value)};
    } else if (option == "--label") {
      read.client.label = value;
    } else {
      throw std::invalid_argument("unknown option: " + std::string(option));
    }
  }
  return read;
}

/// One way to ask for the lock: empty time: wait as long as it takes.
using asker = std::function<std::optional<lease>(std::optional<std::chrono::milliseconds>)>;

constexpr auto for_ever = std::chrono::hours{24 * 365};

template <class Lock>
asker ask_plainly(std::shared_ptr<Lock> lock) {
  return [lock](auto wait) { return lock->try_acquire_for(wait.value_or(for_ever)); };
}

asker make_asker(const settings& how) {
  const auto store = sallyport::client::open(how.store, how.client);
  const std::string_view mode = how.mode;
  const auto parameter = mode.substr(std::min(mode.find('=') + 1, mode.size()));
  if (mode == "mutex") {
    return ask_plainly(std::make_shared<sallyport::mutex>(store, how.name, how.options));
  }
  if (mode == "exclusive") {
    return ask_plainly(std::make_shared<sallyport::shared_mutex>(store, how.name, how.options));
  }
  if (mode == "shared") {
    auto lock = std::make_shared<sallyport::shared_mutex>(store, how.name, how.options);
    return [lock](auto wait) { return lock->try_acquire_shared_for(wait.value_or(for_ever)); };
  }
  if (mode.starts_with("semaphore=")) {
    const auto permits = static_cast<std::uint32_t>(number(parameter));
    return ask_plainly(
        std::make_shared<sallyport::semaphore>(store, how.name, permits, how.options));
  }
  if (mode.starts_with("election=")) {
    auto race = std::make_shared<sallyport::election>(store, how.name, how.options);
    return [race, value = std::string(parameter)](auto wait) {
      return race->try_campaign_for(value, wait.value_or(for_ever));
    };
  }
  throw std::invalid_argument("unknown mode: " + how.mode);
}

std::uint64_t token_of(const lease& held) { return held.fenced() ? held.token().value() : 0; }

std::string word_for(sallyport::release_result result) {
  switch (result) {
    case sallyport::release_result::released:
      return "released";
    case sallyport::release_result::already_lost:
      return "already_lost";
    case sallyport::release_result::unknown:
      return "unknown";
  }
  return "unknown";
}

class holder {
 public:
  explicit holder(asker ask) : ask_(std::move(ask)) {}

  /// The answer to one command; empty: the program is to end.
  std::string answer(const std::string& line) {
    const auto blank = line.find(' ');
    const std::string word = line.substr(0, blank);
    if (word == "acquire") {
      std::optional<std::chrono::milliseconds> wait;
      if (blank != std::string::npos)
        wait = std::chrono::milliseconds{number(std::string_view(line).substr(blank + 1))};
      return acquire(wait);
    }
    if (word == "try") return acquire(std::chrono::milliseconds{0});
    if (word == "exit") return "";
    if (!held_) return word == "valid" ? "false" : "not_held";
    if (word == "release") return word_for(held_->release());
    if (word == "token") return std::to_string(token_of(*held_));
    if (word == "valid") return held_->valid() ? "true" : "false";
    if (word == "state") return std::string(to_string(held_->state()));
    if (word == "remaining") {
      const auto left = held_->deadline() - sallyport::lease_clock::now();
      return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
    }
    return "error unknown command";
  }

 private:
  std::string acquire(std::optional<std::chrono::milliseconds> wait) {
    held_.reset();
    try {
      held_ = ask_(wait);
    } catch (const sallyport::lock_error& error) {
      return "error " + std::to_string(error.code().value()) + " " + error.what();
    }
    return held_ ? "acquired " + std::to_string(token_of(*held_)) : "busy";
  }

  asker ask_;
  std::optional<lease> held_;
};

}  // namespace

int main(int count, char** arguments) {
  try {
    holder self{make_asker(read_arguments(count, arguments))};
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "hold") {
        std::cout << "holding" << std::endl;
        for (;;) ::pause();
      }
      const std::string reply = self.answer(line);
      if (reply.empty()) break;
      std::cout << reply << std::endl;
    }
    std::cout << "bye" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cout << "error " << error.what() << std::endl;
    return 1;
  }
}

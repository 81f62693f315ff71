// A candidate of Sallyport, told what to do over its standard input: one command a line, one answer a
// line. usage: interop_candidate STORE NAME LEASE_SECONDS
//
//   campaign VALUE  -> leads TOKEN        (waits)
//   proclaim VALUE  -> proclaimed
//   resign          -> released
//   leader          -> leader VALUE | nobody
//   follow VALUE    -> followed VALUE     (waits until an observer has seen it)

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>

namespace {

/// The last that was heard of the leader.
class news {
 public:
  void tell(const std::optional<sallyport::leader_info>& leader) {
    const std::scoped_lock lock{mutex_};
    last_ = leader ? leader->value : "";
    changed_.notify_all();
  }
  void wait_for(const std::string& value) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return last_ == value; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string last_;
};

std::string obey(sallyport::election& post, std::optional<sallyport::lease>& leads, news& heard,
                 const std::string& line) {
  const std::size_t blank = line.find(' ');
  const std::string verb = line.substr(0, blank);
  const std::string rest = blank == std::string::npos ? "" : line.substr(blank + 1);
  if (verb == "campaign") {
    leads.emplace(post.campaign(rest));
    return "leads " + std::to_string(leads->token().value());
  }
  if (verb == "proclaim") {
    post.proclaim(leads.value(), rest);
    return "proclaimed";
  }
  if (verb == "resign") return std::string(to_string(leads.value().release()));
  if (verb == "leader") {
    const auto found = post.leader();
    return found ? "leader " + found->value : "nobody";
  }
  if (verb == "follow") {
    heard.wait_for(rest);
    return "followed " + rest;
  }
  return "not understood: " + line;
}

int run(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: interop_candidate STORE NAME LEASE_SECONDS\n";
    return 64;
  }
  const auto store = sallyport::client::open(words[1]);
  sallyport::election post{
      store, std::string(words[2]), {.lease_length = std::chrono::seconds{std::stoi(words[3])}}};
  news heard;
  const auto watching = post.observe([&](const auto& leader) { heard.tell(leader); });
  std::optional<sallyport::lease> leads;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << obey(post, leads, heard, line) << std::endl;
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}

// One leader at a time, and everybody can see which, and what it says.

#include <sallyport/sallyport.hpp>

#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>

namespace {

/// What the observer has heard last.
class news {
 public:
  void tell(const std::optional<sallyport::leader_info>& leader) {
    const std::scoped_lock lock{mutex_};
    last_ = leader ? leader->value : "nobody";
    std::cout << "the leader is " << last_ << '\n';
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

}  // namespace

int main() {
  // Two clients of one store stand for two processes.
  const auto one = sallyport::client::open("memory:leader-example", {.label = "one"});
  const auto two = sallyport::client::open("memory:leader-example", {.label = "two"});
  sallyport::election ours{one, "scheduler"};
  sallyport::election theirs{two, "scheduler"};

  news heard;
  const auto watching = theirs.observe([&](const auto& leader) { heard.tell(leader); });
  heard.wait_for("nobody");

  auto leads = ours.campaign("http://one:8080");
  heard.wait_for("http://one:8080");
  if (theirs.try_campaign("http://two:8080")) return EXIT_FAILURE;  // there is one already

  ours.proclaim(leads, "http://one:8080 (draining)");
  heard.wait_for("http://one:8080 (draining)");

  leads.release();
  const auto successor = theirs.campaign("http://two:8080");
  heard.wait_for("http://two:8080");

  std::cout << "terms " << leads.token().value() << " and " << successor.token().value() << '\n';
  return successor.token() > leads.token() ? EXIT_SUCCESS : EXIT_FAILURE;
}

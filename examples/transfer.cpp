// Two accounts at once: all or nothing, under one deadline, and never a deadlock.

#include <sallyport/sallyport.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

using namespace std::chrono_literals;

int main() {
  std::array<int, 2> balance{1000, 1000};
  std::array<bool, 2> complete{true, true};

  // One bank pays there, the other back: each names its own account first. A client each, as two
  // processes would have: what the caller's own client holds is refused, not waited for.
  const auto pay = [&](const sallyport::client& bank, std::size_t payer) {
    constexpr std::array<const char*, 2> accounts{"accounts/1", "accounts/2"};
    sallyport::mutex from{bank, accounts[payer]};
    sallyport::mutex to{bank, accounts[1 - payer]};
    for (int i = 0; i < 50; ++i) {
      const auto both = sallyport::try_lock_all_for(20s, from, to);
      if (!both) {
        complete[payer] = false;
        return;
      }
      balance[payer] -= 1;
      balance[1 - payer] += 1;
    }
  };
  const auto one = sallyport::client::open("memory:transfer-example");
  const auto two = sallyport::client::open("memory:transfer-example");
  std::thread there([&] { pay(one, 0); });
  std::thread back([&] { pay(two, 1); });
  there.join();
  back.join();
  std::cout << "balances " << balance[0] << " and " << balance[1] << '\n';

  // Naming an account twice would wait for itself for ever; it is refused instead.
  sallyport::mutex first{one, "accounts/1"};
  try {
    const auto never = sallyport::try_lock_all_for(1s, first, first);
    return EXIT_FAILURE;
  } catch (const sallyport::lock_error& error) {
    std::cout << error.what() << '\n';
    if (error.code() != sallyport::errc::would_deadlock) return EXIT_FAILURE;
  }
  return complete[0] && complete[1] && balance[0] == 1000 && balance[1] == 1000 ? EXIT_SUCCESS
                                                                                : EXIT_FAILURE;
}

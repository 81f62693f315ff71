#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

// Takes a lock that nobody else wants and gives it back, for tools that count from outside:
//   costs_pairs ADDRESS PAIRS

namespace {

constexpr int warm_up = 50;

void take_and_give_back(sallyport::mutex& lock, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    if (lock.acquire().release() != sallyport::release_result::released) std::abort();
  }
}

}  // namespace

/// What is counted: callgrind knows it by this name, so it is never inlined.
extern "C" [[gnu::noinline]] void counted_pairs(sallyport::mutex& lock, int pairs) {
  take_and_give_back(lock, pairs);
}

int main(int count, char** words) {
  if (count != 3) return 64;
  try {
    sallyport::mutex lock{sallyport::client::open(words[1]), "door"};
    take_and_give_back(lock, warm_up);
    counted_pairs(lock, std::atoi(words[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "costs_pairs: %s\n", error.what());
    return 1;
  }
  return 0;
}

#include "tests/contract/kit/contract_test.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

// Promise 13: one name is one kind of lock at a time.
namespace sallyport::contract {
namespace {

/// Tries a name as one kind: holds it while the returned object lives.
struct kind_case {
  lock_kind kind;
  std::function<std::shared_ptr<void>(const client&, const lock_name&)> try_hold;
};

/// Keeps lock and lease alive together.
template <class Lock>
std::shared_ptr<void> hold(std::unique_ptr<Lock> lock, std::optional<lease> held) {
  if (!held) return nullptr;
  using pair = std::pair<std::unique_ptr<Lock>, lease>;
  return std::make_shared<pair>(std::move(lock), std::move(*held));
}

class OneKind : public contract_test {
 protected:
  [[nodiscard]] static std::vector<kind_case> kinds() {
    std::vector<kind_case> all;
    all.push_back({lock_kind::mutex, [](const client& store, const lock_name& name) {
                     auto lock = std::make_unique<mutex>(store, name, lasting());
                     auto held = lock->try_acquire();
                     return hold(std::move(lock), std::move(held));
                   }});
    if (claims().shared_locks) {
      all.push_back({lock_kind::shared_mutex, [](const client& store, const lock_name& name) {
                       auto lock = std::make_unique<shared_mutex>(store, name, lasting());
                       auto held = lock->try_acquire_shared();
                       return hold(std::move(lock), std::move(held));
                     }});
    }
    if (claims().semaphores) {
      all.push_back({lock_kind::semaphore, [](const client& store, const lock_name& name) {
                       auto lock = std::make_unique<semaphore>(store, name, 5, lasting());
                       auto held = lock->try_acquire();
                       return hold(std::move(lock), std::move(held));
                     }});
    }
    if (claims().elections) {
      all.push_back({lock_kind::election, [](const client& store, const lock_name& name) {
                       auto lock = std::make_unique<election>(store, name, lasting());
                       auto held = lock->try_campaign("me");
                       return hold(std::move(lock), std::move(held));
                     }});
    }
    return all;
  }
};

TEST_F(OneKind, ANameInUseAsAnotherKindIsRefusedForAllPairs) {
  const auto one = open("one");
  const auto two = open("two");
  for (const kind_case& used : kinds()) {
    for (const kind_case& wanted : kinds()) {
      if (used.kind == wanted.kind) continue;
      const std::string name =
          std::string(to_string(used.kind)) + " as " + std::string(to_string(wanted.kind));
      SCOPED_TRACE(name);
      auto holding = used.try_hold(one, name);
      ASSERT_TRUE(holding);

      const auto by_other = error_of([&] { (void)wanted.try_hold(two, name); });
      const auto by_same = error_of([&] { (void)wanted.try_hold(one, name); });
      if (claims().tells_kind) {
        EXPECT_EQ(by_other, errc::wrong_kind);
        EXPECT_EQ(by_same, errc::wrong_kind);
      }
      holding.reset();
      EXPECT_TRUE(becomes_free(one, name));
      EXPECT_TRUE(wanted.try_hold(two, name)) << "a free name may change its kind";
    }
  }
}

TEST_F(OneKind, WhoSaysTheKind) {
  const auto client = open();
  for (const kind_case& used : kinds()) {
    const auto holding = used.try_hold(client, "name");
    ASSERT_TRUE(holding);
    EXPECT_EQ(client.who("name").value().kind, used.kind);
  }
}

TEST_F(OneKind, AWaitIsRefusedToo) {
  const auto client = open();
  if (!claims().shared_locks || !claims().tells_kind) {
    EXPECT_TRUE(kinds().size() < 4 || !claims().tells_kind);
    return;
  }
  mutex door{client, "door", lasting()};
  shared_mutex page{open("other"), "door", lasting()};
  const auto held = door.acquire();

  EXPECT_EQ(error_of([&] { (void)page.acquire_shared(); }), errc::wrong_kind);
  EXPECT_EQ(error_of([&] { (void)page.try_acquire_for(patience); }), errc::wrong_kind);
  EXPECT_EQ(error_of([&] { page.lock(); }), errc::wrong_kind);
}

TEST_F(OneKind, TheStoredNumberOfPermitsWinsAndTheOtherIsTold) {
  const auto client = open();
  if (!claims().semaphores) {
    EXPECT_EQ(error_of([&] { semaphore{client, "pool", 2}; }), errc::not_supported);
    return;
  }
  semaphore first{client, "pool", 2, lasting()};
  semaphore second{open("other"), "pool", 5, lasting()};
  EXPECT_EQ(second.permits(), 5U);

  auto one = first.try_acquire();
  auto two = second.try_acquire();
  ASSERT_TRUE(one && two);

  EXPECT_EQ(first.permits(), 2U);
  EXPECT_EQ(second.permits(), 2U);
  EXPECT_FALSE(second.try_acquire());
  EXPECT_EQ(client.who("pool").value().permits, 2U);

  one.reset();
  two.reset();
  ASSERT_TRUE(becomes_free(client, "pool"));
  const auto anew = second.try_acquire();
  EXPECT_TRUE(anew);
  EXPECT_EQ(second.permits(), 5U) << "nobody was there: the first to come decides";
}

}  // namespace
}  // namespace sallyport::contract

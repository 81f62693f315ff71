#include "cli/show.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace sallyport::cli {
namespace {

using namespace std::chrono_literals;

lock_info held_lock() {
  lock_info lock;
  lock.name = "orders/42";
  lock.holders.push_back({.token = fencing_token{17},
                          .host = "web1",
                          .pid = 4711,
                          .label = "back\"up",
                          .value = "",
                          .held_for = 3200ms,
                          .remaining = 26800ms});
  lock.waiters.push_back({.host = "web2", .pid = 4712, .label = "deploy", .waited = 1200ms});
  return lock;
}

TEST(Show, AlignsTheHoldersAndTheQueue) {
  EXPECT_EQ(who_text(held_lock()),
            "orders/42: mutex, held, 1 waiting\n"
            "HOLDER  TOKEN  PID   HOST  LABEL    MODE       HELD FOR  LEFT\n"
            "1       17     4711  web1  back\"up  exclusive  3.2 s     26.8 s\n"
            "WAITER  PID   HOST  LABEL   MODE       WAITED\n"
            "1       4712  web2  deploy  exclusive  1.2 s\n");
}

TEST(Show, SaysHowManyWaitInEachProcess) {
  lock_info lock = held_lock();
  lock.holders.front().local_waiters = 2;
  lock.waiters.front().local_waiters = 3;

  EXPECT_EQ(who_text(lock),
            "orders/42: mutex, held, 6 waiting\n"
            "HOLDER  TOKEN  PID   HOST  LABEL    MODE       HELD FOR  LEFT    WAITING\n"
            "1       17     4711  web1  back\"up  exclusive  3.2 s     26.8 s  2\n"
            "WAITER  PID   HOST  LABEL   MODE       WAITED  WAITING\n"
            "1       4712  web2  deploy  exclusive  1.2 s   4\n");
}

TEST(Show, ListsOneLineALock) {
  EXPECT_EQ(list_text({held_lock()}),
            "NAME       KIND   HOLDERS  WAITING  TOKEN  PID   HOST  LABEL    HELD FOR  LEFT\n"
            "orders/42  mutex  1        1        17     4711  web1  back\"up  3.2 s     26.8 s\n");
}

TEST(Show, TellsThatABrokenLockIsClosed) {
  lock_info lock;
  lock.name = "x";
  lock.closed_for = 5s;

  EXPECT_EQ(who_text(lock),
            "x: mutex, not held, 0 waiting\n"
            "closed for 5.0 s more: a grant was broken, and its holder may not know yet\n");
}

TEST(Show, WritesTokensAsStrings) {
  json_writer made;

  write_json(made, held_lock());

  EXPECT_EQ(made.text(),
            R"({"name":"orders/42","kind":"mutex","permits":1,"holders":[{"token":"17",)"
            R"("mode":"exclusive","host":"web1","pid":4711,"label":"back\"up","held_for_ms":3200,)"
            R"("remaining_ms":26800,"local_waiters":0,"claimed":true}],"waiters":[{"position":1,)"
            R"("mode":"exclusive","host":"web2","pid":4712,"label":"deploy","waited_ms":1200,)"
            R"("local_waiters":0}],"waiting":1,"closed_for_ms":0})");
}

}  // namespace
}  // namespace sallyport::cli

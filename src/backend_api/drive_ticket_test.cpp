#include "backend_api/drive_ticket.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

namespace sallyport::backend_api {
namespace {

class counting_waker final : public drive_waker {
 public:
  void wake() noexcept override { ++wakes; }

  int wakes = 0;  // guarded by the ticket's mutex, or by the end of all threads
};

TEST(DriveTicket, IsNotFinishedAtFirst) {
  const drive_ticket ticket;

  EXPECT_FALSE(ticket.finished());
}

TEST(DriveTicket, StaysFinished) {
  drive_ticket ticket;

  ticket.finish();
  EXPECT_TRUE(ticket.finished());
  ticket.finish();
  EXPECT_TRUE(ticket.finished());
}

TEST(DriveTicket, DoesNotKeepAnybodyWaitingOnceFinished) {
  drive_ticket ticket;
  ticket.finish();

  ticket.wait();
  ticket.wait();

  EXPECT_TRUE(ticket.finished());
}

TEST(DriveTicket, WakesTheWaiterWhenAnotherThreadFinishesIt) {
  drive_ticket ticket;

  std::thread finisher{[&ticket] { ticket.finish(); }};
  ticket.wait();

  EXPECT_TRUE(ticket.finished());
  finisher.join();
}

TEST(DriveTicket, WakesTheDriverWhenItIsFinished) {
  drive_ticket ticket;
  counting_waker waker;
  ASSERT_TRUE(ticket.begin_drive(waker));
  EXPECT_EQ(waker.wakes, 0);

  ticket.finish();

  EXPECT_EQ(waker.wakes, 1);
  ticket.end_drive();
}

TEST(DriveTicket, TakesNoDriverOnceFinished) {
  drive_ticket ticket;
  counting_waker waker;
  ticket.finish();

  EXPECT_FALSE(ticket.begin_drive(waker));

  ticket.finish();
  EXPECT_EQ(waker.wakes, 0) << "was registered all the same";
}

TEST(DriveTicket, ForgetsADriverThatStopped) {
  drive_ticket ticket;
  counting_waker waker;
  ASSERT_TRUE(ticket.begin_drive(waker));

  ticket.end_drive();
  ticket.finish();

  EXPECT_EQ(waker.wakes, 0);
}

TEST(DriveTicket, TakesTheNextDriverAfterOneStopped) {
  drive_ticket ticket;
  counting_waker first;
  counting_waker second;
  ASSERT_TRUE(ticket.begin_drive(first));
  ticket.end_drive();

  ASSERT_TRUE(ticket.begin_drive(second));
  ticket.finish();

  EXPECT_EQ(first.wakes, 0);
  EXPECT_EQ(second.wakes, 1);
  ticket.end_drive();
}

TEST(DriveTicket, AllowsTheEndOfADriveThatWasRefused) {
  drive_ticket ticket;
  counting_waker waker;
  ticket.finish();
  ASSERT_FALSE(ticket.begin_drive(waker));

  ticket.end_drive();

  EXPECT_TRUE(ticket.finished());
}

TEST(DriveTicketDeathTest, RefusesTwoDriversAtOnce) {
  drive_ticket ticket;
  counting_waker waker;
  ASSERT_TRUE(ticket.begin_drive(waker));

  EXPECT_DEATH(static_cast<void>(ticket.begin_drive(waker)), "broken invariant");
  ticket.end_drive();
}

/// Hands tickets to one other thread, which finishes them as fast as it can.
class finishing_thread {
 public:
  ~finishing_thread() { finish(nullptr); }

  void finish(drive_ticket* ticket) {
    next_.store(ticket, std::memory_order_release);
    given_.fetch_add(1);
    given_.notify_one();
  }

 private:
  void run() {
    for (int taken = 0;; ++taken) {
      given_.wait(taken);
      drive_ticket* const ticket = next_.load(std::memory_order_acquire);
      if (ticket == nullptr) return;
      ticket->finish();
    }
  }

  std::atomic<drive_ticket*> next_ = nullptr;
  std::atomic<int> given_ = 0;
  std::jthread thread_{[this] { run(); }};
};

// The finisher may still be on its way out of finish() when the waiter goes on; the sanitizers
// watch.
TEST(DriveTicket, MayBeDestroyedAsSoonAsItsWaiterWentOn) {
  finishing_thread other;

  for (int round = 0; round < 3'000; ++round) {
    const auto ticket = std::make_unique<drive_ticket>();
    other.finish(ticket.get());
    ticket->wait();
  }
}

TEST(DriveTicket, LetsItsDriverTakeTheWakerAwayWhileAnotherThreadFinishesIt) {
  finishing_thread other;

  for (int round = 0; round < 3'000; ++round) {
    const auto ticket = std::make_unique<drive_ticket>();
    auto waker = std::make_unique<counting_waker>();
    other.finish(ticket.get());
    const bool registered = ticket->begin_drive(*waker);
    ticket->end_drive();
    EXPECT_LE(waker->wakes, registered ? 1 : 0);
    waker.reset();
    ticket->wait();
  }
}

TEST(DriveTicket, EitherRefusesOrWakesADriverThatComesTogetherWithTheFinish) {
  finishing_thread other;

  for (int round = 0; round < 3'000; ++round) {
    const auto ticket = std::make_unique<drive_ticket>();
    counting_waker waker;
    other.finish(ticket.get());
    const bool registered = ticket->begin_drive(waker);
    ticket->wait();
    ticket->end_drive();
    ASSERT_EQ(waker.wakes, registered ? 1 : 0);
  }
}

}  // namespace
}  // namespace sallyport::backend_api

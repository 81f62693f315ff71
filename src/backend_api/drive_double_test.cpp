#include "backend_api/backend.hpp"
#include "backend_api/drive_ticket.hpp"
#include "base/check.hpp"
#include "base/mutex.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <poll.h>
#include <set>
#include <span>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// Proves that drive() can be kept as it is written, with the smallest client of a connection that
// keeps it: whoever blocks reads the socket itself; of several, one leads and the others sleep
// until they are served or lead.
namespace sallyport::backend_api {
namespace {

using namespace std::chrono_literals;

constexpr time_point never = time_point::max();

class descriptor {
 public:
  explicit descriptor(int number) : number_(number) { SALLYPORT_CHECK(number >= 0); }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() { close(number_); }

  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

/// A request and its answer are the same eight bytes.
using request_number = std::uint64_t;

std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{-1, -1};
  SALLYPORT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return ends;
}

void write_number(const descriptor& where, request_number number) {
  SALLYPORT_CHECK(write(where.number(), &number, sizeof number) == sizeof number);
}

/// False at the end of the stream.
bool read_number(const descriptor& where, request_number& number) {
  const ssize_t got = recv(where.number(), &number, sizeof number, MSG_WAITALL);
  SALLYPORT_CHECK(got == sizeof number || got == 0);
  return got != 0;
}

/// The driving side of one connection.
/// Thread safety: all members.
class driven_connection {
 public:
  explicit driven_connection(int socket) : socket_(socket) {}

  /// Sends a request; its answer finishes the ticket.
  void request(request_number number, drive_ticket& ticket) {
    {
      const base::mutex_lock held{mutex_};
      pending_.emplace(number, &ticket);
      touched_by_.insert(std::this_thread::get_id());
    }
    write_number(socket_, number);
  }

  /// The ticket is not touched any more after this returned. False: its answer had come.
  bool forget(request_number number) {
    const base::mutex_lock held{mutex_};
    return pending_.erase(number) == 1;
  }

  drive_outcome drive(drive_ticket& ticket, time_point deadline) {
    seat mine;
    if (!ticket.begin_drive(mine)) return drive_outcome::finished;
    sit_down(mine);
    std::optional<drive_outcome> outcome;
    while (!outcome) {
      if (ticket.finished()) {
        outcome = drive_outcome::finished;
      } else if (deadline_passed(deadline)) {
        outcome = drive_outcome::deadline_passed;
      } else if (leads(mine)) {
        serve(mine);
      } else {
        mine.rest({});
      }
    }
    ticket.end_drive();
    stand_up(mine);
    return *outcome;
  }

  /// Time is moved by hand; whoever drives looks at it again.
  void move_time_to(time_point now) {
    const base::mutex_lock held{mutex_};
    now_ = now;
    for (seat* each : seats_) each->wake();
  }

  /// Blocks until so many callers are inside drive().
  void wait_for_drivers(std::size_t count) {
    const base::mutex_lock held{mutex_};
    std::unique_lock<std::mutex> native{mutex_.native(), std::adopt_lock};
    while (seats_.size() != count) seats_changed_.wait(native);
    native.release();
  }

  /// The threads that read or wrote the client's end of the socket.
  std::set<std::thread::id> touched_by() {
    const base::mutex_lock held{mutex_};
    return touched_by_;
  }
  std::map<std::thread::id, int> reads() {
    const base::mutex_lock held{mutex_};
    return reads_;
  }

 private:
  /// Where one driving caller rests. A wake-up before it rests is not lost: the event stays.
  class seat final : public drive_waker {
   public:
    void wake() noexcept override {
      const std::uint64_t one = 1;
      SALLYPORT_CHECK(write(event_.number(), &one, sizeof one) == sizeof one);
    }

    /// Until woken, or until `socket` (if any) can be read; true: it can.
    bool rest(std::optional<int> socket) {
      std::array<pollfd, 2> watched{
          {{event_.number(), POLLIN, 0}, {socket.value_or(-1), POLLIN, 0}}};
      int ready = 0;
      do {
        ready = poll(watched.data(), watched.size(), -1);
      } while (ready < 0 && errno == EINTR);
      SALLYPORT_CHECK(ready > 0);
      if (watched[0].revents != 0) {
        std::uint64_t wakes = 0;
        SALLYPORT_CHECK(read(event_.number(), &wakes, sizeof wakes) == sizeof wakes);
      }
      return watched[1].revents != 0;
    }

   private:
    descriptor event_{eventfd(0, EFD_CLOEXEC)};
  };

  void sit_down(seat& mine) {
    const base::mutex_lock held{mutex_};
    seats_.push_back(&mine);
    seats_changed_.notify_all();
  }

  /// The front seat leads; it hands leadership on by leaving.
  void stand_up(seat& mine) {
    const base::mutex_lock held{mutex_};
    const bool led = seats_.front() == &mine;
    seats_.erase(std::find(seats_.begin(), seats_.end(), &mine));
    if (led && !seats_.empty()) seats_.front()->wake();
    seats_changed_.notify_all();
  }

  bool leads(const seat& mine) {
    const base::mutex_lock held{mutex_};
    return seats_.front() == &mine;
  }

  bool deadline_passed(time_point deadline) {
    const base::mutex_lock held{mutex_};
    return now_ >= deadline;
  }

  /// Only the leader is here, so reads need no lock of their own.
  void serve(seat& mine) {
    if (!mine.rest(socket_.number())) return;
    request_number number = 0;
    SALLYPORT_CHECK(read_number(socket_, number));
    const base::mutex_lock held{mutex_};
    touched_by_.insert(std::this_thread::get_id());
    ++reads_[std::this_thread::get_id()];
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;
    // Under the mutex: a caller whose deadline came calls forget() before it destroys its ticket.
    found->second->finish();
    pending_.erase(found);
  }

  descriptor socket_;
  base::mutex mutex_;
  std::condition_variable seats_changed_;
  std::map<request_number, drive_ticket*> pending_ SALLYPORT_GUARDED_BY(mutex_);
  std::vector<seat*> seats_ SALLYPORT_GUARDED_BY(mutex_);
  std::set<std::thread::id> touched_by_ SALLYPORT_GUARDED_BY(mutex_);
  std::map<std::thread::id, int> reads_ SALLYPORT_GUARDED_BY(mutex_);
  time_point now_ SALLYPORT_GUARDED_BY(mutex_){};
};

/// A connection whose other end the test holds: it answers when it likes.
class DriveDouble : public testing::Test {
 protected:
  void answer(request_number number) { write_number(server_, number); }

  /// The number of the next request that arrived.
  request_number next_request() {
    request_number number = 0;
    SALLYPORT_CHECK(read_number(server_, number));
    return number;
  }

 private:
  std::array<int, 2> ends_ = socket_pair();

 protected:
  descriptor server_{ends_[0]};
  driven_connection connection_{ends_[1]};
};

/// A connection to a thread that answers everything at once.
class DriveDoubleWithServer : public DriveDouble {
 protected:
  ~DriveDoubleWithServer() override { shutdown(server_.number(), SHUT_RDWR); }

 private:
  void serve() {
    request_number number = 0;
    while (read_number(server_, number)) {
      // The test may be over: then nobody reads.
      if (send(server_.number(), &number, sizeof number, MSG_NOSIGNAL) < 0) return;
    }
  }

  std::jthread thread_{[this] { serve(); }};
};

TEST_F(DriveDoubleWithServer, LetsALoneCallerDoItsOwnInputAndOutput) {
  for (request_number number = 1; number <= 1'000; ++number) {
    drive_ticket ticket;
    connection_.request(number, ticket);
    ASSERT_EQ(connection_.drive(ticket, never), drive_outcome::finished);
  }

  const std::thread::id myself = std::this_thread::get_id();
  EXPECT_EQ(connection_.touched_by(), (std::set<std::thread::id>{myself}));
  EXPECT_EQ(connection_.reads(), (std::map<std::thread::id, int>{{myself, 1'000}}));
}

TEST_F(DriveDouble, ReturnsAtOnceWithATicketThatIsFinished) {
  drive_ticket ticket;
  ticket.finish();

  EXPECT_EQ(connection_.drive(ticket, never), drive_outcome::finished);

  EXPECT_TRUE(connection_.touched_by().empty());
}

TEST_F(DriveDouble, PrefersFinishedToADeadlineThatHasPassed) {
  drive_ticket ticket;
  ticket.finish();

  EXPECT_EQ(connection_.drive(ticket, time_point{}), drive_outcome::finished);
}

TEST_F(DriveDouble, ReturnsAtOnceWhenTheDeadlineHasCome) {
  drive_ticket ticket;
  connection_.move_time_to(time_point{5s});
  connection_.request(1, ticket);

  EXPECT_EQ(connection_.drive(ticket, time_point{5s}), drive_outcome::deadline_passed);

  EXPECT_TRUE(connection_.forget(1));
}

TEST_F(DriveDouble, HoldsADeadlineThatComesWhileItDrives) {
  drive_ticket ticket;
  connection_.request(1, ticket);
  std::thread clock{[this] {
    connection_.wait_for_drivers(1);
    connection_.move_time_to(time_point{4s});
    connection_.move_time_to(time_point{5s});
  }};

  EXPECT_EQ(connection_.drive(ticket, time_point{5s}), drive_outcome::deadline_passed);

  clock.join();
  EXPECT_FALSE(ticket.finished());
  EXPECT_TRUE(connection_.forget(1));
}

TEST_F(DriveDouble, DrivesTheSameTicketAgainAfterADeadline) {
  drive_ticket ticket;
  connection_.request(1, ticket);
  ASSERT_EQ(connection_.drive(ticket, time_point{}), drive_outcome::deadline_passed);

  answer(next_request());

  EXPECT_EQ(connection_.drive(ticket, never), drive_outcome::finished);
}

TEST_F(DriveDouble, IsInterruptedWhenAnotherThreadFinishesTheTicket) {
  drive_ticket ticket;
  connection_.request(1, ticket);
  std::thread canceller{[this, &ticket] {
    connection_.wait_for_drivers(1);
    ticket.finish();
  }};

  EXPECT_EQ(connection_.drive(ticket, never), drive_outcome::finished);

  canceller.join();
  EXPECT_TRUE(connection_.forget(1)) << "no answer came, yet it was counted as one";
  EXPECT_TRUE(connection_.reads().empty());
}

TEST_F(DriveDouble, LetsTheLeaderReadForAFollower) {
  drive_ticket leaders;
  drive_ticket followers;
  std::thread leader{[&] { connection_.drive(leaders, never); }};
  connection_.wait_for_drivers(1);
  const std::thread::id leading = leader.get_id();
  connection_.request(2, followers);

  answer(next_request());
  EXPECT_EQ(connection_.drive(followers, never), drive_outcome::finished);

  EXPECT_EQ(connection_.reads(), (std::map<std::thread::id, int>{{leading, 1}}));
  leaders.finish();
  leader.join();
}

TEST_F(DriveDouble, HandsLeadershipOnWhenTheLeaderIsServed) {
  drive_ticket leaders;
  drive_ticket followers;
  connection_.request(1, leaders);
  connection_.request(2, followers);
  std::thread leader{[&] { connection_.drive(leaders, never); }};
  connection_.wait_for_drivers(1);
  std::thread follower{[&] { connection_.drive(followers, never); }};
  connection_.wait_for_drivers(2);
  const std::thread::id first = leader.get_id();
  const std::thread::id second = follower.get_id();

  answer(1);
  leader.join();
  answer(2);
  follower.join();

  EXPECT_EQ(connection_.reads(), (std::map<std::thread::id, int>{{first, 1}, {second, 1}}));
}

TEST_F(DriveDouble, HandsLeadershipOnWhenTheLeaderIsCancelled) {
  drive_ticket leaders;
  drive_ticket followers;
  connection_.request(2, followers);
  std::thread leader{[&] { connection_.drive(leaders, never); }};
  connection_.wait_for_drivers(1);
  std::thread follower{[&] { connection_.drive(followers, never); }};
  connection_.wait_for_drivers(2);

  leaders.finish();
  leader.join();
  answer(2);
  follower.join();

  EXPECT_TRUE(followers.finished());
}

TEST_F(DriveDouble, HandsLeadershipOnWhenTheLeadersDeadlineComes) {
  drive_ticket leaders;
  drive_ticket followers;
  connection_.request(2, followers);
  drive_outcome outcome = drive_outcome::not_driven;
  std::thread leader{[&] { outcome = connection_.drive(leaders, time_point{5s}); }};
  connection_.wait_for_drivers(1);
  std::thread follower{[&] { connection_.drive(followers, never); }};
  connection_.wait_for_drivers(2);

  connection_.move_time_to(time_point{5s});
  leader.join();
  answer(2);
  follower.join();

  EXPECT_EQ(outcome, drive_outcome::deadline_passed);
  EXPECT_TRUE(followers.finished());
}

TEST_F(DriveDouble, HoldsTheDeadlineOfAFollower) {
  drive_ticket leaders;
  drive_ticket followers;
  std::thread leader{[&] { connection_.drive(leaders, never); }};
  connection_.wait_for_drivers(1);
  std::thread clock{[this] {
    connection_.wait_for_drivers(2);
    connection_.move_time_to(time_point{5s});
  }};

  EXPECT_EQ(connection_.drive(followers, time_point{5s}), drive_outcome::deadline_passed);

  clock.join();
  leaders.finish();
  leader.join();
}

TEST_F(DriveDouble, InterruptsAFollowerThatIsCancelledWithoutTheLeader) {
  drive_ticket leaders;
  drive_ticket followers;
  std::thread leader{[&] { connection_.drive(leaders, never); }};
  connection_.wait_for_drivers(1);
  std::thread canceller{[&] {
    connection_.wait_for_drivers(2);
    followers.finish();
  }};

  EXPECT_EQ(connection_.drive(followers, never), drive_outcome::finished);

  canceller.join();
  EXPECT_FALSE(leaders.finished());
  leaders.finish();
  leader.join();
}

// Nobody has a deadline: one lost wake-up and the test hangs until its time limit.
TEST_F(DriveDoubleWithServer, LosesNoWakeUpWhenManyShareTheConnection) {
  constexpr request_number callers = 4;
  constexpr request_number rounds = 400;

  {
    std::vector<std::jthread> threads;
    for (request_number caller = 0; caller < callers; ++caller) {
      threads.emplace_back([this, caller] {
        for (request_number round = 0; round < rounds; ++round) {
          drive_ticket ticket;
          connection_.request(caller * rounds + round, ticket);
          EXPECT_EQ(connection_.drive(ticket, never), drive_outcome::finished);
        }
      });
    }
  }

  int reads = 0;
  for (const auto& [thread, count] : connection_.reads()) reads += count;
  EXPECT_EQ(reads, static_cast<int>(callers * rounds));
}

// Every ticket is finished twice at about the same time: by its answer and by a cancel.
TEST_F(DriveDoubleWithServer, LosesNoWakeUpWhenCancelsRaceWithAnswers) {
  constexpr request_number callers = 3;
  constexpr request_number rounds = 300;
  struct cancel_box {
    base::mutex mutex;
    std::set<drive_ticket*> open SALLYPORT_GUARDED_BY(mutex);
  } box;

  {
    std::jthread canceller{[&box](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        {
          const base::mutex_lock held{box.mutex};
          if (!box.open.empty()) (*box.open.begin())->finish();
        }
        std::this_thread::yield();
      }
    }};
    std::vector<std::jthread> threads;
    for (request_number caller = 0; caller < callers; ++caller) {
      threads.emplace_back([this, caller, &box] {
        for (request_number round = 0; round < rounds; ++round) {
          drive_ticket ticket;
          {
            const base::mutex_lock held{box.mutex};
            box.open.insert(&ticket);
          }
          connection_.request(caller * rounds + round, ticket);
          EXPECT_EQ(connection_.drive(ticket, never), drive_outcome::finished);
          connection_.forget(caller * rounds + round);
          const base::mutex_lock held{box.mutex};
          box.open.erase(&ticket);
        }
      });
    }
    threads.clear();
  }
}

// Some callers wait on the ticket alone, as they would beside a backend that does not drive: they
// are served by those who drive.
TEST_F(DriveDoubleWithServer, ServesACallerThatOnlyWaitsWhileAnotherDrives) {
  drive_ticket drivers;
  std::jthread driver{[&] { connection_.drive(drivers, never); }};
  connection_.wait_for_drivers(1);

  for (request_number number = 1; number <= 300; ++number) {
    drive_ticket ticket;
    connection_.request(number, ticket);
    ticket.wait();
  }

  drivers.finish();
}

}  // namespace
}  // namespace sallyport::backend_api

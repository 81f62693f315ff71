#include "backends/local/inbox.hpp"
#include "backends/local/local_backend.hpp"
#include "backends/local/local_store.hpp"
#include "backends/local/place.hpp"
#include "backends/local/process.hpp"
#include "backends/local/steps.hpp"
#include "backends/local/test_children.hpp"
#include "base/random.hpp"
#include <sallyport/lease_clock.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <variant>
#include <vector>

// Several clients of one process and their pipes.
namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// --- Pipes -------------------------------------------------------------------------------------------

class LocalInbox : public testing::Test {
 protected:
  LocalInbox()
      : folder_(::open(root_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        mail_(inbox::make(folder_.number(), 7, 0600).value()),
        out_(folder_.number(), pipes::made_by_clients) {}

  static notice changed(const std::string& name) {
    return {0, notice_kind::changed, {}, std::nullopt, name};
  }
  void write_raw(const std::string& bytes) const {
    const descriptor pipe(::openat(folder_.number(), inbox_name(7, pipes::made_by_clients).c_str(),
                                   O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_EQ(::write(pipe.number(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }

  temporary_folder root_;
  descriptor folder_;
  inbox mail_;
  outboxes out_;
};

TEST_F(LocalInbox, ThatIsFullDropsWholeNotices) {
  const notice one = changed(std::string(200, 'n'));
  for (int i = 0; i < 3000; ++i) out_.post(7, one);

  std::vector<notice> came;
  EXPECT_TRUE(mail_.receive(came)) << "what came is whole";
  EXPECT_GT(came.size(), 100U);
  EXPECT_LT(came.size(), 3000U);
  EXPECT_TRUE(std::ranges::all_of(came, [&](const notice& each) { return each == one; }));

  came.clear();
  out_.post(7, one);
  EXPECT_TRUE(mail_.receive(came));
  EXPECT_EQ(came.size(), 1U);
}

TEST_F(LocalInbox, ThatWasSpoiledSaysSoAndGoesOn) {
  for (const std::string& bytes : {std::string("x"), std::string(100, 'g'), std::string(4096, '\0'),
                                   encode(changed("door")).substr(0, 20)}) {
    std::vector<notice> came;
    write_raw(bytes);
    EXPECT_FALSE(mail_.receive(came));
    EXPECT_TRUE(came.empty());

    out_.post(7, changed("door"));
    EXPECT_TRUE(mail_.receive(came));
    EXPECT_EQ(came.size(), 1U);
  }
}

TEST_F(LocalInbox, OfNobodyIsPassedOver) {
  out_.post(8, changed("door"));
  std::ignore = ::close(::openat(folder_.number(), inbox_name(9, pipes::made_by_clients).c_str(),
                                 O_CREAT | O_RDWR, 0600));
  out_.post(9, changed("door"));
  EXPECT_EQ(std::filesystem::file_size(root_.path() + "/" + inbox_name(9, pipes::made_by_clients)),
            0U);
}

TEST(LocalNotice, OfAnyBytesIsReadOrRefused) {
  base::random draw(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = encode({0, notice_kind::changed, {}, std::nullopt, "a name"});
    bytes.resize(draw.below(bytes.size() + 1));
    for (std::uint64_t k = draw.below(4); k > 0 && !bytes.empty(); --k) {
      bytes[draw.below(bytes.size())] = static_cast<char>(draw.below(256));
    }
    std::string_view rest = bytes;
    bool spoiled = false;
    const auto one = decode(rest, spoiled);
    EXPECT_LE(rest.size(), bytes.size());
    EXPECT_FALSE(one && spoiled);
  }
}

// --- Clients ------------------------------------------------------------------------------------------

/// Counts what a client hears.
class recorder final : public backend_api::events {
 public:
  void acquire_answered(const holder_id&, base::result<backend_api::acquire_answer>) override {}
  void renewals_answered(std::span<backend_api::renew_outcome>) override {}
  void leave_answered(const holder_id&, base::result<backend_api::leave_answer>) override {}
  void downgrade_answered(const holder_id&, base::result<backend_api::renew_answer>) override {}
  void granted_notice(const holder_id&, std::optional<backend_api::granted>) override {}
  void lost_notice(const holder_id&) override {}
  void changed_notice(const lock_name&) override { ++changes; }
  void reconnected() override { ++reconnections; }

  int changes = 0;
  int reconnections = 0;
};

class LocalClients : public testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return root_.path() + "/store"; }
  [[nodiscard]] std::string address() const { return "local:" + folder() + "?size=1M"; }
  [[nodiscard]] std::unique_ptr<backend_api::backend> open_backend(recorder& listener) const {
    auto opened = local_backend().open({address(), {}, listener});
    EXPECT_TRUE(opened);
    return opened ? std::move(*opened) : nullptr;
  }
  static bool readable(int descriptor_number, int within_ms) {
    pollfd wait{.fd = descriptor_number, .events = POLLIN, .revents = 0};
    return ::poll(&wait, 1, within_ms) > 0;
  }
  /// Whether this process is known to be attached: were it not, another would begin anew.
  void expect_present() const {
    const std::string gate = folder() + "/gate-" + this_machine().value().boot_id;
    ASSERT_TRUE(std::filesystem::remove(gate));
    EXPECT_THAT(in_child([&] { return try_open(address()); }), HasSubstr("had its files removed"));
  }

  temporary_folder root_;
};

TEST_F(LocalClients, HearThatSomethingWasMissedWhenTheirPipeWasSpoiled) {
  recorder heard;
  const auto backend = open_backend(heard);
  const auto pipes = names_in(folder(), "inbox-");
  ASSERT_EQ(pipes.size(), 1U);
  {
    const descriptor pipe(::open((folder() + "/" + pipes.front()).c_str(), O_WRONLY | O_NONBLOCK));
    ASSERT_EQ(::write(pipe.number(), "garbage", 7), 7);
  }

  ASSERT_TRUE(readable(backend->attention_fd(), 5000));
  backend->attend();

  EXPECT_EQ(heard.reconnections, 1);
  EXPECT_FALSE(readable(backend->attention_fd(), 0));
}

TEST_F(LocalClients, ThatStandStillDoNotHoldUpThoseWhoTellThem) {
  living_child sleeper([&] {
    static recorder heard;
    auto backend = open_backend(heard);
    backend->watch("door", true);
    return backend;
  });
  ::kill(sleeper.pid(), SIGSTOP);
  const auto store = client::open(address());
  mutex lock{store, "door", {.local_turns = 1}};

  const auto began = lease_clock::now();
  for (int i = 0; i < 3000; ++i) lock.acquire().release();

  EXPECT_LT(lease_clock::now() - began, 10s);
  ::kill(sleeper.pid(), SIGCONT);
  sleeper.end();
  EXPECT_EQ(names_in(folder(), "inbox-").size(), 1U);
}

/// One client with a crowd of contenders, each asking in a transaction of its own.
class LocalCrowd : public LocalClients {
 protected:
  static constexpr std::uint64_t crowd = 2 * most_waiters_at_once + 50;

  LocalCrowd() {
    auto opened = local_store::find_or_open(parse_address(address()).value());
    EXPECT_TRUE(opened);
    store_ = *opened;
    client_record self;
    self.process = this_process();
    client_ = store_->add_client(self, "crowd").value();
  }
  ~LocalCrowd() override { on_step = nullptr; }

  backend_api::acquire_answer ask(std::uint64_t who, lock_mode mode, duration length,
                                  bool may_wait) {
    auto asked = store_->transact(lease_clock::now() + 10s, client_, told_, [&](lock_rules& rules) {
      return rules.acquire({.name = name_,
                            .kind = lock_kind::shared_mutex,
                            .mode = mode,
                            .holder = {1, who},
                            .lease_length = length,
                            .claim_window = length,
                            .ticket_length = length,
                            .may_wait = may_wait,
                            .value = {},
                            .answer_by = {}},
                           client_, 0);
    });
    EXPECT_TRUE(asked && *asked);
    number_ = (*asked)->number;
    return (*asked)->answer;
  }

  const lock_name name_{"door"};
  std::shared_ptr<local_store> store_;
  client_number client_ = 0;
  contender_number number_ = 0;
  std::vector<notice> told_;
};

TEST_F(LocalCrowd, IsLetInByTransactionsThatServeSoManyEach) {
  ASSERT_TRUE(
      std::holds_alternative<backend_api::granted>(ask(0, lock_mode::exclusive, 60s, true)));
  const contender_number writer = number_;
  for (std::uint64_t who = 1; who <= crowd; ++who) ask(who, lock_mode::shared, 60s, true);
  told_.clear();
  static std::atomic<int> transactions;
  transactions = 0;
  on_step = [](step where) {
    if (where == step::committed) ++transactions;
  };

  const auto left =
      store_->transact(lease_clock::now() + 10s, client_, told_, [&](lock_rules& rules) {
        return rules.release({.name = name_,
                              .kind = lock_kind::shared_mutex,
                              .mode = lock_mode::exclusive,
                              .holder = {1, 0},
                              .answer_by = {}},
                             writer);
      });

  ASSERT_TRUE(left);
  EXPECT_EQ(std::ranges::count(told_, notice_kind::granted, &notice::kind), crowd);
  EXPECT_EQ(transactions, 3);
}

TEST_F(LocalCrowd, ThatHasLapsedIsNotInTheWayOfATry) {
  ask(0, lock_mode::exclusive, 1ms, true);
  for (std::uint64_t who = 1; who <= crowd; ++who) ask(who, lock_mode::exclusive, 100ms, true);
  std::this_thread::sleep_for(110ms);

  EXPECT_TRUE(std::holds_alternative<backend_api::granted>(
      ask(crowd + 1, lock_mode::exclusive, 60s, false)));
}

TEST_F(LocalClients, CallTheStoreAsTheAddressSays) {
  const auto named = client::open(address() + "&store=shop");
  mutex lock{named, "door"};

  EXPECT_EQ(lock.acquire().fence_pass().lock, "local:shop|door");
  EXPECT_NE(client::open(address()).capabilities().store_id, "local:shop");
  EXPECT_THAT(try_open(address() + "&store=a%20b"), HasSubstr("store="));
}

TEST_F(LocalClients, OfOneFolderMeetHoweverItIsSpelled) {
  std::filesystem::create_symlink(root_.path(), root_.path() + "/around");
  const auto plain = client::open(address());
  mutex lock{plain, "door"};
  const auto held = lock.acquire();

  for (const std::string spelling : {"/store/", "/./store", "/store/../store", "/around/store"}) {
    const auto other = client::open("local:" + root_.path() + spelling);
    mutex same{other, "door"};
    EXPECT_FALSE(same.try_acquire()) << spelling;
    EXPECT_EQ(other.capabilities().store_id, plain.capabilities().store_id) << spelling;
  }
  EXPECT_TRUE(held.valid());
  expect_present();
}

TEST_F(LocalClients, LeaveNothingOpenToProgramsThatAreExecuted) {
  for (const char* const map : {"&map=yes", "&map=no"}) {
    const std::string own = folder() + (map[5] == 'y' ? "" : "-unmapped");
    const auto store = client::open("local:" + own + "?size=1M" + map);

    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone);
      if (gone || !target.string().starts_with(own)) continue;
      const int number = std::stoi(entry.path().filename());
      EXPECT_EQ(::fcntl(number, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC) << target;
    }
  }
}

TEST_F(LocalClients, ThatCloseDoNotTakeThePresenceOfOthersAway) {
  const auto steady = client::open(address());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(try_open(address()), "ok");

  expect_present();
}

TEST_F(LocalClients, OpenAndCloseAtTheSameTimeInThreadsAndProcesses) {
  struct counts {
    std::atomic<int> inside;
    std::atomic<int> troubles;
    std::atomic<int> rounds;
  };
  void* const page =
      ::mmap(nullptr, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& all = *static_cast<counts*>(page);
  const auto storm = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      try {
        const auto store = client::open(address());
        mutex lock{store, "door", {.local_turns = 1}};
        const auto held = lock.try_acquire_for(20s);
        if (!held || all.inside.fetch_add(1) != 0) ++all.troubles;
        all.inside.fetch_sub(1);
        ++all.rounds;
      } catch (const lock_error& error) {
        ADD_FAILURE() << error.what();
        ++all.troubles;
      }
    }
  };
  living_child other([&] {
    std::vector<std::jthread> threads;
    threads.reserve(3);
    for (int i = 0; i < 3; ++i) threads.emplace_back(storm, 40);
    return threads;
  });
  {
    std::vector<std::jthread> threads;
    threads.reserve(6);
    for (int i = 0; i < 6; ++i) threads.emplace_back(storm, 40);
  }
  other.end();

  EXPECT_EQ(all.troubles, 0);
  EXPECT_EQ(all.rounds, 9 * 40);
  ::munmap(page, sizeof(counts));
  EXPECT_TRUE(names_in(folder(), "inbox-").empty());
  const auto steady = client::open(address());
  EXPECT_TRUE(steady.list().empty());
  expect_present();
}

TEST_F(LocalClients, LeaveNoDescriptorToAnExecutedChild) {
  const auto descriptors = [] {
    std::vector<int> numbers;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      numbers.push_back(std::stoi(entry.path().filename().string()));
    }
    return numbers;
  };
  const auto before = descriptors();
  const auto store = client::open(address());
  mutex lock{store, "door"};
  const auto held = lock.acquire();
  const auto other = client::open(address());
  mutex same{other, "door", {.local_turns = 1}};
  EXPECT_FALSE(same.try_acquire_for(10ms));

  for (const int number : descriptors()) {
    if (std::ranges::find(before, number) != before.end()) continue;
    const int flags = ::fcntl(number, F_GETFD);
    if (flags < 0) continue;  // the listing's own
    std::error_code ignored;
    EXPECT_NE(flags & FD_CLOEXEC, 0)
        << std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(number), ignored);
  }
}

TEST_F(LocalClients, KeepToTheSizeAndMapOfTheFirst) {
  ASSERT_EQ(try_open(address()), "ok");
  EXPECT_EQ(in_child([&] { return try_open("local:" + folder() + "?size=64M&map=no"); }), "ok");
  EXPECT_EQ(try_open("local:" + folder() + "?size=64M&map=no"), "ok");
  const std::string state = folder() + "/state-" + this_machine().value().boot_id + ".mdb";
  EXPECT_EQ(std::filesystem::file_size(state), 1U << 20U);
}

// --- Who hears ----------------------------------------------------------------------------------------

/// Without wake-ups a waiter would find out after seconds only.
class LocalWaiters : public LocalClients {
 protected:
  [[nodiscard]] client open_slow() const { return client::open(address(), {.heartbeat = 20s}); }
  /// Waits in a thread of its own; when it got in.
  static std::future<lease_clock::time_point> wait_for(const client& store, const char* name) {
    return std::async(std::launch::async, [store, name] {
      mutex lock{store, name, {.lease_length = 60s, .local_turns = 1}};
      const auto held = lock.try_acquire_for(15s);
      return held ? lease_clock::now() : lease_clock::time_point::max();
    });
  }
  static void await_waiter(const client& store, const char* name) {
    for (int i = 0; i < 5000; ++i) {
      const auto seen = store.who(name);
      if (seen && !seen->waiters.empty()) return;
      std::this_thread::sleep_for(1ms);
    }
    ADD_FAILURE() << "nobody waits for " << name;
  }
};

TEST_F(LocalWaiters, OfOneClientAreWokenForDifferentNamesInAnyOrder) {
  const auto waiting = open_slow();
  const auto holding = open_slow();
  for (int round = 0; round < 30; ++round) {
    mutex lock_a{holding, "a", {.local_turns = 1}};
    mutex lock_b{holding, "b", {.local_turns = 1}};
    auto held_a = lock_a.acquire();
    auto held_b = lock_b.acquire();
    auto waits_a = wait_for(waiting, "a");
    await_waiter(holding, "a");
    auto waits_b = wait_for(waiting, "b");
    await_waiter(holding, "b");

    // The first that waits hears for both; when it has gone, the watchdog hears for the second.
    auto& first = round % 2 == 0 ? held_a : held_b;
    auto& second = round % 2 == 0 ? held_b : held_a;
    const auto released = lease_clock::now();
    first.release();
    if (round % 3 == 0) std::this_thread::sleep_for(2ms);
    second.release();

    EXPECT_LT(waits_a.get() - released, 3s);
    EXPECT_LT(waits_b.get() - released, 3s);
  }
}

TEST_F(LocalWaiters, AreWokenByTheWatchdogWhenAHolderDies) {
  living_child holder([&] {
    auto store = std::make_unique<client>(client::open(address()));
    mutex lock{*store, "b", {.lease_length = 60s}};
    return std::pair(std::move(store), lock.acquire());
  });
  const auto waiting = open_slow();
  const auto holding = open_slow();
  mutex lock_a{holding, "a", {.local_turns = 1}};
  auto held_a = lock_a.acquire();
  auto waits_a = wait_for(waiting, "a");
  await_waiter(holding, "a");
  auto waits_b = wait_for(waiting, "b");
  await_waiter(holding, "b");
  held_a.release();
  ASSERT_NE(waits_a.get(), lease_clock::time_point::max());

  const auto killed = lease_clock::now();
  holder.kill();

  EXPECT_LT(waits_b.get() - killed, 3s);
}

}  // namespace
}  // namespace sallyport::backends::local

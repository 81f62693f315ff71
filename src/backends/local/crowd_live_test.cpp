#include "backends/local/gate.hpp"
#include "backends/local/process.hpp"
#include "backends/local/steps.hpp"
#include "backends/local/test_children.hpp"
#include <sallyport/lease_clock.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <sys/resource.h>
#include <thread>

// Many processes at once: nobody is told that the store is broken because others are busy, and who
// waits leaves the processor to whom it waits for.
namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr std::size_t crowd_size = 25;

/// Processes that all do the same, at the same time.
class crowd {
 public:
  template <class Work>  // std::string work()
  explicit crowd(Work work) {
    std::fflush(nullptr);
    for (std::size_t i = 0; i < crowd_size; ++i) {
      std::array<int, 2> ends{-1, -1};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
      const pid_t child = ::fork();
      if (child == 0) {
        std::string text;
        try {
          text = work();
        } catch (const std::exception& error) {
          text = std::string("error: ") + error.what();
        }
        static_cast<void>(::write(ends[1], text.data(), text.size()));
        ::_exit(0);
      }
      ::close(ends[1]);
      members_.push_back({child, descriptor(ends[0])});
    }
  }
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd() {
    for (const member& each : members_) {
      ::kill(each.pid, SIGKILL);
      ::waitpid(each.pid, nullptr, 0);
    }
  }

  /// What each of them said in the end; "silence" after 30 s without a word.
  std::vector<std::string> words() {
    std::vector<std::string> all;
    for (const member& each : members_) {
      pollfd readable{.fd = each.word.number(), .events = POLLIN, .revents = 0};
      std::array<char, 1024> text{};
      const ssize_t got = ::poll(&readable, 1, 30'000) > 0
                              ? ::read(each.word.number(), text.data(), text.size())
                              : -1;
      all.emplace_back(got < 0 ? "silence"
                               : std::string(text.data(), static_cast<std::size_t>(got)));
    }
    return all;
  }
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }

 private:
  struct member {
    pid_t pid;
    descriptor word;
  };
  std::vector<member> members_;
};

class LocalCrowd : public testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return root_.path() + "/store"; }
  [[nodiscard]] std::string address() const { return "local:" + folder() + "?size=1M"; }
  [[nodiscard]] std::string gate_file() const {
    return folder() + "/gate-" + this_machine().value().boot_id;
  }
  /// Made by a child: this process must not be attached, because it plays with the record locks.
  void make_store() const {
    ASSERT_EQ(in_child([&] { return try_open(address()); }), "ok");
  }

  /// What an opener holds while it looks (F_RDLCK) or makes the store (F_WRLCK).
  class attaching_lock {
   public:
    attaching_lock(const std::string& folder, short type)
        : file_(::open((folder + "/presence").c_str(), O_RDWR | O_CLOEXEC)) {
      struct flock lock {};
      lock.l_type = type;
      lock.l_whence = SEEK_SET;
      lock.l_start = 1;
      lock.l_len = 1;
      EXPECT_EQ(::fcntl(file_.number(), F_SETLK, &lock), 0);
    }
    void let_go() { file_ = descriptor(); }

   private:
    descriptor file_;
  };

  /// A process that is stopped inside the gate.
  class stopped_inside {
   public:
    explicit stopped_inside(const std::string& address) {
      std::fflush(nullptr);
      pid_ = ::fork();
      if (pid_ == 0) {
        const auto store = client::open(address);
        mutex lock{store, "elsewhere"};
        on_step = [](step where) {
          if (where != step::inside_the_gate) return;
          on_step = nullptr;
          ::raise(SIGSTOP);
        };
        const bool got = lock.try_acquire().has_value();
        ::_exit(got ? 0 : 1);
      }
      int status = 0;
      EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
      EXPECT_TRUE(WIFSTOPPED(status));
    }
    stopped_inside(const stopped_inside&) = delete;
    stopped_inside& operator=(const stopped_inside&) = delete;
    ~stopped_inside() {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    void resume() const { ::kill(pid_, SIGCONT); }

   private:
    pid_t pid_ = -1;
  };

  temporary_folder root_;
};

TEST_F(LocalCrowd, OpensTheStoreWhileOthersLookAtIt) {
  make_store();
  attaching_lock somebody(folder(), F_RDLCK);

  crowd openers([&] { return try_open(address()); });

  EXPECT_THAT(openers.words(), testing::AllOf(SizeIs(crowd_size), Each("ok")));
}

TEST_F(LocalCrowd, LeavesTheProcessorToWhoMakesTheStore) {
  make_store();
  attaching_lock somebody(folder(), F_WRLCK);

  crowd openers([&] {
    const std::string opened = try_open(address());
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return opened + (used.ru_nvcsw < 200 ? "" : ", " + std::to_string(used.ru_nvcsw) + " switches");
  });
  std::this_thread::sleep_for(2s);
  somebody.let_go();

  EXPECT_THAT(openers.words(), testing::AllOf(SizeIs(crowd_size), Each("ok")));
}

TEST_F(LocalCrowd, MakesANewStoreOnce) {
  crowd openers([&] {
    const auto store = client::open(address());
    mutex lock{store, "door", {.local_turns = 1}};
    return lock.try_acquire_for(20s) ? store.capabilities().store_id : "not acquired";
  });

  const auto said = openers.words();

  ASSERT_THAT(said, SizeIs(crowd_size));
  EXPECT_THAT(said.front(), testing::StartsWith("local:"));
  EXPECT_THAT(said, Each(said.front())) << "all meet in one store";
  EXPECT_THAT(names_in(folder(), "inbox-"), testing::IsEmpty());
}

TEST_F(LocalCrowd, DoesNotMakeTheStoreAnewWhileSomebodyLooks) {
  make_store();
  std::filesystem::remove(gate_file());
  attaching_lock somebody(folder(), F_RDLCK);

  crowd openers([&] { return try_open(address()); });
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(std::filesystem::exists(gate_file()));
  somebody.let_go();

  EXPECT_THAT(openers.words(), Each("ok"));
  EXPECT_TRUE(std::filesystem::exists(gate_file()));
}

TEST_F(LocalCrowd, WaitsForAProcessThatIsStoppedInsideForSeconds) {
  make_store();
  const stopped_inside sleeper(address());

  crowd openers([&] {
    const auto store = client::open(address());
    mutex lock{store, "door", {.local_turns = 1}};
    return std::string(lock.try_acquire_for(20s) ? "ok" : "not acquired");
  });
  std::this_thread::sleep_for(5s);
  sleeper.resume();

  EXPECT_THAT(openers.words(), Each("ok"));
}

// --- What is said of whom -----------------------------------------------------------------------------

class LocalGate : public testing::Test {
 protected:
  LocalGate()
      : folder_(::open(root_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        gate_(gate::make(folder_.number(), "gate", 0600, {.machine = this_machine().value()})
                  .value()) {}

  /// Enters in another thread, stays there until the work is done.
  template <class Work>
  void while_inside(Work work) {
    std::latch inside{1};
    std::latch done{1};
    std::jthread other([&] {
      ASSERT_TRUE(gate_->enter(lease_clock::now() + 10s));
      inside.count_down();
      done.wait();
      gate_->leave();
    });
    inside.wait();
    work();
    done.count_down();
  }
  [[nodiscard]] std::string words_after(duration patience) const {
    const auto entered = gate_->enter(lease_clock::now() + patience);
    if (entered) gate_->leave();
    return entered ? "entered" : entered.error().detail;
  }

  temporary_folder root_;
  descriptor folder_;
  std::unique_ptr<gate> gate_;
};

TEST_F(LocalGate, AccusesNobodyWhoMerelyWorks) {
  while_inside([&] {
    const std::string said = words_after(100ms);

    EXPECT_THAT(said, HasSubstr("many processes use the store"));
    EXPECT_THAT(said, Not(HasSubstr(std::to_string(::getpid()))));
    EXPECT_FALSE(gate_->held_up());
  });
  EXPECT_EQ(words_after(100ms), "entered");
}

TEST_F(LocalGate, NamesAProcessThatStaysInsideForTheWholeOfALongWait) {
  while_inside([&] {
    const std::string said = words_after(1100ms);

    EXPECT_THAT(said, HasSubstr("process " + std::to_string(::getpid())));
    EXPECT_THAT(said, HasSubstr("does not come out"));
  });
}

}  // namespace
}  // namespace sallyport::backends::local

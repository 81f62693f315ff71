#include "backends/local/process.hpp"
#include "backends/local/test_children.hpp"
#include "backends/local/token_file.hpp"
#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <tuple>

// What a store does with files that are not what it wrote: damaged, of another boot, of other
// namespaces.
namespace sallyport::backends::local {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

class LocalStoreFiles : public testing::Test {
 protected:
  LocalStoreFiles() : boot_(this_machine().value().boot_id) {
    base::set_log_sink([this](base::log_level level, std::string_view line) {
      if (level >= base::log_level::warning) warnings_ += std::string(line) + "\n";
    });
  }
  ~LocalStoreFiles() override { base::set_log_sink({}); }

  [[nodiscard]] std::string folder() const { return root_.path() + "/store"; }
  [[nodiscard]] std::string address() const { return "local:" + folder() + "?size=1M"; }
  [[nodiscard]] std::string gate() const { return folder() + "/gate-" + boot_; }
  [[nodiscard]] std::string state() const { return folder() + "/state-" + boot_ + ".mdb"; }
  [[nodiscard]] std::string tokens() const { return folder() + "/tokens"; }

  /// Opens the store and returns the token of a grant.
  [[nodiscard]] std::uint64_t draw() const {
    const auto store = client::open(address());
    mutex lock{store, "door"};
    return lock.acquire().token().value();
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  static std::string garbage(std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7919U + 13U) % 251U);
    return bytes;
  }

  temporary_folder root_;
  std::string boot_;
  std::string warnings_;
};

struct damage {
  const char* name;
  std::function<void(const std::string& gate, const std::string& state)> apply;
  const char* said;  // in the warning
};

class LocalStoreDamage : public LocalStoreFiles, public testing::WithParamInterface<int> {
 protected:
  static const std::vector<damage>& all() {
    static const std::vector<damage> list{
        {"StateCutOff", [](auto&, auto& state) { fs::resize_file(state, 8192); }, "cut off"},
        {"StateEmpty", [](auto&, auto& state) { fs::resize_file(state, 0); }, "cut off"},
        {"StateGarbage", [](auto&, auto& state) { write(state, garbage(1 << 20)); }, "cannot"},
        {"StateZero", [](auto&, auto& state) { write(state, std::string(1 << 20, '\0')); },
         "cannot"},
        {"StateForeign",
         [](auto&, auto& state) {
           write(state, "SQLite format 3");
           fs::resize_file(state, 1 << 20);
         },
         "cannot"},
        {"StateRemoved", [](auto&, auto& state) { fs::remove(state); }, "missing"},
        {"StateAFolder",
         [](auto&, auto& state) {
           fs::remove(state);
           fs::create_directory(state);
         },
         "no plain file"},
        {"StateALink",
         [](auto&, auto& state) {
           fs::rename(state, state + ".elsewhere");
           fs::create_symlink(state + ".elsewhere", state);
         },
         "no plain file"},
        {"GateGarbage", [](auto& gate, auto&) { write(gate, garbage(4096)); }, "none of ours"},
        {"GateEmpty", [](auto& gate, auto&) { fs::resize_file(gate, 0); }, "none of ours"},
        {"GateLong", [](auto& gate, auto&) { fs::resize_file(gate, 8192); }, "none of ours"},
    };
    return list;
  }
  [[nodiscard]] const damage& that() const {
    return all().at(static_cast<std::size_t>(GetParam()));
  }
};

TEST_P(LocalStoreDamage, IsSetAsideWhenNobodyIsThere) {
  const std::uint64_t before = draw();
  that().apply(gate(), state());

  const std::uint64_t after = draw();

  EXPECT_GT(after, before);
  EXPECT_THAT(warnings_, HasSubstr("was damaged"));
  EXPECT_THAT(warnings_, HasSubstr(that().said));
  EXPECT_THAT(names_in(folder(), "inbox-"), IsEmpty());
  warnings_.clear();
  EXPECT_GT(draw(), after);
  EXPECT_THAT(warnings_, IsEmpty()) << "it is whole again";
}

TEST_P(LocalStoreDamage, IsRefusedWhileSomebodyIsThere) {
  const std::uint64_t before = draw();
  living_child other([&] { return client::open(address()); });
  that().apply(gate(), state());
  const auto files = names_in(folder(), "");

  const std::string said = try_open(address());

  EXPECT_THAT(said, HasSubstr("is damaged"));
  EXPECT_THAT(said, HasSubstr("process " + std::to_string(other.pid())));
  EXPECT_THAT(said, HasSubstr("stop all programs"));
  EXPECT_THAT(names_in(folder(), ""), testing::UnorderedElementsAreArray(files));
  // It works on a map that is gone: it must not touch it any more.
  other.kill();
  EXPECT_GT(draw(), before);
}

INSTANTIATE_TEST_SUITE_P(Of, LocalStoreDamage, testing::Range(0, 11));

TEST_F(LocalStoreFiles, WithoutAGateAreMadeAnew) {
  const std::uint64_t before = draw();
  fs::remove(gate());

  EXPECT_GT(draw(), before);
}

TEST_F(LocalStoreFiles, WithoutAGateAreRefusedWhileSomebodyIsThere) {
  ASSERT_NE(draw(), 0U);
  const living_child other([&] { return client::open(address()); });
  fs::remove(gate());

  EXPECT_THAT(try_open(address()), HasSubstr("had its files removed while process"));
}

TEST_F(LocalStoreFiles, KeepOnlyTheLastFewDamagedOnes) {
  for (int i = 0; i < 6; ++i) {
    ASSERT_NE(draw(), 0U);
    write(state(), garbage(1 << 20));
  }
  EXPECT_NE(draw(), 0U);

  EXPECT_LE(names_in(folder(), "damaged-").size(), 3U);
}

// --- Tokens ------------------------------------------------------------------------------------------

TEST_F(LocalStoreFiles, LiveWithOneTornTokenSlot) {
  for (const std::size_t slot : {0U, 1U}) {
    const std::uint64_t before = draw();
    const std::string whole = read(tokens());
    ASSERT_EQ(whole.size(), token_file_bytes);
    std::string bytes = whole;
    bytes.replace(slot * token_slot_bytes, 100, garbage(100));
    write(tokens(), bytes);

    EXPECT_GT(draw(), before) << "slot " << slot;
    write(tokens(), whole);
  }
}

TEST(LocalTokenMark, IsTheOldOrTheNewOneWhereverAWriteWasTorn) {
  const token_mark old{.sequence = 8, .high_water = 1000, .store = {1, 2}};
  const token_mark older{.sequence = 7, .high_water = 900, .store = {1, 2}};
  const token_mark newer{.sequence = 9, .high_water = 2000, .store = {1, 2}};
  std::string file;
  for (const token_mark& mark : {old, older}) {
    const token_slot slot = encode(mark);
    file.append(reinterpret_cast<const char*>(slot.data()), slot.size());
  }
  const token_slot next = encode(newer);

  for (std::size_t torn = 0; torn <= token_slot_bytes; torn += torn < 128 ? 1 : 61) {
    std::string image = file;
    image.replace(token_slot_bytes, torn, reinterpret_cast<const char*>(next.data()), torn);
    const auto read = read_marks(std::as_bytes(std::span{image}));
    ASSERT_TRUE(read);
    EXPECT_TRUE(*read == old || *read == newer) << torn;
  }
}

TEST_F(LocalStoreFiles, ReserveTokensAcrossProcessesWithoutGoingBack) {
  ASSERT_NE(draw(), 0U);
  const descriptor place(::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto one = token_file::open(place.number());
  auto other = token_file::open(place.number());
  ASSERT_TRUE(one && *one && other && *other);
  std::uint64_t last = (*one)->mark().high_water;
  for (int i = 0; i < 10; ++i) {
    const auto reserved = (i % 3 == 0 ? *one : *other)->reserve(last);
    ASSERT_TRUE(reserved);
    EXPECT_GT(*reserved, last);
    last = *reserved;
  }
  std::filesystem::remove(gate());
  EXPECT_GT(draw(), last);
}

/// Nothing of the old numbers may go on under the new name: after a reboot they would come again.
TEST_F(LocalStoreFiles, AreBegunAnewWithTheTokensThatWereLost) {
  ASSERT_EQ(draw(), 1U);
  ASSERT_GT(draw(), 1U);
  const std::string id = client::open(address()).capabilities().store_id;
  fs::remove(tokens());

  EXPECT_EQ(draw(), 1U);
  EXPECT_NE(client::open(address()).capabilities().store_id, id);
  EXPECT_THAT(warnings_, HasSubstr("sallyport fence rebind"));
}

TEST_F(LocalStoreFiles, LoseTheirTokensAndAreNotBegunAnewBesideAnybody) {
  const auto keep_door = [&](std::int64_t companion) {
    auto store = std::make_unique<client>(client::open(address(), {.companion_pid = companion}));
    auto lock = std::make_unique<mutex>(*store, "door");
    auto held = lock->acquire();
    return std::tuple(std::move(store), std::move(lock), std::move(held));
  };
  const living_child companion([] { return 0; });
  living_child holder([&] { return keep_door(companion.pid()); });
  fs::remove(tokens());

  const std::string beside_holder = in_child([&] { return try_open(address()); });
  holder.kill();
  const std::string beside_companion = in_child([&] { return try_open(address()); });

  EXPECT_THAT(beside_holder, HasSubstr("had its files removed while process"));
  EXPECT_THAT(beside_companion,
              HasSubstr("had its files removed while process " + std::to_string(companion.pid())));
  EXPECT_FALSE(fs::exists(tokens()));
}

TEST_F(LocalStoreFiles, AreRefusedAndLeftAloneWithoutAGoodTokenSlot) {
  ASSERT_NE(draw(), 0U);
  for (const std::string& bytes :
       {garbage(token_file_bytes), std::string{}, std::string(token_file_bytes, '\0'),
        read(tokens()).substr(0, token_slot_bytes / 2)}) {
    write(tokens(), bytes);
    const auto files = names_in(folder(), "");
    const std::string kept = read(state());

    const std::string said = try_open(address());

    EXPECT_THAT(said, HasSubstr("'tokens' of the store is damaged"));
    EXPECT_THAT(said, HasSubstr("backup"));
    EXPECT_EQ(read(tokens()), bytes);
    EXPECT_EQ(read(state()), kept);
    EXPECT_THAT(names_in(folder(), ""), testing::UnorderedElementsAreArray(files));
  }
}

// --- Another boot ------------------------------------------------------------------------------------

TEST_F(LocalStoreFiles, OfAnotherBootAreRemovedAndTokensGoOn) {
  std::uint64_t last = 0;
  for (int boot = 0; boot < 5; ++boot) {
    // Ends without closing, as if killed right after the grant.
    const std::string token = in_child([&] {
      auto* const store = new client(client::open(address()));
      auto* const lock = new mutex(*store, "door");
      auto* const held = new lease(lock->acquire());
      return std::to_string(held->token().value());
    });
    const std::uint64_t drawn = std::strtoull(token.c_str(), nullptr, 10);
    EXPECT_GT(drawn, last) << token;
    last = drawn;

    const std::string other = "00000000-0000-0000-0000-00000000000" + std::to_string(boot);
    fs::rename(gate(), folder() + "/gate-" + other);
    fs::rename(state(), folder() + "/state-" + other + ".mdb");
  }

  EXPECT_GT(draw(), last);
  EXPECT_EQ(names_in(folder(), "gate-").size(), 1U);
  EXPECT_EQ(names_in(folder(), "state-").size(), 1U);
  EXPECT_THAT(names_in(folder(), "inbox-"), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty()) << "a reboot is nothing to warn of";
}

// --- Other namespaces --------------------------------------------------------------------------------

enum class proc { mounted, left_alone };

template <class Work>
std::string in_pid_namespace(Work work, proc what = proc::mounted) {
  return in_child([&] {
    leave_namespaces(CLONE_NEWPID | CLONE_NEWNS);
    return in_child([&]() -> std::string {
      if (what == proc::mounted && ::mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        return "cannot mount /proc";
      }
      return work();
    });
  });
}

template <class Work>
std::string in_time_namespace(Work work) {
  return in_child([&] {
    leave_namespaces(CLONE_NEWTIME);
    return in_child(work);
  });
}

TEST_F(LocalStoreFiles, InUseAreRefusedFromOtherNamespaces) {
  living_child other([&] { return client::open(address()); });

  for (const std::string& said : {in_pid_namespace([&] { return try_open(address()); }),
                                  in_time_namespace([&] { return try_open(address()); })}) {
    EXPECT_THAT(said, HasSubstr("another pid or time namespace"));
    EXPECT_THAT(said, HasSubstr("a folder of its own in each"));
  }
  EXPECT_EQ(in_child([&] { return try_open(address()); }), "ok") << "it goes on";
}

TEST_F(LocalStoreFiles, ThatNobodyUsesAreTakenOverByOtherNamespaces) {
  std::uint64_t last = draw();
  const auto grows = [&](const std::string& token) {
    const std::uint64_t drawn = std::strtoull(token.c_str(), nullptr, 10);
    EXPECT_GT(drawn, last) << token;
    last = drawn;
  };
  grows(in_pid_namespace([&] { return std::to_string(draw()); }));
  grows(in_time_namespace([&] { return std::to_string(draw()); }));
  grows(std::to_string(draw()));
}

TEST_F(LocalStoreFiles, AreNotOpenedWhereProcTellsOfOtherProcesses) {
  const std::string said = in_pid_namespace([&] { return try_open(address()); }, proc::left_alone);

  EXPECT_THAT(said, HasSubstr("/proc"));
  EXPECT_THAT(said, HasSubstr("mount"));
}

}  // namespace
}  // namespace sallyport::backends::local

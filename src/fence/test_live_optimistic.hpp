#pragma once

#include "base/random.hpp"
#include "tests/kit/sql_executors.hpp"
#include "tests/kit/waiting.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/optimistic.hpp>
#include <sallyport/sql.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

// What optimistic rows promise, on any database. A `World` is one of them, running: where it is, how to
// connect, and what its errors mean.

namespace sallyport::optimistic {

/// An executor as a program should have one: it connects when it has to, and tells a conflict and a lost
/// connection from all other errors.
template <class World>
class session {
 public:
  explicit session(std::uint16_t port = World::port()) : port_(port) {}

  sql::answer operator()(const sql::statement& one) {
    if (!connection_) connect();
    try {
      return (*connection_)(one);
    } catch (const kit::sql_error& error) {
      if (World::is_conflict(error)) throw sql::conflict(error.what());
      if (!World::is_loss(error)) throw;
      connection_.reset();
      throw sql::connection_lost(error.what());
    }
  }
  sql::answer run(const std::string& text) { return (*this)({.text = text, .parameters = {}}); }
  [[nodiscard]] std::int64_t number(const std::string& text) {
    return kit::first_number(run(text));
  }
  [[nodiscard]] sql::executor executor() {
    return [this](const sql::statement& one) { return (*this)(one); };
  }

 private:
  void connect() {
    try {
      connection_ = World::connect(port_);
    } catch (const kit::kit_error& error) {
      throw sql::connection_lost(error.what());
    }
  }

  std::uint16_t port_;
  std::unique_ptr<typename World::connection> connection_;
};

/// Not in braces inside of the tests, which are templates: Clang 14 forgets there that they were braces.
inline values just(std::int64_t number) { return {sql::value{number}}; }
inline values just(const std::string& one, const std::string& other) {
  return {sql::value{one}, sql::value{other}};
}

inline std::int64_t number_in(const values& all, std::size_t at = 0) {
  return kit::number_of(all.at(at));
}

inline std::optional<change> add_one(const values& read) {
  return change{.values = {number_in(read) + 1}};
}

inline bool is_write(const sql::statement& one) { return one.text.starts_with("UPDATE"); }

/// One attempt follows the other without a pause.
inline options at_once() {
  return {.time_limit = std::chrono::minutes{5}, .first_pause = {}, .longest_pause = {}};
}

template <class World>
class OptimisticRows : public testing::Test {
 protected:
  static void SetUpTestSuite() { World::start(); }
  static void TearDownTestSuite() { World::stop(); }

  void SetUp() override {
    database_.run("DROP TABLE IF EXISTS counters");
    database_.run("DROP TABLE IF EXISTS noted");
    database_.run(
        "CREATE TABLE counters (name varchar(50) PRIMARY KEY, n bigint, version bigint NOT NULL, "
        "writers varchar(256) NOT NULL DEFAULT '')" +
        std::string(World::table_options));
    database_.run("CREATE TABLE noted (n bigint PRIMARY KEY)" + std::string(World::table_options));
    database_.run("INSERT INTO counters (name, n, version) VALUES ('a', 5, 100)");
  }

  static layout names() {
    return {.table = "counters", .key = "name", .values = {"n"}, .writers = "writers"};
  }
  static table counters() { return table{World::connection::dialect(), names()}; }
  static table forgetful_counters() {
    layout without = names();
    without.writers.clear();
    return table{World::connection::dialect(), without};
  }

  /// What the table says from outside.
  std::int64_t n() { return database_.number("SELECT n FROM counters WHERE name = 'a'"); }
  std::int64_t version() {
    return database_.number("SELECT version FROM counters WHERE name = 'a'");
  }
  std::int64_t noted() { return database_.number("SELECT count(*) FROM noted"); }

  /// Somebody else adds ten, `times` times.
  static void add_tens(int times) {
    session<World> other;
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(update(other.executor(), counters(), "a", [](const values& read) {
        return change{.values = {number_in(read) + 10}};
      }));
    }
  }

  session<World> database_;
};

TYPED_TEST_SUITE_P(OptimisticRows);

TYPED_TEST_P(OptimisticRows, WriteWhatWasDecided) {
  const outcome done = update(this->database_.executor(), this->counters(), "a", add_one);

  EXPECT_TRUE(done);
  EXPECT_EQ(done.is, outcome::kind::written);
  EXPECT_EQ(done.version, 101);
  EXPECT_EQ(done.values, (just(6)));
  EXPECT_EQ(done.attempts, 1U);
  EXPECT_EQ(done.conflicts, 0U);
  EXPECT_EQ(this->n(), 6);
  EXPECT_EQ(this->version(), 101);
}

TYPED_TEST_P(OptimisticRows, WriteNothingWhenSoDecided) {
  const outcome done = update(this->database_.executor(), this->counters(), "a",
                              [](const values&) { return std::nullopt; });

  EXPECT_EQ(done.is, outcome::kind::unchanged);
  EXPECT_EQ(done.version, 100);
  EXPECT_EQ(done.values, (just(5)));
  EXPECT_EQ(this->version(), 100);
}

TYPED_TEST_P(OptimisticRows, LoseNoUpdateOfManyThreads) {
  constexpr int threads = 8;
  constexpr int each = 25;
  std::atomic<std::uint32_t> attempts{0};
  std::atomic<std::uint32_t> conflicts{0};
  std::atomic<int> written{0};

  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      session<TypeParam> own;
      for (int round = 0; round < each; ++round) {
        const outcome done = update(own.executor(), this->counters(), "a", add_one,
                                    {.time_limit = std::chrono::minutes{1}});
        attempts += done.attempts;
        conflicts += done.conflicts;
        written += done ? 1 : 0;
      }
    });
  }
  for (auto& one : all) one.join();

  EXPECT_EQ(written, threads * each);
  EXPECT_EQ(this->n(), 5 + threads * each);
  EXPECT_EQ(this->version(), 100 + threads * each);
  EXPECT_EQ(attempts, conflicts + threads * each);
}

TYPED_TEST_P(OptimisticRows, DecideAgainAfterAConflictAndCountIt) {
  int calls = 0;

  const outcome done = update(
      this->database_.executor(), this->counters(), "a",
      [&](const values& read) {
        if (++calls <= 3) this->add_tens(1);
        return add_one(read);
      },
      at_once());

  EXPECT_TRUE(done);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(done.attempts, 4U);
  EXPECT_EQ(done.conflicts, 3U);
  EXPECT_EQ(this->n(), 5 + 30 + 1);
}

TYPED_TEST_P(OptimisticRows, GiveUpWhenOthersAreAlwaysFaster) {
  const auto beaten = [&](const values& read) {
    this->add_tens(1);
    return add_one(read);
  };
  options how = at_once();
  how.most_attempts = 5;
  const outcome by_number = update(this->database_.executor(), this->counters(), "a", beaten, how);
  const auto start = lease_clock::now();
  const outcome by_time = update(this->database_.executor(), this->counters(), "a", beaten,
                                 {.time_limit = std::chrono::milliseconds{150}});
  const auto took = lease_clock::now() - start;

  EXPECT_EQ(by_number.is, outcome::kind::gave_up);
  EXPECT_EQ(by_number.attempts, 5U);
  EXPECT_EQ(by_number.conflicts, 5U);
  EXPECT_EQ(by_time.is, outcome::kind::gave_up);
  EXPECT_EQ(by_time.attempts, by_time.conflicts);
  EXPECT_LT(took, kit::patience);
  EXPECT_EQ(this->n() % 10, 5);
}

TYPED_TEST_P(OptimisticRows, StopAtOnceWhenAsked) {
  std::stop_source stop;
  options how{.time_limit = std::chrono::hours{1},
              .first_pause = std::chrono::minutes{1},
              .longest_pause = std::chrono::minutes{1},
              .stop = stop.get_token()};
  std::atomic<bool> decided{false};
  std::thread stopper([&] {
    EXPECT_TRUE(kit::eventually([&] { return decided.load(); }));
    stop.request_stop();
  });

  const auto start = lease_clock::now();
  const outcome stopped = update(
      this->database_.executor(), this->counters(), "a",
      [&](const values& read) {
        this->add_tens(1);
        decided = true;
        return add_one(read);
      },
      how);
  const auto took = lease_clock::now() - start;
  stopper.join();
  const outcome not_begun = update(this->database_.executor(), this->counters(), "a", add_one, how);

  EXPECT_EQ(stopped.is, outcome::kind::gave_up);
  EXPECT_LT(took, kit::patience);
  EXPECT_EQ(not_begun.is, outcome::kind::gave_up);
  EXPECT_EQ(not_begun.attempts, 0U);
}

TYPED_TEST_P(OptimisticRows, TellAMissingRowOrMakeIt) {
  const outcome missing = update(this->database_.executor(), this->counters(), "none", add_one);
  EXPECT_EQ(missing.is, outcome::kind::no_such_row);

  options how;
  how.create = just(1000);
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([&] {
      session<TypeParam> own;
      options mine = how;
      mine.time_limit = std::chrono::minutes{1};
      EXPECT_TRUE(update(own.executor(), this->counters(), "none", add_one, mine));
    });
  }
  for (auto& one : all) one.join();

  EXPECT_EQ(this->database_.number("SELECT n FROM counters WHERE name = 'none'"), 1004);
  EXPECT_EQ(this->database_.number("SELECT count(*) FROM counters"), 2);
}

TYPED_TEST_P(OptimisticRows, AreMadeAgainAtAnotherVersion) {
  options how;
  how.create = just(0);
  const outcome first = update(this->database_.executor(), this->counters(), "new", add_one, how);
  this->database_.run("DELETE FROM counters WHERE name = 'new'");
  const outcome second = update(this->database_.executor(), this->counters(), "new", add_one, how);

  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE(first.version, second.version);
}

TYPED_TEST_P(OptimisticRows, LetErrorsOfTheDatabaseAndOfTheDecisionOut) {
  layout misspelt = this->names();
  misspelt.values = {"nn"};
  const table wrong{TypeParam::connection::dialect(), misspelt};

  EXPECT_THROW((void)update(this->database_.executor(), wrong, "a", add_one), kit::sql_error);
  EXPECT_THROW((void)update(this->database_.executor(), this->counters(), "a",
                            [](const values&) -> std::optional<change> { throw 5; }),
               int);
  EXPECT_THROW((void)update(this->database_.executor(), this->counters(), "a",
                            [](const values&) {
                              return change{.values = {std::int64_t{1}, "two"}};
                            }),
               lock_error);
  EXPECT_EQ(this->version(), 100);
}

TYPED_TEST_P(OptimisticRows, RefuseOptionsThatMakeNoSense) {
  const auto refused = [&](const options& how, const sql::value& key = "a") {
    try {
      (void)update(this->database_.executor(), this->counters(), key, add_one, how);
    } catch (const lock_error& error) {
      return error.code() == errc::bad_option;
    }
    return false;
  };
  using std::chrono::hours;
  using std::chrono::minutes;
  using std::chrono::seconds;

  EXPECT_TRUE(refused({.time_limit = seconds{-1}}));
  EXPECT_TRUE(refused({.time_limit = hours{25}}));
  EXPECT_TRUE(refused({.most_attempts = 0}));
  EXPECT_TRUE(refused({.first_pause = seconds{-1}}));
  EXPECT_TRUE(refused({.first_pause = seconds{2}, .longest_pause = seconds{1}}));
  EXPECT_TRUE(refused({.longest_pause = minutes{2}}));
  EXPECT_TRUE(refused({}, std::monostate{}));
  EXPECT_EQ(this->version(), 100);
}

TYPED_TEST_P(OptimisticRows, KeepAnyValueExactly) {
  session<TypeParam>& database = this->database_;
  database.run("DROP TABLE IF EXISTS kept");
  database.run("CREATE TABLE kept (k varchar(50) PRIMARY KEY, t " +
               std::string(TypeParam::text_type) + ", b " + std::string(TypeParam::bytes_type) +
               ", version bigint NOT NULL)" + std::string(TypeParam::table_options));
  const std::string key = "it's \"a\" `key` \\ -- ?";
  const table rows{TypeParam::connection::dialect(),
                   {.table = "kept", .key = "k", .values = {"t", "b"}}};
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  const std::vector<values> all{
      {"'; DROP TABLE kept; --", every_byte},
      {std::monostate{}, std::monostate{}},
      {"", ""},
      {std::string(1 << 20, 'x'), std::string(1 << 20, '\0')},
      {"täxt € 𝄞", std::string("\xff\xfe\x00", 3)},
  };

  options how;
  how.create = just("first", "first");
  for (const values& each : all) {
    const outcome done = update(
        database.executor(), rows, key, [&](const values&) { return change{.values = each}; }, how);
    const outcome read =
        update(database.executor(), rows, key, [](const values&) { return std::nullopt; });

    EXPECT_TRUE(done);
    EXPECT_EQ(read.version, done.version);
    EXPECT_TRUE(read.values == each);
  }
}

TYPED_TEST_P(OptimisticRows, WriteWhatBelongsToTheRowInOneTransaction) {
  const auto note = [](std::int64_t what) {
    return sql::statement{.text = "INSERT INTO noted VALUES (" + std::to_string(what) + ")"};
  };
  int calls = 0;

  const outcome done = update(
      this->database_.executor(), this->counters(), "a",
      [&](const values& read) {
        if (++calls == 1) this->add_tens(1);
        return change{.values = {number_in(read) + 1}, .also = {note(calls), note(calls + 100)}};
      },
      at_once());

  EXPECT_TRUE(done);
  EXPECT_EQ(done.conflicts, 1U);
  EXPECT_EQ(this->noted(), 2);
  EXPECT_EQ(this->database_.number("SELECT min(n) FROM noted"), 2);

  EXPECT_THROW(
      (void)update(this->database_.executor(), this->counters(), "a",
                   [&](const values& read) {
                     return change{.values = {number_in(read) + 1}, .also = {note(50), note(2)}};
                   }),
      kit::sql_error);

  EXPECT_EQ(this->n(), 16);
  EXPECT_EQ(this->noted(), 2);
  EXPECT_TRUE(update(this->database_.executor(), this->counters(), "a", add_one));
}

/// What may happen to a statement on a connection that breaks. `late` is carried out when everybody has
/// given it up.
enum class loss { before, after, late };

/// An executor that loses the connection around its next writes.
template <class World>
class losing {
 public:
  explicit losing(session<World>& own) : own_(own) {}

  void lose(loss how, int times = 1) {
    how_ = how;
    times_ = times;
  }
  std::function<void()> meanwhile = [] {};

  [[nodiscard]] sql::executor executor() {
    return [this](const sql::statement& one) {
      if (!is_write(one) || times_ == 0) return own_(one);
      --times_;
      if (how_ == loss::after) own_(one);
      if (how_ == loss::late) late_.push_back(one);
      meanwhile();
      throw sql::connection_lost("the network is gone");
    };
  }
  /// Bytes of a closed connection arrive. How many rows they change.
  std::uint64_t arrive() {
    std::uint64_t changed = 0;
    for (const auto& each : late_) changed += own_(each).changed;
    return changed;
  }

 private:
  session<World>& own_;
  loss how_ = loss::before;
  int times_ = 0;
  std::vector<sql::statement> late_;
};

TYPED_TEST_P(OptimisticRows, AreWrittenOnceWhateverALostConnectionDid) {
  std::int64_t expected = 5;
  for (const loss how : {loss::before, loss::after, loss::late}) {
    for (const int others : {0, 1, 7}) {
      losing<TypeParam> network{this->database_};
      network.meanwhile = [&] { this->add_tens(others); };
      network.lose(how);

      const outcome done = update(network.executor(), this->counters(), "a", add_one, at_once());
      expected += 1 + 10 * others;

      EXPECT_EQ(done.is, outcome::kind::written);
      EXPECT_EQ(network.arrive(), 0U);
      EXPECT_EQ(this->n(), expected);
      // A write that others overtook is a conflict; one that had happened is none.
      EXPECT_EQ(done.conflicts, how != loss::after && others > 0 ? 1U : 0U);
    }
  }
}

TYPED_TEST_P(OptimisticRows, AreWrittenOnceWhenEveryAnswerIsLostForAWhile) {
  losing<TypeParam> network{this->database_};
  network.lose(loss::late, 3);

  const outcome done = update(network.executor(), this->counters(), "a", add_one, at_once());

  EXPECT_TRUE(done);
  EXPECT_EQ(done.version, 101);
  EXPECT_EQ(network.arrive(), 0U);
  EXPECT_EQ(this->n(), 6);
}

/// The write that update() could not settle.
inline std::optional<pending_write> pending_after(const std::function<void()>& call) {
  try {
    call();
  } catch (const unsettled& unknown) {
    EXPECT_EQ(unknown.code(), errc::outcome_unknown);
    return unknown.write();
  }
  return std::nullopt;
}

TYPED_TEST_P(OptimisticRows, SayWhenNobodyCanKnow) {
  losing<TypeParam> network{this->database_};
  network.meanwhile = [&] { this->add_tens(8); };
  network.lose(loss::after);

  const auto write = pending_after(
      [&] { (void)update(network.executor(), this->counters(), "a", add_one, at_once()); });

  ASSERT_TRUE(write);
  EXPECT_EQ(settle(this->database_.executor(), this->counters(), *write), settlement::unknown);
}

TYPED_TEST_P(OptimisticRows, AreSettledLater) {
  struct line {
    loss how;
    int others;
    settlement expected;
    std::int64_t added;
  };
  for (const line& each :
       {line{loss::after, 0, settlement::written, 1}, line{loss::after, 7, settlement::written, 71},
        line{loss::before, 0, settlement::not_written, 0},
        line{loss::late, 0, settlement::not_written, 0},
        line{loss::late, 8, settlement::not_written, 80}}) {
    const std::int64_t before = this->n();
    losing<TypeParam> network{this->database_};
    network.lose(each.how);
    options once = at_once();
    once.most_attempts = 1;

    const auto write = pending_after(
        [&] { (void)update(network.executor(), this->counters(), "a", add_one, once); });
    this->add_tens(each.others);

    ASSERT_TRUE(write);
    EXPECT_EQ(settle(this->database_.executor(), this->counters(), *write), each.expected);
    EXPECT_EQ(network.arrive(), 0U);  // too late, whatever it says
    EXPECT_EQ(settle(this->database_.executor(), this->counters(), *write), each.expected);
    EXPECT_EQ(this->n(), before + each.added);
  }
}

TYPED_TEST_P(OptimisticRows, WithoutWritersAreSettledWhileNobodyElseWrites) {
  losing<TypeParam> network{this->database_};
  network.lose(loss::late);
  EXPECT_TRUE(update(network.executor(), this->forgetful_counters(), "a", add_one, at_once()));
  EXPECT_EQ(network.arrive(), 0U);
  EXPECT_EQ(this->n(), 6);

  network.lose(loss::after);
  const auto write = pending_after([&] {
    (void)update(network.executor(), this->forgetful_counters(), "a", add_one, at_once());
  });
  ASSERT_TRUE(write);
  EXPECT_EQ(settle(this->database_.executor(), this->forgetful_counters(), *write),
            settlement::unknown);
}

TYPED_TEST_P(OptimisticRows, DoNotHideAWriteInDoubtBehindAnotherError) {
  int statements = 0;
  const sql::executor broken = [&](const sql::statement& one) -> sql::answer {
    if (++statements == 1) return this->database_(one);
    if (statements == 2) {
      this->database_(one);
      throw sql::connection_lost("gone");
    }
    throw kit::sql_error("28000", "no longer welcome");
  };

  const auto write =
      pending_after([&] { (void)update(broken, this->counters(), "a", add_one, at_once()); });

  ASSERT_TRUE(write);
  EXPECT_EQ(settle(this->database_.executor(), this->counters(), *write), settlement::written);
}

TYPED_TEST_P(OptimisticRows, NeverCallABrokenDatabaseAConflict) {
  const sql::executor nobody = [](const sql::statement&) -> sql::answer {
    throw sql::connection_lost("nobody there");
  };
  options how = at_once();
  how.most_attempts = 3;

  EXPECT_THROW((void)update(nobody, this->counters(), "a", add_one, how), sql::connection_lost);
  EXPECT_THROW((void)settle(nobody, this->counters(), {.key = "a", .version = 1}, how),
               sql::connection_lost);
}

TYPED_TEST_P(OptimisticRows, KeepTheCountWhateverTheNetworkDoes) {
  constexpr int threads = 5;
  constexpr int each = 20;
  std::atomic<int> written{0};
  std::atomic<int> unknown{0};
  std::atomic<std::uint64_t> arrived_too_late{0};

  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, seed = static_cast<std::uint64_t>(i)] {
      base::random random{seed};
      session<TypeParam> own;
      for (int round = 0; round < each; ++round) {
        losing<TypeParam> network{own};
        network.lose(loss(random.below(3)), static_cast<int>(random.below(4)));
        options how{.time_limit = std::chrono::minutes{1}};
        if (random.chance(0.3)) how.most_attempts = 1;  // impatient: settles what is left over
        std::optional<pending_write> left_over;
        try {
          const outcome done = update(network.executor(), this->counters(), "a", add_one, how);
          written += done ? 1 : 0;
        } catch (const unsettled& open) {
          left_over = open.write();
        }
        if (left_over) {
          const settlement found = settle(own.executor(), this->counters(), *left_over,
                                          {.time_limit = std::chrono::minutes{1}});
          written += found == settlement::written ? 1 : 0;
          unknown += found == settlement::unknown ? 1 : 0;
        }
        arrived_too_late += network.arrive();
      }
    });
  }
  for (auto& one : all) one.join();

  EXPECT_GT(written, 0);
  EXPECT_GE(this->n(), 5 + written);
  EXPECT_LE(this->n(), 5 + written + unknown);
  EXPECT_EQ(arrived_too_late, 0U);
}

REGISTER_TYPED_TEST_SUITE_P(OptimisticRows, WriteWhatWasDecided, WriteNothingWhenSoDecided,
                            LoseNoUpdateOfManyThreads, DecideAgainAfterAConflictAndCountIt,
                            GiveUpWhenOthersAreAlwaysFaster, StopAtOnceWhenAsked,
                            TellAMissingRowOrMakeIt, AreMadeAgainAtAnotherVersion,
                            LetErrorsOfTheDatabaseAndOfTheDecisionOut, RefuseOptionsThatMakeNoSense,
                            KeepAnyValueExactly, WriteWhatBelongsToTheRowInOneTransaction,
                            AreWrittenOnceWhateverALostConnectionDid,
                            AreWrittenOnceWhenEveryAnswerIsLostForAWhile, SayWhenNobodyCanKnow,
                            AreSettledLater, WithoutWritersAreSettledWhileNobodyElseWrites,
                            DoNotHideAWriteInDoubtBehindAnotherError,
                            NeverCallABrokenDatabaseAConflict, KeepTheCountWhateverTheNetworkDoes);

}  // namespace sallyport::optimistic

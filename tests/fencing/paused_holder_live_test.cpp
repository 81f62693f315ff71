// A holder is stopped for longer than its lease; another takes the lock, rightly, and writes; the
// first is woken and writes. Once without a gate, where the second's write is lost, and once with,
// for each gate and a real store of locks.

#include "tests/fencing/balance.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/etcd_server.hpp"
#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/postgres_server.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace sallyport::fencing {
namespace {

using namespace std::chrono_literals;

constexpr auto lease_length = 1000ms;

/// Started by the main thread when first asked for; they live as long as the program.
template <class Server>
Server& started() {
  static Server server;
  return server;
}

class PausedHolder : public testing::TestWithParam<std::string> {
 protected:
  std::string where() const {
    if (GetParam() == "file") return folder_.path();
    if (GetParam() == "redis") return std::to_string(started<kit::redis_server>().port());
    if (GetParam() == "etcd") return std::to_string(started<kit::etcd_cluster>().port(0));
    if (GetParam().starts_with("postgres")) return started<kit::postgres_server>().address();
    return std::to_string(started<kit::mariadb_server>().port());
  }

  /// The story. What the late holder's exit code was.
  int late_write(bool guarded) {
    const std::string store =
        "redis://127.0.0.1:" + std::to_string(started<kit::redis_server>().port());
    const std::string name = GetParam() + (guarded ? "/guarded" : "/bare");
    const std::string place = where();
    kept_ = open_balance(GetParam(), place);
    kept_->prepare(guarded);
    kit::child_process first{
        {.program = SALLYPORT_FENCING_HOLDER,
         .called_as = {},
         .arguments = {store, name, std::to_string(lease_length.count()), GetParam(), place,
                       guarded ? "guarded" : "bare", folder_.path()},
         .environment = {},
         .folder = folder_.path(),
         .log = folder_.path() / "log",
         .run_as = {}}};
    EXPECT_TRUE(kit::eventually([&] { return exists(folder_.path() / "holding"); }))
        << first.log_tail();
    first.pause();

    const client second = client::open(store);
    mutex lock{second, name};
    const auto lease = lock.try_acquire_for(kit::patience);
    EXPECT_TRUE(lease);
    const int seen = kept_->read();
    if (guarded) {
      EXPECT_TRUE(kept_->write_guarded(lease->fence_pass(), seen + 50));
    } else {
      kept_->write(seen + 50);
    }
    EXPECT_EQ(kept_->read(), 150);
    EXPECT_TRUE(lease->valid());

    std::ofstream{folder_.path() / "go"} << "";
    first.resume();
    const auto code = first.wait_for_end();
    EXPECT_TRUE(code) << first.log_tail();
    EXPECT_TRUE(code == 0 || code == 10) << first.log_tail();
    if (guarded) {  // the rightful holder works on
      EXPECT_TRUE(kept_->write_guarded(lease->fence_pass(), kept_->read() + 1));
    }
    return code.value_or(-1);
  }

  int balance_now() { return kept_->read(); }

 private:
  const kit::temporary_folder folder_;
  std::unique_ptr<balance> kept_;
};

INSTANTIATE_TEST_SUITE_P(At, PausedHolder,
                         testing::Values("file", "redis", "etcd", "postgres_gate", "postgres_row",
                                         "postgres_trigger", "mariadb_gate", "mariadb_row",
                                         "mariadb_trigger"),
                         [](const auto& one) { return one.param; });

TEST_P(PausedHolder, DestroysTheUpdateOfTheNextWithoutAGate) {
  EXPECT_EQ(late_write(false), 0);
  EXPECT_EQ(balance_now(), 70);  // the second's 50 are gone
}

TEST_P(PausedHolder, IsRefusedByTheGate) {
  EXPECT_EQ(late_write(true), 10);
  EXPECT_EQ(balance_now(), 151);
}

}  // namespace
}  // namespace sallyport::fencing

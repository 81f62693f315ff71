#include "base/random.hpp"
#include "fence/gate_testing.hpp"
#include "fence/test_rebinding.hpp"
#include "tests/kit/etcd_probe.hpp"
#include "tests/kit/etcd_server.hpp"
#include <sallyport/fence_etcd.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::fence {
namespace {

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  std::uint64_t token;
  pass fence_pass() const { return {.lock = "orders", .token = fencing_token{token}}; }
};

class EtcdGateLive : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = std::make_unique<kit::etcd_cluster>(); }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override { cluster_->ctl({"del", "", "--from-key=true"}); }

  static kit::etcd_probe connect() { return kit::etcd_probe{cluster_->port(0)}; }
  static verdict show(const kit::etcd_probe& etcd, const etcd_gate& gate, const pass& shown,
                      const std::vector<etcd_operation>& guarded = {}) {
    return etcd_gate::verdict_of(etcd.commit(to_json(gate.transaction(shown, guarded))));
  }

 private:
  static inline std::unique_ptr<kit::etcd_cluster> cluster_;
};

TEST_F(EtcdGateLive, LosesTheUpdateWhenNobodyStandsInFront) {
  const auto etcd = connect();
  etcd.put("orders/balance", "100");

  const int seen_by_first = std::stoi(*etcd.get("orders/balance"));
  etcd.put("orders/balance", "150");
  etcd.put("orders/balance", std::to_string(seen_by_first - 30));

  EXPECT_EQ(etcd.get("orders/balance"), "70");  // the second holder's 50 are gone
}

TEST_F(EtcdGateLive, RefusesTheLostUpdate) {
  const fake_lease first{33};
  const fake_lease second{34};
  const auto etcd = connect();
  etcd.put("orders/balance", "100");

  // docs/fencing.md shows what follows.
  const etcd_gate gate{"orders/fence"};

  const int seen_by_first = std::stoi(*etcd.get("orders/balance"));
  const auto for_second =
      etcd.commit(to_json(gate.transaction(second, {{.key = "orders/balance", .value = "150"}})));
  const std::string by_first = std::to_string(seen_by_first - 30);
  const auto for_first =
      etcd.commit(to_json(gate.transaction(first, {{.key = "orders/balance", .value = by_first}})));
  // etcd_gate::verdict_of(for_second) is passed, of for_first it is stale.

  EXPECT_EQ(etcd_gate::verdict_of(for_second), verdict::passed);
  EXPECT_EQ(etcd_gate::verdict_of(for_first), verdict::stale);
  EXPECT_EQ(etcd.get("orders/balance"), "150");
}

TEST_F(EtcdGateLive, JudgesAsAMemoryGateDoes) {
  base::random random{20};
  const auto etcd = connect();

  for (int round = 0; round < 10; ++round) {
    const std::uint64_t base =
        random.chance(0.5) ? 1 : std::numeric_limits<std::uint64_t>::max() - 12;
    const bool bound = random.chance(0.3);
    memory_gate model_bound{"orders"};
    memory_gate model_unbound;
    memory_gate& model = bound ? model_bound : model_unbound;
    const etcd_gate gate{"fence-" + std::to_string(round), bound ? "orders" : ""};
    for (int step = 0; step < 25; ++step) {
      const pass shown{.lock = random.chance(0.1) ? "invoices" : "orders",
                       .token = fencing_token{base + random.below(12)},
                       .mode = random.chance(0.5) ? lock_mode::exclusive : lock_mode::shared};
      const std::string mark = std::to_string(round) + "/" + std::to_string(step);
      bool ran = false;
      const verdict expected = model.run(shown, [&] { ran = true; });
      ASSERT_EQ(show(etcd, gate, shown, {{.key = "ran", .value = mark}}), expected) << mark;
      ASSERT_EQ(etcd.get("ran") == mark, ran) << mark;
    }
  }
}

TEST_F(EtcdGateLive, IsBoundAnewAsAMemoryGateIs) {
  const auto etcd = connect();
  const etcd_gate gate{"fence"};
  rebind_like_a_memory_gate(
      5, 1, 60, [&](const pass& shown) { return show(etcd, gate, shown); },
      [&](const std::string& from, const pass& shown, rebinding kind) {
        return etcd_gate::verdict_of(etcd.commit(to_json(gate.rebind(from, shown, kind))));
      });
}

TEST_F(EtcdGateLive, PassesEveryByte) {
  const auto etcd = connect();
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const pass shown{.lock = bytes, .token = fencing_token{7}};

  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(show(etcd, etcd_gate{"gate" + bytes}, shown, {{.key = bytes, .value = bytes}}),
              verdict::passed);
  }
  EXPECT_EQ(show(etcd, etcd_gate{"gate" + bytes}, exclusive(9)), verdict::wrong_lock);

  EXPECT_EQ(etcd.get(bytes), bytes);
}

TEST_F(EtcdGateLive, ChangesNothingWhenAnOperationIsRefused) {
  const auto etcd = connect();

  // No such lease.
  EXPECT_THROW((void)show(etcd, etcd_gate{"fence"}, exclusive(8),
                          {{.key = "a", .value = "x"}, {.key = "b", .value = "x", .lease = 77}}),
               kit::kit_error);

  EXPECT_EQ(etcd.get("a"), std::nullopt);
  EXPECT_EQ(etcd.get("fence/lock"), std::nullopt);
}

// Each client writes its token under it: whatever is let through is in order.
TEST_F(EtcdGateLive, LetsNoOlderWriteFollowANewerOne) {
  constexpr std::uint64_t clients = 4;
  constexpr std::uint64_t turns = 40;
  std::vector<std::vector<std::uint64_t>> passed(clients);
  std::vector<std::thread> threads;
  for (std::uint64_t client = 0; client < clients; ++client) {
    threads.emplace_back([client, &passed] {
      const auto etcd = connect();
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        const std::uint64_t token = 1 + turn * clients + client;
        const std::string text = std::to_string(token);
        const auto answer =
            show(etcd, etcd_gate{"fence"}, exclusive(token), {{.key = "newest", .value = text}});
        if (answer == verdict::passed) passed[client].push_back(token);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const auto etcd = connect();
  std::uint64_t newest = 0;
  for (const auto& each : passed) newest = each.empty() ? newest : std::max(newest, each.back());
  EXPECT_EQ(etcd.get("newest"), std::to_string(newest));
  const std::string digits = std::to_string(newest);
  EXPECT_EQ(etcd.get("fence/exclusive"), std::string(20 - digits.size(), '0') + digits);
}

}  // namespace
}  // namespace sallyport::fence

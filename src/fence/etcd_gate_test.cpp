#include "base/random.hpp"
#include "fence/gate_testing.hpp"
#include "fence/test_rebinding.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence_etcd.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace sallyport::fence {
namespace {

using operation = etcd_operation;
using field = etcd_compare::field;
using relation = etcd_compare::relation;

/// Of an etcd: keys with values, and what a transaction does with them.
class model_etcd {
 public:
  std::map<std::string, std::string> values{};

  /// The `succeeded` of the answer, and of those within it.
  std::vector<bool> commit(const operation& txn) {
    const bool good = std::all_of(txn.when.begin(), txn.when.end(),
                                  [this](const etcd_compare& each) { return holds(each); });
    std::vector<bool> told{good};
    for (const operation& each : good ? txn.then : txn.otherwise) {
      switch (each.does) {
        case operation::kind::put:
          values[each.key] = each.value;
          break;
        case operation::kind::erase:
          values.erase(each.key);
          break;
        case operation::kind::read:
          break;
        case operation::kind::txn:
          for (const bool inner : commit(each)) told.push_back(inner);
          break;
      }
    }
    return told;
  }

 private:
  [[nodiscard]] bool holds(const etcd_compare& one) const {
    const auto found = values.find(one.key);
    int order = 0;
    if (one.what == field::value) {
      if (found == values.end()) return false;  // etcd: no value compares with nothing
      order = found->second.compare(one.value);
    } else {
      const std::int64_t version = found == values.end() ? 0 : 1;
      order = version < one.number ? -1 : static_cast<int>(version > one.number);
    }
    switch (one.is) {
      case relation::equal:
        return order == 0;
      case relation::greater:
        return order > 0;
      case relation::less:
        return order < 0;
      case relation::different:
        return order != 0;
    }
    return false;
  }
};

verdict show(model_etcd& etcd, const etcd_gate& gate, const pass& shown,
             const std::vector<operation>& guarded = {}) {
  return etcd_gate::verdict_of(etcd.commit(gate.transaction(shown, guarded)));
}

errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const lock_error& error) {
    return static_cast<errc>(error.code().value());
  }
  return errc{};
}

TEST(EtcdGate, JudgesAsAMemoryGateDoes) {
  base::random random{7};
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t base =
        random.chance(0.5) ? 1 : std::numeric_limits<std::uint64_t>::max() - 12;
    const bool bound = random.chance(0.3);
    memory_gate model_bound{"orders"};
    memory_gate model_unbound;
    memory_gate& model = bound ? model_bound : model_unbound;
    model_etcd etcd;
    const etcd_gate gate{"fence", bound ? "orders" : ""};
    for (int step = 0; step < 40; ++step) {
      const pass shown{.lock = random.chance(0.1) ? "invoices" : "orders",
                       .token = fencing_token{base + random.below(12)},
                       .mode = random.chance(0.5) ? lock_mode::exclusive : lock_mode::shared};
      bool ran = false;
      const verdict expected = model.run(shown, [&] { ran = true; });
      etcd.values.erase("ran");
      ASSERT_EQ(show(etcd, gate, shown, {{.key = "ran"}}), expected)
          << "round " << round << ", step " << step;
      ASSERT_EQ(etcd.values.contains("ran"), ran);
    }
  }
}

TEST(EtcdGate, IsBoundAnewAsAMemoryGateIs) {
  for (std::uint64_t round = 0; round < 100; ++round) {
    model_etcd etcd;
    const etcd_gate gate{"fence"};
    rebind_like_a_memory_gate(
        round, round % 2 == 0 ? 1 : ~std::uint64_t{0} - 12, 40,
        [&](const pass& shown) { return show(etcd, gate, shown, {}); },
        [&](const std::string& from, const pass& shown, rebinding kind) {
          return etcd_gate::verdict_of(etcd.commit(gate.rebind(from, shown, kind)));
        });
  }
}

TEST(EtcdGate, KeepsItsNumbersAsTwentyDigits) {
  model_etcd etcd;

  EXPECT_EQ(show(etcd, etcd_gate{"fence"}, exclusive(33)), verdict::passed);
  EXPECT_EQ(show(etcd, etcd_gate{"fence"}, shared(120)), verdict::passed);

  const std::map<std::string, std::string> kept{{"fence/exclusive", "00000000000000000033"},
                                                {"fence/lock", "orders"},
                                                {"fence/shared", "00000000000000000120"}};
  EXPECT_EQ(etcd.values, kept);
}

TEST(EtcdGate, LetsNobodyPassWhenItsKeysAreDamaged) {
  for (const char* key : {"fence/lock", "fence/exclusive", "fence/shared"}) {
    for (const bool writes : {true, false}) {
      model_etcd etcd;
      (void)show(etcd, etcd_gate{"fence"}, exclusive(3));
      etcd.values.erase(key);
      const pass shown = writes ? exclusive(9) : shared(9);
      EXPECT_NE(show(etcd, etcd_gate{"fence"}, shown, {{.key = "ran"}}), verdict::passed) << key;
      EXPECT_FALSE(etcd.values.contains("ran"));
    }
  }
}

TEST(EtcdGate, TakesTransactionsAsGuardedOperations) {
  model_etcd etcd;
  const operation only_if_there{.does = operation::kind::txn,
                                .key = {},
                                .value = {},
                                .when = {{.what = field::version,
                                          .is = relation::greater,
                                          .key = "row",
                                          .value = {},
                                          .number = 0}},
                                .then = {{.key = "row", .value = "new"}}};

  EXPECT_EQ(show(etcd, etcd_gate{"fence"}, exclusive(1), {only_if_there}), verdict::passed);
  EXPECT_FALSE(etcd.values.contains("row"));
  etcd.values["row"] = "old";
  EXPECT_EQ(show(etcd, etcd_gate{"fence"}, exclusive(1), {only_if_there}), verdict::passed);
  EXPECT_EQ(etcd.values["row"], "new");
}

TEST(EtcdGate, RefusesWhatCanNeverBeJudged) {
  const etcd_gate gate{"fence"};
  const operation hidden{.does = operation::kind::txn,
                         .key = {},
                         .value = {},
                         .then = {{.does = operation::kind::erase, .key = "fence/lock"}}};

  EXPECT_EQ(code_of([] { etcd_gate{""}; }), errc::bad_option);
  EXPECT_EQ(code_of([] { etcd_gate("fence", std::string(gate::max_lock_bytes + 1, 'x')); }),
            errc::bad_name);
  EXPECT_EQ(code_of([&] { (void)gate.transaction(exclusive(0), {}); }), errc::no_fencing);
  EXPECT_EQ(code_of([&] { (void)gate.transaction(pass{.token = fencing_token{1}}, {}); }),
            errc::bad_name);
  EXPECT_EQ(code_of([&] { (void)gate.transaction(exclusive(1), {{.value = "x"}}); }),
            errc::bad_option);
  EXPECT_EQ(code_of([&] { (void)gate.transaction(exclusive(1), {{.key = "fence/shared"}}); }),
            errc::bad_option);
  EXPECT_EQ(code_of([&] { (void)gate.transaction(exclusive(1), {hidden}); }), errc::bad_option);
  EXPECT_EQ(code_of([] { (void)etcd_gate::verdict_of({}); }), errc::store_refused);
  EXPECT_EQ(code_of([] { (void)etcd_gate::verdict_of({false, false}); }), errc::store_refused);
}

TEST(EtcdGate, SpeaksJsonAsTheGatewayWantsIt) {
  const operation txn{.does = operation::kind::txn,
                      .key = {},
                      .value = {},
                      .when = {{.what = field::created, .key = "a", .value = {}, .number = 7},
                               {.is = relation::less, .key = "ab", .value = "abc"}},
                      .then = {{.key = "k", .value = "v", .lease = 9}},
                      .otherwise = {{.does = operation::kind::erase, .key = "k"},
                                    {.does = operation::kind::read, .key = "k"}}};

  EXPECT_EQ(
      to_json(txn),
      R"({"compare":[{"result":"EQUAL","target":"CREATE","key":"YQ==","create_revision":"7"},)"
      R"({"result":"LESS","target":"VALUE","key":"YWI=","value":"YWJj"}],)"
      R"("success":[{"request_put":{"key":"aw==","value":"dg==","lease":"9"}}],)"
      R"("failure":[{"request_delete_range":{"key":"aw=="}},{"request_range":{"key":"aw=="}}]})");
}

}  // namespace
}  // namespace sallyport::fence

#pragma once

#include <sallyport/fence.hpp>
#include <sallyport/fence_pass.hpp>
#include <sallyport/store_entry.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::fence {

/// One condition of a transaction in etcd, in etcd's own terms (etcdserverpb.Compare).
struct etcd_compare {
  enum class field : std::uint8_t { version, created, modified, value, lease };
  enum class relation : std::uint8_t { equal, greater, less, different };
  field what = field::value;
  relation is = relation::equal;
  std::string key{};
  std::string value{};      ///< for field::value
  std::int64_t number = 0;  ///< for the others

  friend bool operator==(const etcd_compare&, const etcd_compare&) = default;
};

/// One thing that is done in etcd (etcdserverpb.RequestOp). A transaction is one, too: `then` if all of
/// `when` holds, else `otherwise`.
struct etcd_operation {
  enum class kind : std::uint8_t { put, erase, read, txn };
  kind does = kind::put;
  std::string key{};                        ///< all but txn
  std::string value{};                      ///< put
  std::int64_t lease = 0;                   ///< put: the lease that the key hangs on; 0: none
  std::vector<etcd_compare> when{};         ///< txn
  std::vector<etcd_operation> then{};       ///< txn
  std::vector<etcd_operation> otherwise{};  ///< txn

  friend bool operator==(const etcd_operation&, const etcd_operation&) = default;
};

/// A transaction as the message etcdserverpb.TxnRequest, for a client that speaks gRPC. REQUIRES: it is
/// one.
[[nodiscard]] std::string to_protobuf(const etcd_operation& txn);
/// A transaction as the body of a POST to /v3/kv/txn, for a client that speaks HTTP. REQUIRES: it is
/// one.
[[nodiscard]] std::string to_json(const etcd_operation& txn);

/// True while this grant is in the store: its key is the one that was made for it, on its lease. What
/// Go's Mutex.IsOwner says. As a condition of your own transaction it refuses a holder whose lease has
/// ended; it remembers nothing, so it does not replace a gate for what outlives the lock.
[[nodiscard]] std::vector<etcd_compare> still_holds(const store_entry& grant);

/// A gate for data that lives in etcd: the check and the guarded operations are one transaction. It
/// sends nothing itself: it says what to send, for whatever client the program has, and reads the
/// answer's `succeeded`.
///
///     const etcd_gate gate{"orders/fence"};
///     const etcd_operation txn =
///         gate.transaction(lease, {{.key = "orders/balance", .value = "150"}});
///     // send it; etcd_gate::verdict_of() takes the `succeeded` of the answer and of those within
///
/// The rule is that of `gate`, for the numbers that etcd keeps under the gate's key: KEY/lock,
/// KEY/exclusive and KEY/shared, the numbers as twenty digits, which order as strings do. It takes
/// one request, and nothing is read before it. What differs from the other gates:
/// - The guarded action is a list of operations, sent as data; it can't be C++ code. What it needs to
///   know has to be read before, under the same lease and after the gate has seen its token: with a
///   transaction whose operations are reads. An operation may be a transaction with
///   conditions of its own.
/// - All or nothing: when etcd refuses the transaction, neither the data nor the numbers change.
/// - The numbers are exactly as durable as the data. Restoring a snapshot takes both back, and the
///   tokens of locks on the same cluster with them.
///
/// The three keys have no lease and must stay: whoever deletes them deletes the memory of who was
/// late. Keys that hold something else than a gate's numbers let nobody pass.
///
/// Thread safety: immutable. Invariants in the store: as gate.
class etcd_gate {
 public:
  /// A gate whose numbers are kept under `key`, for `lock` only, or (empty) for the lock that the
  /// key remembers, or else the first that passes. Throws lock_error: bad_option when the key is
  /// empty, bad_name when the lock is longer than gate::max_lock_bytes.
  explicit etcd_gate(std::string key, std::string lock = {});

  /// One transaction that judges `shown` and, if it passes, does what is `guarded`, all in one step.
  /// When no answer comes, send it again only if the operations may be done twice: the same pass
  /// passes again. etcd takes 128 operations in one transaction (--max-txn-ops); the gate adds three.
  ///
  /// Throws lock_error: no_fencing when the pass carries no token, bad_name when its lock has not 1
  /// to gate::max_lock_bytes bytes, bad_option when an operation has no key or a key of the gate.
  [[nodiscard]] etcd_operation transaction(const pass& shown,
                                           const std::vector<etcd_operation>& guarded) const;

  /// The same under the pass that `lease` shows.
  template <shows_pass Lease>
  [[nodiscard]] etcd_operation transaction(const Lease& lease,
                                           const std::vector<etcd_operation>& guarded) const {
    const pass shown = lease.fence_pass();
    return transaction(shown, guarded);
  }

  /// One transaction that binds the gate to another lock, as gate::rebind says; verdict_of() takes its
  /// answer. A gate that nobody has passed yet is bound to nobody: wrong_lock. Throws lock_error as
  /// gate::rebind.
  [[nodiscard]] etcd_operation rebind(const std::string& from, const pass& shown,
                                      rebinding kind = rebinding::keeps_numbers) const;

  /// What the answer means: its own `succeeded`; then, if that is false, that of the one transaction
  /// within; and so on, as deep as the answer goes. Throws lock_error
  /// (store_refused) when one that is needed is missing: then it is no answer to this gate.
  static verdict verdict_of(const std::vector<bool>& succeeded);

 private:
  const std::string key_;
  const std::string lock_;  // empty: not bound by this object
};

}  // namespace sallyport::fence

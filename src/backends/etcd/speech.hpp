#pragma once

#include "backend_api/requests.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// What is said to etcd and what it answers, as far as a lock needs it; values without a library.
namespace sallyport::backends::etcd {

using backend_api::duration;
using backend_api::time_point;

using revision = std::int64_t;  ///< of the whole store; grows with every change
using lease_id = std::int64_t;

/// A key as the store has it.
struct key_value {
  std::string key{};
  std::string value{};
  revision created = 0;
  revision modified = 0;
  lease_id lease = 0;
};

/// One condition of a transaction. With `end` it has to hold for every key in [key, end), so for no
/// key at all it holds.
struct condition {
  enum class field : std::uint8_t { created, modified, lease };
  field what = field::created;
  bool greater = false;  ///< else equal
  std::int64_t number = 0;
  std::string key{};
  std::string end{};
};

struct put {
  std::string key{};
  std::string value{};
  lease_id lease = 0;
  bool only_new = false;  ///< does nothing where the key is there already
};

struct erase {
  std::string key{};
};

/// Reads one key, or all in [key, end): the youngest first, or in the order of keys.
struct look_up {
  std::string key{};
  std::string end{};
  std::int64_t limit = 0;        ///< 0: all
  revision created_at_most = 0;  ///< 0: whenever
  bool youngest_first = false;
  bool keys_only = false;
};

using operation = std::variant<put, erase, look_up>;

/// One atomic step. One that only reads is linearizable, too.
struct txn {
  std::vector<condition> when{};
  std::vector<operation> then{};
  std::vector<operation> otherwise{};
};

struct operation_answer {
  std::vector<key_value> found{};  ///< of a look_up
  bool more = false;               ///< the limit cut it off
};

struct txn_answer {
  bool succeeded = false;  ///< `then` was done, else `otherwise`
  revision at = 0;
  std::uint64_t term = 0;  ///< raft's, as the answering member knew it
  std::vector<operation_answer> answers{};
};

/// Why there is no answer.
enum class trouble : std::uint8_t {
  unavailable,    ///< certainly nothing happened
  unknown,        ///< sent, and nobody knows
  no_such_lease,  ///< etcd: the lease has ended
  lease_exists,   ///< etcd: it was granted before; by an earlier try, if there was one
  refused,        ///< etcd's own word; `text` quotes it
};

template <class T>
struct reply {
  std::optional<T> value{};
  trouble why = trouble::unavailable;
  std::string text{};
  /// An earlier try of the same request may still be executed.
  bool doubtful = false;
};

struct key_event {
  bool deleted = false;
  key_value now;  ///< deleted: the key alone counts
};

using watch_number = std::int64_t;

}  // namespace sallyport::backends::etcd

#pragma once

#include <cstdint>
#include <string>

namespace sallyport {

/// How the store itself calls a grant: for programs that also talk to the store on their own, and
/// for those that know the lock from another library. Only etcd has such names today.
struct store_entry {
  std::string key{};         ///< etcd: the holder's key, what Key() of Go's concurrency.Mutex says
  std::int64_t created = 0;  ///< etcd: the create_revision of that key
  std::int64_t lease = 0;    ///< etcd: the lease that the key hangs on

  friend bool operator==(const store_entry&, const store_entry&) = default;
};

}  // namespace sallyport

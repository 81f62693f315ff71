#pragma once

#include "backends/etcd/description.hpp"
#include "backends/etcd/layout.hpp"

#include <span>
#include <string>
#include <vector>

namespace sallyport::backends::etcd {

/// One contender of a name, as the store shows it.
struct entry {
  std::string key;
  form what = form::foreign;
  bool shared = false;  ///< a reader, or a writer that was downgraded
  bool closed = false;  ///< a tombstone
  std::uint32_t permits = 0;
  revision created = 0;
};

/// Where a contender stands, judged by those that came before it. They only ever go away: nobody can
/// come in before it, so whoever is admitted stays so.
struct standing {
  enum class word : std::uint8_t {
    admitted,
    blocked,
    wrong_kind,  ///< those before it use the name as another kind
    unclear,     ///< more of those before it have to be read
  };
  word is = word::unclear;
  /// blocked: the key whose end (or change, with `by_change`) may let it in; empty: that of anybody
  /// before it.
  std::string behind{};
  bool by_change = false;
  std::uint32_t permits = 1;  ///< semaphore: the N that counts
};

/// The contender that a key stands for; nullopt: a deeper key, or one without a lease.
[[nodiscard]] std::optional<entry> entry_of(std::string_view folder, const key_value& found);

/// `before`: the contenders that were created earlier, youngest first; `complete`: all of them.
[[nodiscard]] standing stand(form mine, std::uint32_t permits, std::span<const entry> before,
                             bool complete);

/// How many of these have to be read at first, so that one look is mostly enough.
[[nodiscard]] std::int64_t page_for(form mine, std::uint32_t permits) noexcept;

}  // namespace sallyport::backends::etcd

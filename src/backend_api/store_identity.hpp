#pragma once

#include "base/mutex.hpp"
#include "base/result.hpp"

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace sallyport::backend_api {

/// Whether a store may be called so: 1 to 64 letters, digits, '.', '_' and '-'. It travels in
/// addresses, environments and SQL settings, so nothing in it ever needs quoting.
[[nodiscard]] bool acceptable_store_name(std::string_view name) noexcept;
/// What acceptable_store_name() takes, as a sentence for messages.
inline constexpr std::string_view store_names_are =
    "the name of a store (store=) is 1 to 64 letters, digits, '.', '_' and '-'";

/// A name for a store that has none yet: 32 hexadecimal digits, from the kernel.
[[nodiscard]] std::string fresh_store_name();

/// What a client knows of its store's identity: the name that was drawn when the store was first used
/// and is kept there beside its tokens, or the one that the address gives by hand.
/// A store that lost its data has another name when it is met again. The texts of id() stay good
/// for the life of this object, so a lease can keep the one of the store that granted it.
/// Thread safety: all members. id() neither blocks nor calls anybody.
/// Invariant: once id() is not empty it stays so.
class store_identity {
 public:
  /// `scheme`: what stands before the colon. `named_by_hand`: empty, or the address's own name, which
  /// no store can change; REQUIRES: acceptable_store_name(). `place`: which of the token spaces that
  /// one server can have it is (database, prefix, root); it follows the name given by hand, because
  /// nothing else would tell two of them apart.
  explicit store_identity(std::string_view scheme, std::string_view named_by_hand = {},
                          std::string_view place = {});

  /// "redis:4f1c..."; empty: the store has not said yet.
  [[nodiscard]] const std::string& id() const noexcept {
    return *latest_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool known() const noexcept { return !id().empty(); }
  [[nodiscard]] bool named_by_hand() const noexcept { return by_hand_; }

  /// The store says that this is its name. Another one than before is logged. Fails with
  /// store_refused when it can't be one.
  base::result<void> learn(std::string_view name) SALLYPORT_EXCLUDES(mutex_);

  /// A store that has had more names during one client's life is not one that keeps them.
  static constexpr std::size_t most_names = 1'000;

 private:
  const std::string scheme_;
  const bool by_hand_;
  const std::string none_;
  std::atomic<const std::string*> latest_{&none_};

  base::mutex mutex_;
  std::deque<std::string> all_ SALLYPORT_GUARDED_BY(mutex_);  // its elements never move
};

}  // namespace sallyport::backend_api

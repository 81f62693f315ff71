#pragma once

#include <sallyport/capabilities.hpp>
#include <sallyport/error.hpp>
#include <sallyport/inspect.hpp>
#include <sallyport/options.hpp>
#include <sallyport/types.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport {

namespace detail {
class client_state;
}

/// How `break_lock` takes a lock away.
enum class break_style : std::uint8_t {
  /// renewals fail and the holder is told, but nobody enters before the holder's deadline has
  /// passed
  safe,
  /// the next waiter enters now; only resources behind a fence are safe from the old holder
  at_once
};

/// The way to one store: connections, the watchdog that renews, the notifiers that tell. A cheap
/// handle: copies share one connection and one watchdog, and the last of the copies, locks and
/// leases closes it. Closing waits for at most a second, and not longer than request_timeout, until
/// the store has heard of the last releases and withdrawals; what it could not hear ends with its
/// lease.
/// Thread safety: all members. In a forked child every handle of the parent is dead (errc::forked).
class client {
 public:
  /// Opens the store at `uri`: "local:" or "" (all processes of this user on this machine),
  /// "local:machine" (all users of this machine, once root has run `sallyport init local:machine`),
  /// "local:/path" (a store of its own in that folder, which several users may share), "memory:" (a
  /// private store of this process), "memory:NAME" (shared inside this process). Checks the address; an
  /// unreachable store shows at the first use.
  /// Throws lock_error: bad_uri, unknown_scheme, bad_option, module_unusable (the backend lies in a
  /// file of its own that is loaded now, and that failed; see client_options::modules). A password
  /// belongs into the environment or a file, not into a string that ends up in a log.
  static client open(std::string_view uri, client_options options = {});

  /// What an administrator has to run before the store at `uri` can be used by those who may not make
  /// tables there; the store itself is not asked, and of the options only `modules` counts. Throws
  /// lock_error: not_supported (this store needs nothing of the kind), and as open().
  [[nodiscard]] static std::string schema(std::string_view uri, const client_options& options = {});

  /// What this store promises.
  [[nodiscard]] const sallyport::capabilities& capabilities() const noexcept;

  /// Up to `limit` locks in byte order whose names begin with `prefix` and come after `after`: to
  /// go on, pass the last name you got. Throws lock_error when the store cannot say.
  [[nodiscard]] std::vector<lock_info> list(std::string_view prefix = {},
                                            std::string_view after = {},
                                            std::size_t limit = 1000) const;
  /// Who holds it and who waits; empty when it is free.
  [[nodiscard]] std::optional<lock_info> who(const lock_name& name) const;
  /// Takes the grant that carries `observed` (see who()) away from its holder. Throws lock_error:
  /// no_such_lock, token_mismatch (it has changed hands since you looked), or what the store says.
  void break_lock(const lock_name& name, fencing_token observed,
                  break_style style = break_style::safe) const;

  /// For the library's own parts.
  [[nodiscard]] const std::shared_ptr<detail::client_state>& state() const noexcept {
    return state_;
  }

 private:
  explicit client(std::shared_ptr<detail::client_state> state) noexcept
      : state_(std::move(state)) {}
  std::shared_ptr<detail::client_state> state_;
};

}  // namespace sallyport

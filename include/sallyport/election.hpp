#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/client.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/options.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>

namespace sallyport {

namespace detail {
class lock_core;
class observation_state;
}  // namespace detail

/// Who leads, and what it says.
struct leader_info {
  std::string value;
  fencing_token token;
  std::string host;
  std::int64_t pid = 0;
  std::string label;

  friend bool operator==(const leader_info&, const leader_info&) = default;
};

/// Ends the observation when destroyed; no callback runs after that (unless destroyed inside the
/// callback).
class observation {
 public:
  observation(observation&&) noexcept = default;
  observation& operator=(observation&&) noexcept;
  observation(const observation&) = delete;
  observation& operator=(const observation&) = delete;
  ~observation();

 private:
  friend class election;
  observation(std::shared_ptr<detail::client_state> client,
              std::shared_ptr<detail::observation_state> state) noexcept
      : client_(std::move(client)), state_(std::move(state)) {}
  std::shared_ptr<detail::client_state> client_;
  std::shared_ptr<detail::observation_state> state_;
};

/// A mutex whose entry carries a value and can be observed: one leader at a time, and everybody can
/// see which.
/// Thread safety: all members.
class election {
 public:
  election(const client& store, const lock_name& name, const lock_options& options = {});
  ~election();
  election(const election&) = delete;
  election& operator=(const election&) = delete;

  static constexpr std::size_t max_value_bytes = 64 * 1024;

  [[nodiscard]] const lock_name& name() const noexcept;

  /// Waits until this candidate leads. The lease is the leadership: released, it passes to the next
  /// candidate.
  [[nodiscard]] lease campaign(std::string_view value);
  /// Empty: stopped.
  [[nodiscard]] std::optional<lease> campaign(std::string_view value, std::stop_token stop);
  /// Empty: somebody else leads.
  [[nodiscard]] std::optional<lease> try_campaign(std::string_view value);
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_campaign_for(
      std::string_view value, const std::chrono::duration<Rep, Period>& wait,
      std::stop_token stop = {}) {
    return campaign_until(value, detail::from_now(wait), std::move(stop));
  }

  /// Replaces what the leader says. Throws lock_error lease_lost when `leadership` no longer leads.
  void proclaim(const lease& leadership, std::string_view value);
  /// Who leads now; empty: nobody.
  [[nodiscard]] std::optional<leader_info> leader() const;
  /// Calls back at once with the present leader and then whenever leader or value changed, on the
  /// notifier's thread. Steps that follow each other quickly may be seen as one. Told by the store
  /// where it can, else by re-reading. Throws lock_error: no_thread, not_enough_memory.
  [[nodiscard]] observation observe(
      std::function<void(const std::optional<leader_info>&)> callback) const;

 private:
  [[nodiscard]] std::optional<lease> campaign_until(std::string_view value,
                                                    lease_clock::time_point until,
                                                    std::stop_token stop);
  std::unique_ptr<detail::lock_core> core_;
};

}  // namespace sallyport

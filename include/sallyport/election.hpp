#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/client.hpp>
#include <sallyport/error.hpp>
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
#include <utility>

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
/// see which. Each call has a throwing form and a twin that reports through std::error_code and never
/// throws (detail::acquiring says more).
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
  [[nodiscard]] std::optional<lease> campaign(std::string_view value,
                                              std::error_code& error) noexcept {
    return wait(value, lease_clock::time_point::max(), {}, error);
  }
  [[nodiscard]] std::optional<lease> campaign(std::string_view value, std::stop_token stop,
                                              std::error_code& error) noexcept {
    return wait(value, lease_clock::time_point::max(), std::move(stop), error);
  }

  /// Empty: somebody else leads.
  [[nodiscard]] std::optional<lease> try_campaign(std::string_view value);
  [[nodiscard]] std::optional<lease> try_campaign(std::string_view value,
                                                  std::error_code& error) noexcept {
    return wait(value, lease_clock::time_point::min(), {}, error);
  }

  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_campaign_for(
      std::string_view value, const std::chrono::duration<Rep, Period>& wait,
      std::stop_token stop = {}) {
    return campaign_until(value, detail::from_now(wait), std::move(stop));
  }
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_campaign_for(
      std::string_view value, const std::chrono::duration<Rep, Period>& span, std::stop_token stop,
      std::error_code& error) noexcept {
    return wait(value, detail::from_now(span), std::move(stop), error);
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_campaign_until(
      std::string_view value, const std::chrono::time_point<Clock, Duration>& deadline,
      std::stop_token stop = {}) {
    return campaign_until(value, detail::on_lease_clock(deadline), std::move(stop));
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_campaign_until(
      std::string_view value, const std::chrono::time_point<Clock, Duration>& deadline,
      std::stop_token stop, std::error_code& error) noexcept {
    return wait(value, detail::on_lease_clock(deadline), std::move(stop), error);
  }

  /// This election as a lock with one value to lead under, whose acquire() is campaign(): for
  /// with_lock, and wherever else the calls of a mutex are wanted.
  class candidacy : public detail::acquiring<candidacy> {
   private:
    friend class election;
    friend class detail::acquiring<candidacy>;
    candidacy(election& owner, std::string_view value) : owner_(owner), value_(value) {}
    [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                            std::error_code& error) noexcept {
      return owner_.wait(value_, until, std::move(stop), error);
    }

    election& owner_;
    std::string value_;
  };
  /// Good for as long as the election lives.
  [[nodiscard]] candidacy candidate(std::string_view value) { return candidacy{*this, value}; }

  /// Replaces what the leader says. Throws lock_error lease_lost when `leadership` no longer leads.
  /// After outcome_unknown the value may still take effect later, also after that of a later call:
  /// call again.
  void proclaim(const lease& leadership, std::string_view value);
  void proclaim(const lease& leadership, std::string_view value, std::error_code& error) noexcept;

  /// Who leads now; empty: nobody.
  [[nodiscard]] std::optional<leader_info> leader() const;
  /// Empty without an error: nobody.
  [[nodiscard]] std::optional<leader_info> leader(std::error_code& error) const noexcept;

  using leader_callback = std::function<void(const std::optional<leader_info>&)>;
  using unknown_callback = std::function<void(const lock_error&)>;

  /// Calls `changed` at once with the present leader and then whenever leader or value changed, on
  /// the notifier's thread. Steps that follow each other quickly may be seen as one. Told by the store
  /// where it can, else by re-reading at every heartbeat.
  ///
  /// While the store can't be reached nobody knows who leads: whom `changed` named last may have been
  /// succeeded long ago. Then `unknown` (may be empty) is called, once an outage, with the reason: at
  /// the first heartbeat at which the store fails to say, or has not answered for request_timeout.
  /// When it is known again `changed` is called, also if it is the same leader. Whoever gives no
  /// `unknown` hears of changes alone.
  ///
  /// | the store ...                 | `changed`            | `unknown` |
  /// |-------------------------------|----------------------|-----------|
  /// | names a leader, or nobody     | if it differs        | -         |
  /// | does not answer               | -                    | once      |
  /// | answers again, with the same  | if `unknown` was called | -      |
  ///
  /// Throws lock_error: no_thread, not_enough_memory.
  [[nodiscard]] observation observe(leader_callback changed, unknown_callback unknown = {}) const;
  /// Empty: an error.
  [[nodiscard]] std::optional<observation> observe(leader_callback changed,
                                                   unknown_callback unknown,
                                                   std::error_code& error) const noexcept;

 private:
  [[nodiscard]] std::optional<lease> wait(std::string_view value, lease_clock::time_point until,
                                          std::stop_token stop, std::error_code& error) noexcept;
  /// wait(), whose error is thrown.
  [[nodiscard]] std::optional<lease> campaign_until(std::string_view value,
                                                    lease_clock::time_point until,
                                                    std::stop_token stop);
  std::unique_ptr<detail::lock_core> core_;
};

}  // namespace sallyport

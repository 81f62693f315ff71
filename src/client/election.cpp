#include "client/lock_core.hpp"
#include "client/observations.hpp"
#include <sallyport/election.hpp>
#include <sallyport/error.hpp>

#include <new>
#include <string>
#include <utility>

namespace sallyport {
namespace {

constexpr std::string_view too_long = "an election's value has at most 65,536 bytes";

}  // namespace

observation& observation::operator=(observation&& other) noexcept {
  if (this != &other) {
    observation old = std::move(*this);
    client_ = std::move(other.client_);
    state_ = std::move(other.state_);
  }
  return *this;
}

observation::~observation() {
  if (state_) state_->end();
}

election::election(const client& store, const lock_name& name, const lock_options& options)
    : core_(std::make_unique<detail::lock_core>(store, name, lock_kind::election,
                                                lock_mode::exclusive, 1U, options)) {}

election::~election() = default;

const lock_name& election::name() const noexcept { return core_->spec().name; }

std::optional<lease> election::wait(std::string_view value, lease_clock::time_point until,
                                    std::stop_token stop, std::error_code& error) noexcept {
  if (value.size() > max_value_bytes) {
    detail::report(error, errc::bad_option, too_long);
    return std::nullopt;
  }
  return core_->wait(until, stop, value, error);
}

std::optional<lease> election::campaign_until(std::string_view value, lease_clock::time_point until,
                                              std::stop_token stop) {
  std::error_code error;
  auto got = wait(value, until, std::move(stop), error);
  if (error) detail::throw_failure(error);
  return got;
}

lease election::campaign(std::string_view value) {
  return std::move(*campaign_until(value, lease_clock::time_point::max(), {}));
}

std::optional<lease> election::campaign(std::string_view value, std::stop_token stop) {
  return campaign_until(value, lease_clock::time_point::max(), std::move(stop));
}

std::optional<lease> election::try_campaign(std::string_view value) {
  return campaign_until(value, lease_clock::time_point::min(), {});
}

void election::proclaim(const lease& leadership, std::string_view value) {
  std::error_code error;
  proclaim(leadership, value, error);
  if (error) detail::throw_failure(error);
}

void election::proclaim(const lease& leadership, std::string_view value,
                        std::error_code& error) noexcept {
  error.clear();
  try {
    if (value.size() > max_value_bytes) return detail::report(error, errc::bad_option, too_long);
    const lease_state now = leadership.state();
    if (now == lease_state::lost || now == lease_state::released) {
      return detail::report(
          error, errc::lease_lost,
          "the lease on '" + name().text() + "' is " + std::string(to_string(now)));
    }
    detail::client_state& owner = core_->owner();
    auto answer = detail::await_completion<bool>(owner, [&](auto done) {
      owner.engine().set_value(*detail::client_state::record_of(leadership), value,
                               std::move(done));
    });
    if (!answer) return detail::report(error, answer.error());
    if (!*answer) {
      return detail::report(error, errc::lease_lost,
                            "'" + name().text() + "' is led by somebody else");
    }
  } catch (const std::bad_alloc&) {
    detail::report(error, errc::not_enough_memory);
  }
}

std::optional<leader_info> election::leader() const {
  std::error_code error;
  auto found = leader(error);
  if (error) detail::throw_failure(error);
  return found;
}

std::optional<leader_info> election::leader(std::error_code& error) const noexcept {
  error.clear();
  try {
    auto answer = detail::read_leader(core_->owner(), name());
    if (answer) return std::move(*answer);
    detail::report(error, answer.error());
  } catch (const std::bad_alloc&) {
    detail::report(error, errc::not_enough_memory);
  }
  return std::nullopt;
}

observation election::observe(leader_callback changed, unknown_callback unknown) const {
  std::error_code error;
  auto made = observe(std::move(changed), std::move(unknown), error);
  if (!made) detail::throw_failure(error);
  return std::move(*made);
}

std::optional<observation> election::observe(leader_callback changed, unknown_callback unknown,
                                             std::error_code& error) const noexcept {
  error.clear();
  try {
    detail::client_state& owner = core_->owner();
    auto state = std::make_shared<detail::observation_state>(owner, name(), std::move(changed),
                                                             std::move(unknown));
    if (const base::failure problem = owner.observed().add(state); problem.code) {
      detail::report(error, problem);
      return std::nullopt;
    }
    return observation{core_->shared_owner(), std::move(state)};
  } catch (const std::bad_alloc&) {
    detail::report(error, errc::not_enough_memory);
    return std::nullopt;
  }
}

}  // namespace sallyport

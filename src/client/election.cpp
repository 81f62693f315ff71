#include "client/lock_core.hpp"
#include "client/observations.hpp"
#include <sallyport/election.hpp>

#include <string>
#include <utility>

namespace sallyport {
namespace {

void refuse_long_value(std::string_view value) {
  if (value.size() > election::max_value_bytes) {
    throw lock_error(make_error_code(errc::bad_option),
                     "an election's value has at most 65,536 bytes");
  }
}

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

std::optional<lease> election::campaign_until(std::string_view value, lease_clock::time_point until,
                                              std::stop_token stop) {
  refuse_long_value(value);
  std::error_code error;
  auto got = core_->wait(until, stop, value, error);
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
  refuse_long_value(value);
  leadership.ensure_valid();
  detail::client_state& owner = core_->owner();
  auto answer = detail::await_completion<bool>(owner, [&](auto done) {
    owner.engine().set_value(*detail::client_state::record_of(leadership), value, std::move(done));
  });
  if (!answer) detail::throw_failure(answer.error());
  if (!*answer) {
    throw lock_error(make_error_code(errc::lease_lost),
                     "'" + name().text() + "' is led by somebody else");
  }
}

std::optional<leader_info> election::leader() const {
  return detail::read_leader(core_->owner(), name());
}

observation election::observe(
    std::function<void(const std::optional<leader_info>&)> callback) const {
  core_->owner().ensure_alive();
  auto state =
      std::make_shared<detail::observation_state>(core_->owner(), name(), std::move(callback));
  core_->owner().observed().add(state);
  return observation{core_->shared_owner(), std::move(state)};
}

}  // namespace sallyport

#include "client/client_state.hpp"
#include <sallyport/client.hpp>

#include <utility>
#include <variant>

namespace sallyport {

client client::open(std::string_view uri, client_options options) {
  return client{detail::client_state::open(uri, std::move(options))};
}

std::string client::schema(std::string_view uri, const client_options& options) {
  return detail::client_state::schema(uri, options);
}

const capabilities& client::capabilities() const noexcept { return state_->can(); }

std::vector<lock_info> client::list(std::string_view prefix, std::string_view after,
                                    std::size_t limit) const {
  state_->ensure_alive();
  auto answer = detail::await_completion<std::vector<lock_info>>(
      *state_, [&](auto done) { state_->store().list(prefix, after, limit, std::move(done)); });
  if (!answer) detail::throw_failure(answer.error());
  return std::move(*answer);
}

std::optional<lock_info> client::who(const lock_name& name) const {
  state_->ensure_alive();
  auto answer = detail::await_completion<std::optional<lock_info>>(
      *state_, [&](auto done) { state_->store().who(name, std::move(done)); });
  if (!answer) detail::throw_failure(answer.error());
  return std::move(*answer);
}

void client::break_lock(const lock_name& name, fencing_token observed, break_style style) const {
  state_->ensure_alive();
  const auto mode =
      style == break_style::safe ? backend_api::break_mode::safe : backend_api::break_mode::at_once;
  auto answer = detail::await_completion<std::monostate>(*state_, [&](auto done) {
    state_->store().break_lock(name, observed, mode, std::move(done));
  });
  if (!answer) detail::throw_failure(answer.error());
}

}  // namespace sallyport

#include "backends/redis/single_server.hpp"

#include <utility>

namespace sallyport::backends::redis {

base::result<std::shared_ptr<router>> single_server::make(
    const std::shared_ptr<net::pump>& engine, const link_settings& login,
    const std::shared_ptr<const protocol>& speech, std::weak_ptr<node_listener> whose) {
  auto only = node::make(engine, {.login = login, .only_server = true}, speech, std::move(whose));
  if (!only) return tl::unexpected(only.error());
  return std::make_shared<single_server>(std::move(*only));
}

}  // namespace sallyport::backends::redis

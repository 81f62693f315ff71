#pragma once

#include "backends/redis/router.hpp"

#include <memory>

namespace sallyport::backends::redis {

/// All locks live on one server.
class single_server final : public router {
 public:
  static base::result<std::shared_ptr<router>> make(const std::shared_ptr<net::pump>& engine,
                                                    const link_settings& login,
                                                    const std::shared_ptr<const protocol>& speech,
                                                    std::weak_ptr<node_listener> whose);
  /// Use make().
  explicit single_server(std::shared_ptr<node> only) : only_(std::move(only)) {}

  std::shared_ptr<node> node_for(std::uint32_t /*slot*/) override { return only_; }
  base::failure trouble() override { return {}; }
  redirection redirect(const reply& /*error*/, std::uint32_t /*slot*/,
                       const std::shared_ptr<node>& /*from*/) override {
    return {};
  }
  void node_lost(const net::endpoint& /*where*/) override {}
  std::vector<std::shared_ptr<node>> all() override { return {only_}; }
  void begin() override { only_->commands().want(); }
  bool unfinished() override { return only_->unfinished(); }
  void close() override { only_->close(); }

 private:
  const std::shared_ptr<node> only_;
};

}  // namespace sallyport::backends::redis

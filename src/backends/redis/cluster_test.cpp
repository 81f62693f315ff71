#include "backends/redis/cluster.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace sallyport::backends::redis {
namespace {

reply refusal(const std::string& text) {
  reply made;
  made.what = reply::kind::error;
  made.text = text;
  return made;
}

TEST(ClusterPlaces, MakeRoomForNodesWithEverNewAddresses) {
  const auto engine = *net::pump::make();
  protocol::settings how;
  how.cluster = true;
  const auto speech = std::make_shared<const protocol>(how);
  link_settings login;
  login.where = {"127.0.0.1", 1, {}};
  const auto nodes = *cluster::make(engine, {.seeds = {login.where}, .login = login}, speech, {});
  const auto seed = *node::make(engine, {.login = login}, speech, {});

  // Names of nodes to which slots are just being moved: each is asked once, and owns nothing here.
  for (std::size_t i = 0; i < cluster::most_places + 100; ++i) {
    const std::string where =
        "10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) + ":7000";
    const auto found = nodes->redirect(refusal("ASK 1 " + where), 1, seed);
    ASSERT_TRUE(found.to) << i;
    EXPECT_TRUE(found.asking);
  }

  nodes->close();
  seed->close();
}

}  // namespace
}  // namespace sallyport::backends::redis

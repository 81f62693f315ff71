#include "backends/redis/node.hpp"

#include <sallyport/error.hpp>

#include <gtest/gtest.h>

namespace sallyport::backends::redis {
namespace {

/// What a server says to the greeting; it takes all scripts.
std::vector<reply> words_of(const std::string& version, bool cluster) {
  std::vector<reply> said(3);
  for (reply& each : said) each.what = reply::kind::text;
  said[0].text = "redis_version:" + version + "\r\n";
  said[1].text = "role:master\r\n";
  said[2].text = std::string("cluster_enabled:") + (cluster ? "1" : "0") + "\r\n";
  return said;
}

std::shared_ptr<node> make_node(bool cluster) {
  auto engine = net::pump::make();
  protocol::settings how;
  how.cluster = cluster;
  link_settings nowhere;
  nowhere.where = {"127.0.0.1", 1, {}};
  auto made = node::make(*engine, {.login = nowhere}, std::make_shared<const protocol>(how), {});
  return *made;
}

std::string refusal(const std::shared_ptr<node>& who, const std::vector<reply>& said) {
  const auto verdict = who->greeted(said);
  if (verdict) return {};
  EXPECT_EQ(verdict.error().code, errc::store_refused);
  return verdict.error().detail;
}

TEST(Node, OfAClusterNeedsShardedChannels) {
  const auto who = make_node(true);

  EXPECT_EQ(refusal(who, words_of("7.0.15", true)), "");
  EXPECT_EQ(refusal(who, words_of("10.2.0", true)), "");
  EXPECT_NE(refusal(who, words_of("6.2.14", true)).find("need 7.0 or later"), std::string::npos);
  who->close();
}

TEST(Node, IsOfAClusterOrNot) {
  const auto clustered = make_node(true);
  const auto single = make_node(false);

  EXPECT_NE(refusal(clustered, words_of("7.0.15", false)).find("use redis://"), std::string::npos);
  EXPECT_NE(refusal(single, words_of("7.0.15", true)).find("redis+cluster://"), std::string::npos);
  EXPECT_EQ(refusal(single, words_of("6.0.16", false)), "");
  clustered->close();
  single->close();
}

}  // namespace
}  // namespace sallyport::backends::redis

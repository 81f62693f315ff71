#include "backends/zookeeper/layout.hpp"

#include "backends/zookeeper/address.hpp"
#include "backends/zookeeper/description.hpp"
#include "backends/zookeeper/standing.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace sallyport::backends::zookeeper {
namespace {

TEST(ZookeeperLayout, NamesAreSegmentsAndComeBackFromThem) {
  const layout nodes({.root = "/locks"});
  std::set<std::string> folders;
  for (const char* const name :
       {"a", "a/b", "a%2Fb", "a%b", ".", "..", "...", "zookeeper", "\xc3\xa9", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x9f\x94\x92", " ", "a b"}) {
    const std::string folder = nodes.folder(name);
    EXPECT_TRUE(folder.starts_with("/locks/")) << folder;
    EXPECT_EQ(folder.find('/', 7), std::string::npos) << folder;
    EXPECT_TRUE(folders.insert(folder).second) << folder;
    EXPECT_EQ(layout::name_of(last_segment(folder)), name);
  }
  EXPECT_EQ(nodes.folder("a/b"), "/locks/a%2Fb");
  EXPECT_EQ(nodes.folder("zookeeper"), "/locks/%7Aookeeper");
  EXPECT_EQ(layout::name_of("a%2fb"), std::nullopt)
      << "we write capitals, so it is somebody else's";
}

TEST(ZookeeperLayout, PathsAreTakenAsTheyAreOrNotAtAll) {
  const layout nodes({.root = "", .names_are_paths = true});
  EXPECT_EQ(nodes.folder("a/b"), "/a/b");
  for (const char* const name : {"/a", "a/", "a//b", "a/../b", ".", "a%b"}) {
    EXPECT_EQ(nodes.folder(name), "") << name;
  }
}

TEST(ZookeeperLayout, NodesOfAllLibrariesAreRead) {
  const auto curator = read_child("_c_c0ffee00-0000-0000-0000-000000000000-lock-0000000012");
  ASSERT_TRUE(curator);
  EXPECT_EQ(curator->sequence, 12);
  EXPECT_EQ(curator->kind, lock_kind::mutex);
  EXPECT_EQ(curator->whose, "_c_c0ffee00-0000-0000-0000-000000000000");
  const auto reader = read_child("_c_c0ffee00-0000-0000-0000-000000000000-__READ__0000000003");
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->shared);
  const auto kazoo = read_child("0123456789abcdef0123456789abcdef__lock__0000000004");
  ASSERT_TRUE(kazoo);
  EXPECT_EQ(kazoo->kind, std::nullopt);
  const auto wrapped = read_child("x-lock--2147483648");
  ASSERT_TRUE(wrapped);
  EXPECT_EQ(wrapped->sequence, -2147483648LL);
  for (const char* const name :
       {"folder", "lock-12", "locks", "leases", "x-0000000001", "lock-000000000x"}) {
    EXPECT_FALSE(read_child(name)) << name;
  }
}

TEST(ZookeeperLayout, TheOrderIsThatOfNumbers) {
  const std::array<std::string, 3> children{"_c_z-lock-0000000009", "_c_a-lock-0000000010",
                                            "aa__lock__0000000008"};
  const standing mine = stand(form::mutex, "_c_a-lock-0000000010", children);
  EXPECT_EQ(mine.is, standing::word::blocked);
  EXPECT_EQ(mine.behind, "_c_z-lock-0000000009");
  EXPECT_EQ(stand(form::mutex, "gone", children).is, standing::word::missing);
}

TEST(ZookeeperDescription, ComesBackAsItWas) {
  const description who{.host = "h\"\\\n",
                        .label = "l",
                        .value = "http://x",
                        .pid = 4,
                        .waiters = 3,
                        .token = std::uint64_t{1} << 52U,
                        .trust_ms = 1900,
                        .closed = true};
  EXPECT_EQ(from_json(to_json(who)), who);
  for (const char* const text : {"", "{", "__REVOKE__", "{\"by\":\"sallyport\"", "127.0.0.1",
                                 "{\"by\":\"sallyport\",\"pid\":}"}) {
    EXPECT_FALSE(from_json(text)) << text;
  }
}

TEST(ZookeeperAddress, NamesServersRootAndOptions) {
  const auto where =
      parse_address("zookeeper://h1,h2:2182,[::1]:9/a/b?tick=500&dialect=kazoo&names=path");
  ASSERT_TRUE(where);
  EXPECT_EQ(where->servers, (std::vector<std::string>{"h1:2181", "h2:2182", "[::1]:9"}));
  EXPECT_EQ(where->nodes.root, "/a/b");
  EXPECT_EQ(where->tick, std::chrono::milliseconds{500});
  EXPECT_EQ(where->nodes.speech, dialect::kazoo);
  EXPECT_TRUE(where->nodes.names_are_paths);
}

TEST(ZookeeperAddress, SaysWhatIsWrong) {
  for (const char* const text :
       {"zookeeper://h:0", "zookeeper://h/zookeeper", "zookeeper://h/a//b", "zookeeper://h?x=1",
        "zookeeper://h?dialect=go", "zookeeper://user@h", "zookeeper://h?tick=0",
        "zookeeper://h?password_file=/nonexistent/x&user=u"}) {
    const auto where = parse_address(text);
    ASSERT_FALSE(where) << text;
    EXPECT_EQ(where.error().code, errc::bad_uri);
  }
  const auto encrypted = parse_address("zookeepers://h");
  ASSERT_FALSE(encrypted);
  EXPECT_NE(encrypted.error().detail.find("TLS"), std::string::npos);
}

}  // namespace
}  // namespace sallyport::backends::zookeeper

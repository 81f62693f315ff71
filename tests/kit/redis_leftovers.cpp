#include "tests/kit/redis_leftovers.hpp"

#include <algorithm>
#include <string_view>

namespace sallyport::kit {

namespace {

constexpr std::string_view counter_end = "\x01token";
constexpr std::string_view counter_of_slot = "\x01token{";
constexpr std::string_view store_name_end = "\x01store";
constexpr std::string_view store_name_in_cluster = "\x01store{";

// Of a quorum: the counter, and the mark of membership.
constexpr std::string_view quorum_counter_end = "\x01quorum-fence";
constexpr std::string_view quorum_mark_end = "\x01quorum-member";

bool is_counter(std::string_view key) {
  return key.ends_with(quorum_counter_end) || key.ends_with(quorum_mark_end) ||
         key.ends_with(counter_end) || key.find(counter_of_slot) != std::string_view::npos ||
         key.ends_with(store_name_end) || key.find(store_name_in_cluster) != std::string_view::npos;
}

}  // namespace

std::vector<std::string> leftovers(redis_probe& probe) {
  std::vector<std::string> keys;
  std::string cursor = "0";
  do {
    const redis_reply reply = probe.expect({"SCAN", cursor, "COUNT", "1000"});
    cursor = reply.items.at(0).text;
    for (const redis_reply& key : reply.items.at(1).items) {
      if (!is_counter(key.text)) keys.push_back(key.text);
    }
  } while (cursor != "0");
  // SCAN may name a key twice.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::size_t parts_of(redis_probe& probe, const std::string& key) {
  const std::string type = probe.expect({"TYPE", key}).text;
  if (type == "none") return 0;
  // It may have gone since: then there are none.
  if (type == "hash") return static_cast<std::size_t>(probe.expect({"HLEN", key}).integer);
  if (type == "zset") return static_cast<std::size_t>(probe.expect({"ZCARD", key}).integer);
  return 1;
}

}  // namespace sallyport::kit

#include "sim/redis/keyspace.hpp"

#include <algorithm>

namespace sallyport::sim::redis {

entry* keyspace::find(std::string_view key, wall_ms now) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  if (found->second.expired(now)) {
    entries_.erase(found);
    return nullptr;
  }
  return &found->second;
}

void keyspace::put_text(std::string_view key, std::string_view text, wall_ms now) {
  auto& kept = find_or_make<std::string>(key, now);
  if (auto* old = std::get_if<std::string>(&kept.value)) {
    *old = text;
  } else {
    kept.value = std::string(text);
  }
}

bool keyspace::erase(std::string_view key, wall_ms now) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  const bool lived = !found->second.expired(now);
  entries_.erase(found);
  return lived;
}

std::size_t keyspace::remove_expired(wall_ms now) {
  return std::erase_if(entries_, [&](const auto& pair) { return pair.second.expired(now); });
}

std::vector<std::string> keyspace::sorted_keys() const {
  std::vector<std::string> keys;
  keys.reserve(entries_.size());
  for (const auto& [key, kept] : entries_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace sallyport::sim::redis

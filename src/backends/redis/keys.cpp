#include "backends/redis/keys.hpp"

#include "base/check.hpp"

#include <array>
#include <cstddef>

namespace sallyport::backends::redis {
namespace {

/// CRC-16/XMODEM, as the cluster specification says.
constexpr std::array<std::uint16_t, 256> make_crc_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) {
    unsigned crc = i << 8U;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 0x8000U) != 0 ? (crc << 1U) ^ 0x1021U : crc << 1U;
    }
    table.at(i) = static_cast<std::uint16_t>(crc & 0xffffU);
  }
  return table;
}

constexpr std::array<std::uint16_t, 256> crc_table = make_crc_table();

std::uint32_t crc16(std::string_view bytes) noexcept {
  std::uint32_t crc = 0;
  for (const char each : bytes) {
    const auto index = ((crc >> 8U) ^ static_cast<unsigned char>(each)) & 0xffU;
    crc = ((crc << 8U) ^ crc_table[index]) & 0xffffU;
  }
  return crc;
}

/// What decides the slot of a key.
std::string_view hashed_part(std::string_view key) noexcept {
  const auto open = key.find('{');
  if (open == std::string_view::npos) return key;
  const auto close = key.find('}', open + 1);
  if (close == std::string_view::npos || close == open + 1) return key;
  return key.substr(open + 1, close - open - 1);
}

std::vector<std::string> find_tags() {
  std::vector<std::string> tags(slot_count);
  std::uint32_t missing = slot_count;
  for (std::uint32_t number = 0; missing > 0; ++number) {
    std::string candidate = std::to_string(number);
    std::string& tag = tags[crc16(candidate) % slot_count];
    if (!tag.empty()) continue;
    tag = std::move(candidate);
    --missing;
  }
  return tags;
}

constexpr std::string_view separator{"\x01"};
constexpr std::string_view counter_name{"\x01token"};
constexpr std::string_view store_name_name{"\x01store"};
constexpr std::string_view client_channel{
    "\x01"
    "client:"};

}  // namespace

std::uint32_t slot_of(std::string_view key) noexcept {
  return crc16(hashed_part(key)) % slot_count;
}

const std::string& tag_of(std::uint32_t slot) {
  static const std::vector<std::string> tags = find_tags();
  SALLYPORT_CHECK(slot < slot_count);
  return tags[slot];
}

lock_place::lock_place(std::string_view prefix, std::string_view name, bool cluster)
    : prefix_(prefix), name_(name) {
  if (!cluster) return;
  const std::string key = lock_key();
  slot_ = slot_of(key);
  tag_ = "{" + tag_of(slot_) + "}";
  if (hashed_part(key).size() != key.size()) return;  // its own tag serves the side keys as well
  // A brace in the key would be taken for the beginning of the tag.
  if (key.find('{') == std::string::npos) {
    after_ = tag_;
  } else {
    before_ = tag_ + std::string(separator);
  }
}

void lock_place::add_side(wire_command& command, std::string_view what) const {
  command.add({before_, prefix_, name_, separator, what, after_});
}

void lock_place::add_common(wire_command& command, std::string_view what) const {
  if (prefix_.find('{') == std::string_view::npos) {
    command.add({prefix_, what, tag_});
  } else {
    command.add({tag_, separator, prefix_, what});
  }
}

void lock_place::add_counter(wire_command& command) const { add_common(command, counter_name); }

void lock_place::add_store_name(wire_command& command) const {
  add_common(command, store_name_name);
}

void lock_place::add_channel_head(wire_command& command) const {
  if (prefix_.find('{') == std::string_view::npos || tag_.empty()) {
    command.add({prefix_, client_channel});
  } else {
    command.add({tag_, prefix_, client_channel});
  }
}

std::string lock_place::channel_of(std::string_view client) const {
  std::string channel;
  if (prefix_.find('{') != std::string_view::npos) channel += tag_;
  channel.append(prefix_).append(client_channel).append(client).append(tag_);
  return channel;
}

std::string lock_place::changes_channel() const {
  std::string channel = before_;
  channel.append(prefix_).append(name_).append(separator).append("changes").append(after_);
  return channel;
}

std::string_view name_in(std::string_view key, std::string_view prefix) noexcept {
  if (!key.starts_with(prefix)) {
    // {tag}\1prefix...: the form for names whose braces are no tag.
    const auto after_tag = key.find(separator);
    if (!key.starts_with('{') || after_tag == std::string_view::npos) return {};
    key.remove_prefix(after_tag + 1);
    if (!key.starts_with(prefix)) return {};
  }
  key.remove_prefix(prefix.size());
  return key.substr(0, key.find(separator));
}

lock_part part_of_lock(std::string_view key, std::string_view name) noexcept {
  key.remove_prefix(static_cast<std::size_t>(name.data() + name.size() - key.data()));
  if (key.empty()) return lock_part::holders;
  key.remove_prefix(separator.size());
  return key.starts_with("queue") ? lock_part::queue : lock_part::other;
}

std::string pattern_of(std::string_view text) {
  std::string pattern;
  for (const char each : text) {
    if (each == '*' || each == '?' || each == '[' || each == ']' || each == '\\') pattern += '\\';
    pattern += each;
  }
  return pattern + '*';
}

}  // namespace sallyport::backends::redis

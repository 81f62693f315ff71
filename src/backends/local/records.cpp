#include "backends/local/records.hpp"

#include "base/check.hpp"

#include <bit>

namespace sallyport::backends::local {

static_assert(std::endian::native == std::endian::little);

void record_key::append(std::string_view text) noexcept {
  SALLYPORT_CHECK(text.size() <= bytes_.size() - size_);
  std::memcpy(bytes_.data() + size_, text.data(), text.size());
  size_ += text.size();
}

void record_key::append(std::uint64_t number) noexcept {
  const std::uint64_t ordered = __builtin_bswap64(number);
  append(bytes_of(ordered));
}

record_key record_key::numbered(char sort, std::string_view name, std::uint64_t number) noexcept {
  record_key key(sort);
  key.append(name);
  key.append(std::string_view("\0", 1));
  key.append(number);
  return key;
}

record_key record_key::client(client_number number) noexcept {
  record_key key('C');
  key.append(number);
  return key;
}

record_key record_key::lock(std::string_view name) noexcept {
  record_key key('L');
  key.append(name);
  return key;
}

record_key record_key::holder(std::string_view name, contender_number number) noexcept {
  return numbered('H', name, number);
}

record_key record_key::ticket(std::string_view name, contender_number number) noexcept {
  return numbered('Q', name, number);
}

record_key record_key::watch(std::string_view name, client_number number) noexcept {
  return numbered('W', name, number);
}

std::uint64_t number_of(std::string_view key) noexcept {
  std::uint64_t ordered = 0;
  SALLYPORT_CHECK(key.size() > sizeof ordered);
  std::memcpy(&ordered, key.data() + key.size() - sizeof ordered, sizeof ordered);
  return __builtin_bswap64(ordered);
}

}  // namespace sallyport::backends::local

#include "backends/memcached/record.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace sallyport::backends::memcached {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view mark = "sp1";
constexpr std::size_t longest_text = 1024;

bool fits_a_key(char each) {
  const auto byte = static_cast<unsigned char>(each);
  return byte > 0x20 && byte != 0x7f;
}

void append_hex(std::string& out, std::uint64_t bits) {
  std::array<char, 16> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (std::size_t i = digits.size(); i > 0; bits >>= 4U) digits[--i] = hex_digits[bits & 0xfU];
  out.append(digits.data(), digits.size());
}

template <class Number>
void append_count(std::string& out, Number number) {
  std::array<char, 24> text;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  out += ' ';
  out.append(text.data(), end);
}

bool stands_for_itself(char each) { return fits_a_key(each) && each != '%'; }

void append_word(std::string& out, std::string_view text) {
  out += ' ';
  if (text.empty()) {
    out += '-';
  } else if (text == "-") {
    out += "%2d";
  } else if (std::all_of(text.begin(), text.end(), &stands_for_itself)) {
    out += text;
  } else {
    for (const char each : text) {
      if (stands_for_itself(each)) {
        out += each;
        continue;
      }
      const auto byte = static_cast<unsigned char>(each);
      out += '%';
      out += hex_digits[byte >> 4U];
      out += hex_digits[byte & 0xfU];
    }
  }
}

/// The words of a record, one after the other.
class words {
 public:
  explicit words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    if (over_) return fail();
    const auto end = rest_.find(' ');
    const std::string_view found = rest_.substr(0, end);
    over_ = end == std::string_view::npos;
    rest_ = over_ ? std::string_view{} : rest_.substr(end + 1);
    return found;
  }

  template <class Number>
  Number number(std::string_view text, int base = 10) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value, base);
    if (text.empty() || error != std::errc{} || stopped != end) good_ = false;
    return value;
  }

  std::string text() {
    const std::string_view word = next();
    if (word == "-") return {};
    std::string out;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '%') {
        out += word[i];
        continue;
      }
      out += static_cast<char>(
          number<unsigned char>(word.substr(std::min(i + 1, word.size()), 2), 16));
      i += 2;
    }
    return out;
  }

  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool whole() const { return good_ && over_; }
  std::string_view fail() {
    good_ = false;
    return {};
  }

 private:
  std::string_view rest_;
  bool over_ = false;
  bool good_ = true;
};

char letter_of(lock_kind kind) {
  switch (kind) {
    case lock_kind::mutex:
      return 'm';
    case lock_kind::shared_mutex:
      return 'r';
    case lock_kind::semaphore:
      return 's';
    case lock_kind::election:
      return 'e';
  }
  return '?';
}

std::optional<lock_kind> kind_of(std::string_view word) {
  for (const lock_kind each :
       {lock_kind::mutex, lock_kind::shared_mutex, lock_kind::semaphore, lock_kind::election}) {
    if (word.size() == 1 && word.front() == letter_of(each)) return each;
  }
  return std::nullopt;
}

std::string_view cut(std::string_view text) { return text.substr(0, longest_text); }

}  // namespace

bool acceptable_prefix(std::string_view prefix) {
  if (prefix.empty()) return true;
  return prefix.size() <= longest_prefix && lock_name::acceptable(prefix) &&
         std::all_of(prefix.begin(), prefix.end(), &fits_a_key);
}

std::string key_of(std::string_view prefix, const lock_name& name) {
  const std::string& text = name.text();
  std::string key(prefix);
  if (prefix.size() + text.size() <= longest_key &&
      std::all_of(text.begin(), text.end(), &fits_a_key)) {
    return key.append(text);
  }
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;  // NOLINT(*-member-init)
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  key += '\xff';
  for (const unsigned char byte : digest) {
    key += hex_digits[byte >> 4U];
    key += hex_digits[byte & 0xfU];
  }
  return key;
}

std::string to_value(const record& what) {
  std::string out;
  constexpr std::size_t usual_numbers = 100;  // with the id
  out.reserve(usual_numbers + what.host.size() + what.label.size() + what.value.size());
  out += mark;
  out += what.closed ? " t " : " h ";
  out += letter_of(what.kind);
  out += ' ';
  append_hex(out, what.holder.high);
  append_hex(out, what.holder.low);
  append_count(out, what.token);
  append_count(out, what.local_waiters);
  append_count(out, what.since_ms);
  append_count(out, what.pid);
  append_word(out, cut(what.host));
  append_word(out, cut(what.label));
  append_word(out, what.value);
  return out;
}

std::optional<record> from_value(std::string_view text) {
  words from(text);
  if (from.next() != mark) return std::nullopt;
  record out;
  const std::string_view state = from.next();
  out.closed = state == "t";
  const auto kind = kind_of(from.next());
  const std::string_view id = from.next();
  if ((state != "h" && state != "t") || !kind || id.size() != 32) return std::nullopt;
  out.kind = *kind;
  out.holder.high = from.number<std::uint64_t>(id.substr(0, 16), 16);
  out.holder.low = from.number<std::uint64_t>(id.substr(16), 16);
  out.token = from.number<std::uint64_t>(from.next());
  out.local_waiters = from.number<std::uint32_t>(from.next());
  out.since_ms = from.number<std::int64_t>(from.next());
  out.pid = from.number<std::int64_t>(from.next());
  out.host = from.text();
  out.label = from.text();
  out.value = from.text();
  if (!from.whole()) return std::nullopt;
  return out;
}

}  // namespace sallyport::backends::memcached

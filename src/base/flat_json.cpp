#include "base/flat_json.hpp"

#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>

namespace sallyport::base {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      out += '\\';
      out += each;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex_digits[byte >> 4U];
      out += hex_digits[byte & 0xfU];
    } else {
      out += each;
    }
  }
  out += '"';
}

class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  template <class Field>
  bool read(const Field& field) {
    if (!take('{')) return false;
    if (take('}')) return ended();
    do {
      std::string name;
      if (!text(name) || !take(':')) return false;
      auto found = value();
      if (!found) return false;
      field(name, std::move(*found));
    } while (take(','));
    return take('}') && ended();
  }

 private:
  void pass_spaces() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != rest_.npos) {
      rest_.remove_prefix(1);
    }
  }
  bool ended() {
    pass_spaces();
    return rest_.empty();
  }
  bool take(char wanted) {
    pass_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char kind = rest_.front();
    rest_.remove_prefix(1);
    if (kind != 'u') {
      constexpr std::string_view names = "ntrbf\"\\/";
      constexpr std::string_view meanings = "\n\t\r\b\f\"\\/";
      const auto found = names.find(kind);
      if (found == names.npos) return false;
      out += meanings[found];
      return true;
    }
    unsigned code = 0;
    const std::string_view four = rest_.substr(0, 4);
    const char* const end = four.data() + four.size();
    if (four.size() != 4 || std::from_chars(four.data(), end, code, 16).ptr != end) return false;
    rest_.remove_prefix(4);
    out += code < 0x80 ? static_cast<char>(code) : '?';  // we write none above
    return true;
  }
  bool text(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char next = rest_.front();
      rest_.remove_prefix(1);
      if (next == '"') return true;
      if (next != '\\') {
        out += next;
      } else if (!escape(out)) {
        return false;
      }
    }
    return false;
  }
  std::optional<flat_json_value> value() {
    pass_spaces();
    if (rest_.starts_with('"')) {
      std::string found;
      if (!text(found)) return std::nullopt;
      return found;
    }
    for (const bool truth : {true, false}) {
      const std::string_view word = truth ? "true" : "false";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return truth;
    }
    std::int64_t number = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (parsed.ec != std::errc{}) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    return number;
  }

  std::string_view rest_;
};

}  // namespace

void flat_json_writer::begin(std::string_view name) {
  if (out_.size() > 1) out_ += ',';
  write_text(out_, name);
  out_ += ':';
}

void flat_json_writer::text(std::string_view name, std::string_view value) {
  begin(name);
  write_text(out_, value);
}

void flat_json_writer::number(std::string_view name, std::int64_t value) {
  begin(name);
  out_ += std::to_string(value);
}

void flat_json_writer::truth(std::string_view name, bool value) {
  begin(name);
  out_ += value ? "true" : "false";
}

std::string flat_json_writer::finished() { return std::move(out_ += '}'); }

bool read_flat_json(std::string_view text,
                    const std::function<void(std::string_view, flat_json_value)>& field) {
  return reader(text).read(field);
}

}  // namespace sallyport::base

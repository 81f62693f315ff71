#include "backends/memcached/wire.hpp"

#include "net/failure.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace sallyport::backends::memcached {
namespace {

void append_number(std::string& to, std::uint64_t number) {
  std::array<char, 24> text;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  to.append(text.data(), end);
}

template <class Number>
bool read_number(std::string_view text, Number& into) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, into);
  return error == std::errc{} && stopped == end && !text.empty();
}

void append_question_for_mark(wire_command& out, std::string_view key) {
  out.store.append("mg ").append(key).append(" h u\r\n");
  ++out.lines;
}

wire_command storing(std::string_view command, std::string_view key, std::string_view value,
                     std::int64_t seconds, std::uint64_t cas) {
  wire_command out = peek_item(key);
  out.store.reserve(2 * key.size() + value.size() + 64);
  if (cas != 0) append_question_for_mark(out, key);
  ++out.lines;
  out.store.append(command).append(" ").append(key).append(" 0 ");
  append_number(out.store, static_cast<std::uint64_t>(seconds));
  out.store.append(" ");
  append_number(out.store, value.size());
  if (cas != 0) {
    out.store.append(" ");
    append_number(out.store, cas);
  }
  out.store.append("\r\n").append(value).append("\r\n");
  return out;
}

auto malformed(std::string_view line) {
  // What the server says may hold anything; people see its beginning, and no more.
  return tl::unexpected(net::protocol_failure("it answered '" + std::string(line.substr(0, 60)) +
                                              "' to something else than was asked"));
}

/// Errors after which the server has read on as if nothing had been sent, or says no more.
bool ends_the_talk(std::string_view line) {
  return line.starts_with("ERROR") || line.starts_with("CLIENT_ERROR");
}

}  // namespace

wire_command read_item(std::string_view key) {
  wire_command out;
  out.meta.reserve(key.size() + 16);
  out.meta.append("mg ").append(key).append(" c t v");
  return out;
}

wire_command peek_item(std::string_view key) {
  wire_command out = read_item(key);
  out.meta.append(" u");
  return out;
}

wire_command add_item(std::string_view key, std::string_view value, std::int64_t seconds) {
  return storing("add", key, value, seconds, 0);
}

wire_command replace_item(std::string_view key, std::string_view value, std::int64_t seconds,
                          std::uint64_t cas) {
  return storing("cas", key, value, seconds, cas);
}

wire_command delete_item(std::string_view key, std::uint64_t cas) {
  wire_command out;
  append_question_for_mark(out, key);
  out.meta.append("md ").append(key).append(" C");
  append_number(out.meta, cas);
  return out;
}

void append_command(std::string& buffer, const wire_command& what, std::uint64_t tag) {
  buffer.append(what.store).append(what.meta).append(" O");
  append_number(buffer, tag);
  buffer.append("\r\n");
}

base::result<std::optional<answer_line>> line_reader::next() {
  if (taken_ > 0 && (taken_ == buffer_.size() || taken_ > 64UL * 1024)) {
    buffer_.erase(0, std::exchange(taken_, 0));
  }
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  const auto end = rest.find("\r\n");
  if (end == std::string_view::npos) {
    if (rest.size() > max_line_bytes) return malformed(rest);
    return std::optional<answer_line>{};
  }
  if (end > max_line_bytes) return malformed(rest);
  answer_line line{.text = std::string(rest.substr(0, end)), .value = {}};
  std::size_t used = end + 2;
  if (line.text.starts_with("VA ")) {
    const std::string_view after = std::string_view(line.text).substr(3);
    std::size_t size = 0;
    if (!read_number(after.substr(0, after.find(' ')), size) || size > max_value_bytes) {
      return malformed(line.text);
    }
    if (rest.size() < used + size + 2) return std::optional<answer_line>{};
    line.value = rest.substr(used, size);
    if (rest.substr(used + size, 2) != "\r\n") return malformed(line.text);
    used += size + 2;
  }
  taken_ += used;
  return std::optional<answer_line>(std::move(line));
}

base::result<bool> reply_builder::take(answer_line&& line) {
  if (ends_the_talk(line.text)) {
    return tl::unexpected(net::protocol_failure("it refused: " + line.text.substr(0, 200)));
  }
  if (lines_ > 0) {
    --lines_;
    return take_store(line);
  }
  return take_meta(std::move(line));
}

base::result<bool> reply_builder::take_store(const answer_line& line) {
  if (line.text == "STORED") {
    made_.stored = store_outcome::stored;
  } else if (line.text == "NOT_STORED") {
    made_.stored = store_outcome::not_stored;
  } else if (line.text == "EXISTS") {
    made_.stored = store_outcome::exists;
  } else if (line.text == "NOT_FOUND") {
    made_.stored = store_outcome::not_found;
  } else if (line.text == "HD h0" || line.text == "HD h1" || line.text == "EN") {
    made_.fetched = line.text == "HD h1";
  } else if (line.text.starts_with("SERVER_ERROR")) {
    made_.stored = store_outcome::refused;
    made_.why = line.text;
  } else {
    return malformed(line.text);
  }
  return false;
}

base::result<bool> reply_builder::take_meta(answer_line&& line) {
  std::string_view rest = line.text;
  const auto word = [&rest] {
    const auto end = rest.find(' ');
    const std::string_view found = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return found;
  };
  const std::string_view code = word();
  if (code == "VA") {
    made_.found = meta_outcome::item;
    static_cast<void>(word());  // the size
  } else if (code == "HD") {
    made_.found = meta_outcome::done;
  } else if (code == "EN" || code == "NF") {
    made_.found = meta_outcome::absent;
  } else if (code == "EX") {
    made_.found = meta_outcome::exists;
  } else {
    return malformed(line.text);
  }
  // Servers before 1.6.13 or so say nothing but EN when there is nothing.
  bool tagged = code == "EN";
  while (!rest.empty()) {
    const std::string_view flag = word();
    if (flag.empty()) continue;
    const std::string_view token = flag.substr(1);
    bool understood = true;
    if (flag.front() == 'c') understood = read_number(token, made_.cas);
    if (flag.front() == 't') understood = read_number(token, made_.seconds);
    if (flag.front() == 'O') {
      std::uint64_t tag = 0;
      understood = read_number(token, tag) && tag == tag_;
      tagged = true;
    }
    if (!understood) return malformed(line.text);
  }
  if (!tagged) return malformed(line.text);
  made_.value = std::move(line.value);
  return true;
}

}  // namespace sallyport::backends::memcached

#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace sallyport::cli {

/// `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD, so that the document always is.
[[nodiscard]] std::string json_string(std::string_view text);

/// Writes one JSON document on one line. The caller sees to it that ends match beginnings.
/// Thread safety: none.
class json_writer {
 public:
  json_writer& begin_object() { return open('{'); }
  json_writer& end_object() { return close('}'); }
  json_writer& begin_array() { return open('['); }
  json_writer& end_array() { return close(']'); }
  json_writer& key(std::string_view name) {
    separate();
    text_ += json_string(name) + ":";
    after_key_ = true;
    return *this;
  }
  json_writer& value(std::string_view text) { return raw(json_string(text)); }
  json_writer& value(const char* text) { return value(std::string_view(text)); }
  json_writer& value(bool truth) { return raw(truth ? "true" : "false"); }
  template <std::integral Number>
  json_writer& value(Number number) {
    return raw(std::to_string(number));
  }

  json_writer& null() { return raw("null"); }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  json_writer& raw(std::string_view written) {
    separate();
    text_ += written;
    return *this;
  }
  json_writer& open(char bracket) {
    separate();
    text_ += bracket;
    return *this;
  }
  json_writer& close(char bracket) {
    text_ += bracket;
    return *this;
  }
  void separate() {
    const bool first = text_.empty() || text_.back() == '{' || text_.back() == '[';
    if (!first && !after_key_) text_ += ',';
    after_key_ = false;
  }

  std::string text_;
  bool after_key_ = false;
};

}  // namespace sallyport::cli

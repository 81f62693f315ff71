#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

/// Flat objects of JSON: names with texts, whole numbers and truths. What contenders say about
/// themselves in stores whose other users may read along.
namespace sallyport::base {

/// Writes one object, field by field, in the order of the calls.
class flat_json_writer {
 public:
  void text(std::string_view name, std::string_view value);
  void number(std::string_view name, std::int64_t value);
  void truth(std::string_view name, bool value);
  /// The whole object; nothing may be written after it.
  [[nodiscard]] std::string finished();

 private:
  void begin(std::string_view name);

  std::string out_ = "{";
};

using flat_json_value = std::variant<std::string, std::int64_t, bool>;

/// Calls `field` for every field, in their order. False: the text is not such an object; what was
/// told until then counts for nothing. Characters that were escaped as \u0080 and above become '?'.
[[nodiscard]] bool read_flat_json(
    std::string_view text,
    const std::function<void(std::string_view name, flat_json_value value)>& field);

}  // namespace sallyport::base

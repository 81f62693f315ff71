#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::base {

/// One host of an address that may name several.
struct uri_host {
  std::string name;  ///< a name or an address; IPv6 without its brackets
  std::string port;  ///< as written; empty: none

  friend bool operator==(const uri_host&, const uri_host&) = default;
};

/// scheme://user:password@host:port,host:port/path?option=value&option=value, taken apart. Percent
/// signs are decoded in all parts, after the splitting. It may hold a secret: never log it.
struct uri {
  std::string scheme;
  std::string user;
  std::optional<std::string> password;
  std::vector<uri_host> hosts;
  std::string path;  ///< with its slash; empty: none
  std::vector<std::pair<std::string, std::string>> options;
};

/// Nothing, and in `why` what is wrong, in words without secrets: the text is no such address.
[[nodiscard]] std::optional<uri> parse_uri(std::string_view text, std::string& why);

/// A whole number from `least` to `most`; nothing else.
[[nodiscard]] std::optional<unsigned> parse_number(std::string_view text, unsigned least,
                                                   unsigned most);

}  // namespace sallyport::base

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sallyport::cli {

/// A store's address as others may see it.
struct public_address {
  std::string text;  ///< without the secrets; "local:" for the empty address
  /// Options of the address name them as the places of secrets (password_env).
  std::vector<std::string> variables;
  /// The secrets of the address, or the variables, are needed: `text` alone does not open the store.
  bool incomplete = false;
};

/// Takes the secrets out: the password before the @, and the values of options that are secrets by
/// their names. A user's name, files and all other options stay.
[[nodiscard]] public_address public_address_of(std::string_view store_uri);

/// The store, for messages: its public address, and whose it is where that does not say it.
[[nodiscard]] std::string store_text(std::string_view store_uri);

/// The scheme of an address that client::open refuses, saying why: the store's own was withheld.
inline constexpr std::string_view withheld_scheme = "withheld:";

}  // namespace sallyport::cli

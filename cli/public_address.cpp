#include "cli/public_address.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace sallyport::cli {
namespace {

/// Percent signs that are followed by no two digits stay as they are.
std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const std::string_view digits = text.substr(i).substr(text[i] == '%' ? 1 : 0, 2);
    const char* const end = digits.data() + digits.size();
    const bool escape = text[i] == '%' && digits.size() == 2 &&
                        std::from_chars(digits.data(), end, byte, 16).ptr == end;
    out += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return out;
}

/// Those of libpq included: password, sslpassword, oauth_client_secret, scram_client_key. Files
/// (password_file, passfile, sslkey, key_file) are no secrets: who may not read them gains nothing.
bool names_secret(std::string_view option) {
  return option.ends_with("password") || option.ends_with("secret") || option.ends_with("_key");
}

/// USER:PASSWORD@HOSTS, without the password.
std::string without_password(std::string_view authority, bool& found) {
  const std::size_t at = authority.rfind('@');
  const std::size_t colon = authority.find(':');
  const bool has_password = at != std::string_view::npos && colon < at && colon + 1 < at;
  if (!has_password) return std::string(authority);
  found = true;
  const std::size_t rest = colon == 0 ? at + 1 : at;  // nothing is left before the @
  return std::string(authority.substr(0, colon)) + std::string(authority.substr(rest));
}

/// option=value&option=value, without the secrets.
std::string without_secrets(std::string_view options, public_address& about) {
  std::string kept;
  while (!options.empty()) {
    const std::size_t end = std::min(options.find('&'), options.size());
    const std::string_view one = options.substr(0, end);
    options.remove_prefix(std::min(end + 1, options.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string name = decoded(one.substr(0, equals));
    if (names_secret(name)) {
      about.incomplete = true;
      continue;
    }
    if (name.ends_with("_env")) {
      about.variables.push_back(decoded(one.substr(std::min(equals + 1, one.size()))));
      about.incomplete = true;
    }
    kept += (kept.empty() ? "?" : "&") + std::string(one);
  }
  return kept;
}

}  // namespace

public_address public_address_of(std::string_view store_uri) {
  public_address made;
  const std::string_view rest = store_uri.empty() ? "local:" : store_uri;
  const std::size_t slashes = rest.find("://");
  const bool has_authority = slashes != std::string_view::npos && slashes < rest.find('?');
  const std::size_t authority = has_authority ? slashes + 3 : 0;
  std::size_t question = std::min(rest.find('?'), rest.size());
  std::size_t path = has_authority ? std::min(rest.find('/', authority), rest.size()) : 0;
  // libpq takes a question mark before the @ for a part of the password; nobody else does.
  if (question < path && rest.starts_with("postgres")) {
    const std::size_t at = rest.rfind('@', path);
    if (at != std::string_view::npos && at > question) {
      question = std::min(rest.find('?', at), rest.size());
    }
  }
  path = std::min(path, question);
  made.text = rest.substr(0, authority);
  made.text += without_password(rest.substr(authority, path - authority), made.incomplete);
  made.text += rest.substr(path, question - path);
  made.text += without_secrets(rest.substr(std::min(question + 1, rest.size())), made);
  return made;
}

std::string store_text(std::string_view store_uri) {
  std::string text = public_address_of(store_uri).text;
  if (text == "local:" || text.starts_with("local:?")) text += " (this user's)";
  if (text == "local:machine" || text.starts_with("local:machine?")) text += " (this machine's)";
  return text;
}

}  // namespace sallyport::cli

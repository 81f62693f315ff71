#include "base/secret.hpp"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <ios>

namespace sallyport::base {
namespace {

constexpr std::size_t longest_secret = 64UL * 1024;

std::optional<std::string> secret_in_file(const std::string& path, std::string& why) {
  std::ifstream file(path, std::ios::binary);
  std::string secret(longest_secret + 1, '\0');
  file.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  secret.resize(static_cast<std::size_t>(file.gcount()));
  const bool too_large = secret.size() > longest_secret;
  // Editors leave a line's end.
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
  if (!file.is_open() || secret.empty() || too_large) {
    why = "the password file '" + path + "' can't be read, is empty or is too large";
    return std::nullopt;
  }
  return secret;
}

std::optional<std::string> secret_in_environment(const std::string& variable, std::string& why) {
  const char* const found = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
  if (found == nullptr) {
    why = "the environment has no variable '" + variable + "'";
    return std::nullopt;
  }
  std::string secret(found);
  if (secret.empty()) {
    why = "the environment's variable '" + variable + "', which is to hold the password, is empty";
    return std::nullopt;
  }
  return secret;
}

}  // namespace

std::optional<std::string> read_secret(std::string_view option, const std::string& place,
                                       std::string& why) {
  return option.ends_with("_file") ? secret_in_file(place, why) : secret_in_environment(place, why);
}

}  // namespace sallyport::base

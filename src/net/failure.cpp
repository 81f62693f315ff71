#include "net/failure.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace sallyport::net {

base::failure system_failure(int error, std::string_view what) {
  const std::error_code code(error, std::generic_category());
  return {code, std::string(what) + ": " + code.message()};
}

base::failure protocol_failure(std::string sentence) {
  return {std::error_code(EPROTO, std::generic_category()), std::move(sentence)};
}

}  // namespace sallyport::net

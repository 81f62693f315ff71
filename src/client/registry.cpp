#include "client/registry.hpp"

#include <algorithm>

namespace sallyport::client_detail {

const backend_api::backend_descriptor* find_backend(std::string_view scheme) {
  for (const auto* candidate : registered_backends()) {
    if (std::ranges::find(candidate->schemes, scheme) != candidate->schemes.end()) return candidate;
  }
  return nullptr;
}

}  // namespace sallyport::client_detail

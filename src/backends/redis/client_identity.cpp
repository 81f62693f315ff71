#include "backends/redis/client_identity.hpp"

#include "base/random.hpp"

#include <array>
#include <cstdio>

namespace sallyport::backends::redis {

std::string fresh_client_number() {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(base::kernel_seed()));
  return text.data();
}

std::string client_name_for(const address& where, const backend_api::owner_info& owner) {
  std::string name = where.client_name.empty() ? "sallyport:" + owner.label : where.client_name;
  // CLIENT SETNAME takes neither blanks nor other unprintable characters.
  for (char& each : name) {
    if (each <= ' ' || each > '~') each = '_';
  }
  return name;
}

}  // namespace sallyport::backends::redis

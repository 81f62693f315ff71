#include "tests/kit/unprivileged.hpp"

#include <unistd.h>

namespace sallyport::kit {

namespace {

constexpr uid_t nobody = 65534;

}  // namespace

std::optional<user_and_group> not_root() {
  if (::geteuid() != 0) return std::nullopt;
  return user_and_group{.user = nobody, .group = nobody};
}

void give_away(const std::filesystem::path& what) {
  if (::geteuid() == 0 && ::chown(what.c_str(), nobody, nobody) != 0) {
    throw kit_error("chown failed for " + what.string());
  }
}

std::filesystem::path in_memory() {
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
}

}  // namespace sallyport::kit

#include "client/registry.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <string>

namespace sallyport::client_detail {
namespace {

bool serves(std::span<const std::string_view> schemes, std::string_view scheme) {
  return std::ranges::find(schemes, scheme) != schemes.end();
}

std::string known_schemes() {
  std::string known;
  const auto add = [&](std::span<const std::string_view> schemes) {
    for (const auto each : schemes) known += (known.empty() ? "" : ", ") + std::string(each) + ":";
  };
  for (const auto* each : registered_backends()) add(each->schemes);
  for (const auto& each : registered_modules()) add(each.schemes);
  return known;
}

}  // namespace

base::result<const backend_api::backend_descriptor*> find_backend(std::string_view scheme,
                                                                  std::string_view modules) {
  for (const auto* candidate : registered_backends()) {
    if (serves(candidate->schemes, scheme)) return candidate;
  }
  for (const auto& candidate : registered_modules()) {
    if (!serves(candidate.schemes, scheme)) continue;
    if (const auto* const loaded = candidate.loaded.load()) return loaded;
    const module_home& home = home_of_modules();
    if (candidate.linked != nullptr) return use_linked(candidate, home.build);
    return load_module(candidate, home.build, module_folders(home, modules));
  }
  return base::fail(
      make_error_code(errc::unknown_scheme),
      "no backend for '" + std::string(scheme) + ":' in this build; it has " + known_schemes());
}

}  // namespace sallyport::client_detail

// Takes the place of the registry that CMake writes: an archive's member is not linked when all that it defines is
// there already.
#include "tests/modules/registry.hpp"

#include "backend_api/module.hpp"
#include "backends/memory/memory_backend.hpp"
#include "base/check.hpp"
#include "client/registry.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

namespace sallyport::client_detail {
namespace {

/// A module that serves its own name as a scheme.
template <std::size_t Index>
constinit std::atomic<const backend_api::backend_descriptor*> loaded{nullptr};

constexpr std::array<std::string_view, 12> names{
    "echo",          "lazy",     "raced", "later",  "absent",      "other_version",
    "other_sources", "stranger", "needy", "linked", "linked_late", "named"};

/// As if the program had been linked with it: the store memory: under other names.
const backend_api::backend_descriptor& linked_backend(const backend_api::module_host&) {
  static constexpr std::array<std::string_view, 2> schemes{"linked", "linked_late"};
  static const backend_api::backend_descriptor backend = [] {
    backend_api::backend_descriptor all = backends::memory_backend();
    all.schemes = schemes;
    all.open = [](const backend_api::open_request& request) {
      return backends::memory_backend().open(
          {.uri = "memory:", .owner = request.owner, .listener = request.listener});
    };
    return all;
  }();
  return backend;
}

constexpr backend_api::module_record linked{
    .magic = backend_api::module_magic,
    .build = {.version = SALLYPORT_TEST_VERSION, .interfaces = SALLYPORT_TEST_INTERFACES},
    .attach = &linked_backend};
constexpr backend_api::module_record linked_late{
    .magic = backend_api::module_magic,
    .build = {.version = SALLYPORT_TEST_VERSION, .interfaces = "0123456789abcdef"},
    .attach = &linked_backend};

constexpr const backend_api::module_record* record_of(std::string_view name) {
  if (name == "linked") return &linked;
  return name == "linked_late" ? &linked_late : nullptr;
}

template <std::size_t Index>
constexpr backend_module entry{.name = names[Index],
                               .schemes = std::span{names}.subspan(Index, 1),
                               .packages = names[Index] == "needy" ? "libfar1 libfar2" : "",
                               .loaded = loaded<Index>,
                               .linked = record_of(names[Index])};

}  // namespace

std::span<const backend_api::backend_descriptor* const> registered_backends() {
  static const std::array<const backend_api::backend_descriptor*, 1> all{
      &backends::memory_backend()};
  return all;
}

std::span<const backend_module> registered_modules() {
  static constexpr std::array<backend_module, names.size()> all{
      entry<0>, entry<1>, entry<2>, entry<3>, entry<4>,  entry<5>,
      entry<6>, entry<7>, entry<8>, entry<9>, entry<10>, entry<11>};
  return all;
}

const module_home& home_of_modules() {
  static constexpr module_home home{
      .build = {.version = SALLYPORT_TEST_VERSION, .interfaces = SALLYPORT_TEST_INTERFACES},
      .installed = "/nowhere/at/all",
      .from_program = "made",
      .from_library = "nowhere"};
  return home;
}

}  // namespace sallyport::client_detail

namespace sallyport::modules_testing {

const client_detail::backend_module& module_named(std::string_view name) {
  const auto all = client_detail::registered_modules();
  const auto found = std::ranges::find(all, name, &client_detail::backend_module::name);
  SALLYPORT_CHECK(found != all.end());
  return *found;
}

}  // namespace sallyport::modules_testing

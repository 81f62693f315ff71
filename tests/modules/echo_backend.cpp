#include "tests/modules/echo_backend.hpp"

#include "backends/memory/memory_backend.hpp"
#include "base/fork_generation.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <string>
#include <string_view>

namespace sallyport::backends {
namespace {

base::result<std::unique_ptr<backend_api::backend>> open(const backend_api::open_request& request) {
  const auto rest = request.uri.substr(request.uri.find(':') + 1);
  const auto refuse = [](std::string sentence) {
    return base::fail(make_error_code(errc::store_refused), std::move(sentence));
  };
  if (rest == "?refuse") return refuse("as you wished");
  if (rest == "?log") {
    base::log(base::log_level::warning, "from inside");
    return refuse("logged");
  }
  if (rest == "?generation") return refuse(std::to_string(base::fork_generation()));
  return memory_backend().open(
      {.uri = "memory:" + rest, .owner = request.owner, .listener = request.listener});
}

}  // namespace

const backend_api::backend_descriptor& echo_backend() {
  // The names of the module's copies in the tests' registry.
  static constexpr std::array<std::string_view, 5> schemes{"echo", "lazy", "raced", "later",
                                                           "named"};
  static const backend_api::backend_descriptor descriptor{
      .schemes = schemes, .summary = "for tests of modules", .open = &open};
  return descriptor;
}

}  // namespace sallyport::backends

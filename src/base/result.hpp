#pragma once

#include <tl/expected.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace sallyport::base {

/// Why something did not happen: a code to act on and a sentence for people. The sentence never
/// holds a secret.
struct failure {
  std::error_code code;
  std::string detail;
  /// Whoever was to be asked is not at fault: it was not asked, or it answered and could not serve now.
  bool no_outage = false;
};

/// A value or the failure that stands in its place. Errors travel inside the library as results;
/// only the public door turns them into exceptions.
template <class T>
class [[nodiscard]] result : public tl::expected<T, failure> {
 public:
  using tl::expected<T, failure>::expected;
};

/// The failing side of any result<T>: `return fail(errc::bad_name, "empty");`
inline tl::unexpected<failure> fail(std::error_code code, std::string detail = {}) {
  return tl::unexpected<failure>(failure{code, std::move(detail)});
}

}  // namespace sallyport::base

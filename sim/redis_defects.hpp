#pragma once

#include <string>
#include <vector>

namespace sallyport::sim {

/// A command as it is, or, with one of the defects planted that sit in a script, with that script
/// broken. The product's scripts are text and cannot ask `planted()`.
[[nodiscard]] const std::vector<std::string>& with_defect(const std::vector<std::string>& command);

}  // namespace sallyport::sim

#include "backends/zookeeper/standing.hpp"

#include <algorithm>

namespace sallyport::backends::zookeeper {

std::vector<child> contenders_among(std::span<const std::string> children,
                                    std::vector<std::string>& unknown) {
  std::vector<child> out;
  out.reserve(children.size());
  for (const std::string& each : children) {
    if (auto found = read_child(each)) {
      out.push_back(std::move(*found));
    } else {
      unknown.push_back(each);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

standing stand(form what, std::string_view own, std::span<const std::string> children) {
  standing out;
  const std::vector<child> line = contenders_among(children, out.unknown);
  const auto mine =
      std::find_if(line.begin(), line.end(), [&](const child& each) { return each.name == own; });
  if (mine == line.end()) return out;
  const auto others_kind = [&](const child& each) {
    return each.kind && *each.kind != kind_of(what);
  };
  if (std::any_of(line.begin(), mine, others_kind)) {
    out.is = standing::word::wrong_kind;
    return out;
  }
  out.is = standing::word::admitted;
  for (auto each = mine; each != line.begin();) {
    --each;
    // A reader waits for the nearest writer alone, so that no herd of readers is woken.
    if (what == form::reader && each->shared) continue;
    out.is = standing::word::blocked;
    out.behind = each->name;
    break;
  }
  return out;
}

}  // namespace sallyport::backends::zookeeper

#include "cli/environment.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace sallyport::cli {
namespace {

constexpr std::array<std::string_view, 4> our_variables{
    "SALLYPORT_STORE=", "SALLYPORT_LOCK=", "SALLYPORT_TOKEN=", "SALLYPORT_DEADLINE="};

}  // namespace

bool has_secrets(std::string_view store_uri) noexcept {
  if (store_uri.find('?') != std::string_view::npos) return true;
  const std::size_t slashes = store_uri.find("://");
  if (slashes == std::string_view::npos) return false;
  const std::string_view rest = store_uri.substr(slashes + 3);
  return rest.substr(0, rest.find('/')).find('@') != std::string_view::npos;
}

std::vector<std::string> child_environment(const char* const* inherited, const lock_facts& facts) {
  std::vector<std::string> made;
  for (; inherited != nullptr && *inherited != nullptr; ++inherited) {
    const std::string_view entry = *inherited;
    const bool ours = std::any_of(our_variables.begin(), our_variables.end(),
                                  [&](std::string_view each) { return entry.starts_with(each); });
    if (!ours) made.emplace_back(entry);
  }
  if (!facts.store.empty() && !has_secrets(facts.store)) {
    made.push_back("SALLYPORT_STORE=" + facts.store);
  }
  made.push_back("SALLYPORT_LOCK=" + facts.name);
  if (facts.token) made.push_back("SALLYPORT_TOKEN=" + std::to_string(facts.token->value()));
  if (facts.deadline) made.push_back("SALLYPORT_DEADLINE=" + deadline_text(*facts.deadline));
  return made;
}

std::string deadline_text(lease_clock::time_point deadline) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(deadline.time_since_epoch());
  std::array<char, 48> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%lld.%03lld",
                static_cast<long long>(ms.count() / 1000),
                static_cast<long long>(ms.count() % 1000));
  return buffer.data();
}

}  // namespace sallyport::cli

#include "cli/environment.hpp"

#include "cli/public_address.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>

namespace sallyport::cli {
namespace {

constexpr std::array<std::string_view, 6> our_variables{
    "SALLYPORT_STORE=",      "SALLYPORT_LOCK=", "SALLYPORT_TOKEN=",
    "SALLYPORT_FENCE_LOCK=", "SALLYPORT_MODE=", "SALLYPORT_DEADLINE="};
constexpr std::array<std::string_view, 2> variables_of_etcdctl{"ETCD_LOCK_KEY=", "ETCD_LOCK_REV="};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view entry) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view each) { return entry.starts_with(each); });
}

/// Whether an entry of an environment (NAME=value) sets one of these variables.
bool sets_one_of(const std::vector<std::string>& variables, std::string_view entry) {
  return std::any_of(variables.begin(), variables.end(), [&](const std::string& each) {
    return !each.empty() && entry.starts_with(each) && entry.substr(each.size()).starts_with('=');
  });
}

bool is_on_etcd(std::string_view store_uri) {
  return store_uri.starts_with("etcd:") || store_uri.starts_with("etcds:");
}

}  // namespace

std::vector<std::string> child_environment(const char* const* inherited, const lock_facts& facts) {
  std::vector<std::string> made;
  const bool on_etcd = is_on_etcd(facts.store);
  const public_address store = public_address_of(facts.store);
  for (; inherited != nullptr && *inherited != nullptr; ++inherited) {
    const std::string_view entry = *inherited;
    const bool ours =
        is_one_of(our_variables, entry) || (on_etcd && is_one_of(variables_of_etcdctl, entry));
    if (!ours && !sets_one_of(store.variables, entry)) made.emplace_back(entry);
  }
  if (!facts.store.empty()) {
    made.push_back("SALLYPORT_STORE=" + std::string(store.incomplete ? withheld_scheme : "") +
                   store.text);
  }
  made.push_back("SALLYPORT_LOCK=" + facts.name);
  if (facts.token) made.push_back("SALLYPORT_TOKEN=" + std::to_string(facts.token->value()));
  if (facts.token && !facts.fence_lock.empty()) {
    made.push_back("SALLYPORT_FENCE_LOCK=" + facts.fence_lock);
  }
  if (facts.token && facts.shared_token) made.emplace_back("SALLYPORT_MODE=shared");
  if (facts.deadline) made.push_back("SALLYPORT_DEADLINE=" + deadline_text(*facts.deadline));
  if (on_etcd && facts.entry) made.push_back("ETCD_LOCK_KEY=" + facts.entry->key);
  if (on_etcd && facts.token)
    made.push_back("ETCD_LOCK_REV=" + std::to_string(facts.token->value()));
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

#include "backends/etcd/standing.hpp"

#include <algorithm>

namespace sallyport::backends::etcd {
namespace {

/// Those who stand before a contender, and some deeper keys in between.
constexpr std::int64_t usual_page = 8;
constexpr std::int64_t largest_page = 1000;

bool of_kind(const entry& each, lock_kind kind) {
  return each.what != form::foreign && kind_of(each.what) == kind;
}

standing behind(const entry& each, bool by_change = false) {
  return {.is = standing::word::blocked, .behind = each.key, .by_change = by_change};
}

standing stand_for_permit(std::uint32_t permits, std::span<const entry> before, bool complete) {
  standing out;
  out.permits = permits;
  // The oldest one's N counts: it was there first.
  for (const entry& each : before) {
    if (each.what != form::permit) {
      out = behind(each);
      out.permits = permits;
      return out;
    }
    if (each.permits != 0) out.permits = each.permits;
  }
  const auto ahead = before.size();
  if (ahead > out.permits) {
    // Whoever stands right before it says by a change of its key that it has got in.
    const std::uint32_t stored = out.permits;
    out = behind(before.front(), true);
    out.permits = stored;
  } else if (!complete) {
    out.is = standing::word::unclear;
  } else {
    out.is = ahead < out.permits ? standing::word::admitted : standing::word::blocked;
  }
  return out;
}

}  // namespace

std::optional<entry> entry_of(std::string_view folder, const key_value& found) {
  const auto segment = segment_in(folder, found.key);
  if (!segment || found.lease == 0) return std::nullopt;
  entry out{.key = found.key, .what = form_of(*segment), .created = found.created};
  out.shared = out.what == form::reader;
  if (out.what == form::election) return out;  // its value is what it says to others
  if (const auto said = from_json(found.value)) {
    out.closed = said->closed;
    out.permits = said->permits;
    out.shared = out.shared || (out.what == form::writer && said->shared);
  }
  return out;
}

standing stand(form mine, std::uint32_t permits, std::span<const entry> before, bool complete) {
  const lock_kind kind = kind_of(mine);
  const bool others =
      std::ranges::any_of(before, [&](const entry& each) { return each.what != form::foreign; });
  // One of its own kind among them: then the rest came by mistake and is about to go.
  const bool own_kind =
      std::ranges::any_of(before, [&](const entry& each) { return of_kind(each, kind); });
  if (others && !own_kind) return {.is = standing::word::wrong_kind};

  switch (mine) {
    case form::foreign:
    case form::mutex:
    case form::election:
    case form::writer:
      if (!before.empty()) return behind(before.front());
      break;
    case form::reader:
      for (const entry& each : before) {
        if (!each.shared) return behind(each, true);
      }
      break;
    case form::permit:
      return stand_for_permit(permits, before, complete);
  }
  return {.is = complete ? standing::word::admitted : standing::word::unclear};
}

std::int64_t page_for(form mine, std::uint32_t permits) noexcept {
  if (mine != form::permit) return usual_page;
  return std::min(largest_page, usual_page + static_cast<std::int64_t>(permits));
}

}  // namespace sallyport::backends::etcd

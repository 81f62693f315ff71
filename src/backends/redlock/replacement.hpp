#pragma once

#include "backends/redlock/node_mark.hpp"
#include "backends/redlock/token_round.hpp"
#include "base/result.hpp"

#include <optional>
#include <span>
#include <string>

namespace sallyport::backends::redlock {

/// What an operator wants: another server takes the place of a member. Both by their addresses.
struct replacement {
  std::string old_member;
  std::string new_member;
};

/// A node of the replacer's list, as it was last seen.
struct sighting {
  std::string name;  ///< as the list spells it
  bool reachable = false;
  node_facts facts;
  std::optional<node_mark> mark;  ///< of facts.mark

  /// It may vote by its mark.
  [[nodiscard]] bool is_full() const {
    return reachable && mark && mark->is == node_mark::state::full && mark->run_id == facts.run_id;
  }
};

struct replacement_step {
  enum class kind : std::uint8_t {
    take,  ///< set the mark of `node` from what was seen to `mark`
    done,  ///< the new roster is in force; the new server comes in as a member that lost its data
    refused,  ///< nothing was or will be done, and `why` says why
  };
  kind what = kind::refused;
  node_number node = 0;
  node_mark mark{};
  /// take, and nobody has been taken yet: all that stay, as far as they may vote. Each of them is to be
  /// looked at first. Between this step and the next one there may be no majority of any roster, and
  /// what was seen of them may be old.
  node_set stay = 0;
  base::failure why{};
};

/// The next step of a replacement. It follows from the marks alone: whoever goes on where another
/// replacer ended takes the same step, and two that want the same make the same marks. REQUIRES: all
/// nodes of the list were tried, and no step is under way.
///
/// E is the roster that names the old member, E' the one with the new server in its place and the
/// next epoch. A roster is in force when a majority of its members has full marks of it.
///
/// | in force | E' is on | step |
/// |---|---|---|
/// | E | nobody | refused unless the new server is there and blank; else take the first member that stays |
/// | E | some | take the next member that stays |
/// | none | some | the same, if a majority of E' comes together |
/// | E' | | take who is left of E; then done |
/// | E, or none | nobody, and another roster of that epoch is on some | refused: somebody replaces another member, or by another server, and has to finish first |
/// | E, or none | two rosters of one later epoch are on some | refused: the offline way is left |
/// | none | nobody | refused: too few are there |
///
/// Members are taken in the order of the roster, so that two that replace the same member by different
/// servers meet at the first one. One that is away, or quiet, is left behind, if the others are a
/// majority; clients take it later. One that does not answer when it is looked at is away.
[[nodiscard]] replacement_step next_step(const replacement& wanted, std::span<const sighting> seen);

/// E', made of a mark of E.
[[nodiscard]] node_mark roster_after(const replacement& wanted, const node_mark& before);
/// Whether a replacement, and not `init --force`, made the one roster of the other: a member of the
/// earlier one that was not reached has then missed nothing but its mark.
[[nodiscard]] bool is_one_replacement_later(const node_mark& later, const node_mark& before);

}  // namespace sallyport::backends::redlock

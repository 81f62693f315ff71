#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redlock {

/// A node that belongs to a store.
struct roster_member {
  std::string id;       ///< 16 hexadecimal digits, made at random when it was taken in
  std::string address;  ///< as the operator spelled it then
  friend bool operator==(const roster_member&, const roster_member&) = default;
};

/// The mark of membership that a node keeps among its data, in words: "sp3 STAMP STATE STORE EPOCH
/// MAX_LEASE_MS RUN_ID DURABLE SINCE_US OWN ID ADDRESS ID ADDRESS ...". It alone says who belongs to
/// the store; the list of a client only says where to look.
/// A node that has lost its data has lost its mark too, and a node that came back with old data has
/// the run id of an earlier life in it. The stamp is a digest of all that follows it: scripts compare
/// "sp3 STAMP" and so the whole mark.
struct node_mark {
  enum class state : char {
    full = 'f',       ///< it may vote
    quiet = 'q',      ///< it may not vote yet: it has lost its data, or may have
    candidate = 'c',  ///< it has never voted under this mark; all have to be candidates first
  };
  std::string store;        ///< made at random when the first nodes are initialised
  std::uint64_t epoch = 1;  ///< one more for every change of the members
  std::chrono::milliseconds max_lease{};
  std::vector<roster_member> members = {};
  std::string own = {};  ///< which of the members it is
  std::string run_id = {};
  bool durable = false;  ///< in that life everything was on disk before it was answered
  state is = state::full;
  /// quiet: since when it grants nothing, by the latest of the others' clocks.
  std::uint64_t quiet_since_us = 0;

  [[nodiscard]] std::string text() const;
  /// Nothing: it is no mark.
  [[nodiscard]] static std::optional<node_mark> parse(std::string_view text);
  friend bool operator==(const node_mark&, const node_mark&) = default;
};
/// Of a mark's text, what scripts compare.
[[nodiscard]] std::string_view stamp_of(std::string_view mark) noexcept;

/// What a node says of itself when it is greeted.
struct node_facts {
  std::string run_id;
  bool durable = false;  ///< it writes everything to disk before it answers
  std::string mark;      ///< as found; empty: none
};

/// Whether both say the same of who the members are.
[[nodiscard]] bool same_roster(const node_mark& a, const node_mark& b);
[[nodiscard]] std::string addresses_of(const std::vector<roster_member>& members);
/// 16 hexadecimal digits. Not against forgers: it tells texts apart that were made in good faith.
[[nodiscard]] std::string digest_of(std::string_view text);

}  // namespace sallyport::backends::redlock

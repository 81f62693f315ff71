#pragma once

#include "runtime/lock_spec.hpp"
#include <sallyport/types.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

namespace sallyport::runtime {

struct party;

/// One turn of one caller: what a user's lease points to. The engine writes, the user's threads
/// read.
/// Thread safety: the atomics may be read anywhere; the rest is constant from the grant on, or
/// guarded by the engine's mutex.
/// Invariant: once `state` is lost or released it stays so.
struct lease_record {
  enum class phase : std::uint8_t { held, suspect, lost, released };

  lease_record(std::shared_ptr<const lock_spec> what, fencing_token number,
               std::uint32_t stored_permits, core::time_point since)
      : spec(std::move(what)),
        token(number),
        granted_at(since),
        permits(stored_permits),
        mode(spec->mode) {}

  // Constant from the grant on. The record is made before anything is asked of the store: then a
  // grant needs no memory.
  std::shared_ptr<const lock_spec> spec;
  fencing_token token;
  core::time_point granted_at;
  /// Of the store that made the grant: another one may stand in its place by now. The backend's.
  const std::string* store_id = nullptr;

  std::atomic<core::time_point> deadline{core::time_point::min()};
  std::uint32_t permits;  ///< semaphore: the stored N; constant from the grant on
  std::atomic<phase> state{phase::held};
  /// shared from a downgrade's sending on; exclusive again only if the store was never reached
  std::atomic<lock_mode> mode;
  std::atomic<bool> release_wanted{false};  ///< somebody wishes that it be given back

  // Guarded by the engine's mutex.
  party* home = nullptr;  // null once the turn has ended
  std::uint64_t turn = 0;
  std::stop_source gone{std::nostopstate};  // made when somebody asks for it
  std::shared_ptr<lease_record> next_lost;  // only for lost_turns
};

}  // namespace sallyport::runtime

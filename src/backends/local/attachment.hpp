#pragma once

#include "backends/local/gate.hpp"
#include "backends/local/lmdb_table.hpp"
#include "backends/local/place.hpp"
#include "backends/local/token_file.hpp"
#include "base/result.hpp"

#include <memory>

namespace sallyport::backends::local {

/// One process's hold on a store's folder, for as long as it has clients there.
///
/// The folder holds: `tokens` (the only file that matters after a reboot), `presence` (whose record
/// locks say who is attached), and, named after the boot, `gate-*` and `state-*.mdb`; an `inbox-*`
/// for every open client. The files of another boot are never opened, only removed: after a power
/// cut they may hold anything. A gate is put in place last, so what a killed process left half
/// made is made again.
struct attachment {
  place where;
  descriptor presence;
  std::unique_ptr<token_file> tokens;
  std::unique_ptr<gate> way_in;
  std::unique_ptr<lmdb_file> file;
};

/// Attaches to the store, making it first where there is none for this boot. A damaged one is set
/// aside, with a warning in the log, but only when no other process is attached: two processes
/// must never work on two versions of one store. Fails with store_refused or unavailable; what()
/// says what to do.
/// REQUIRES: this process is not attached to the same folder: its record locks would get lost.
[[nodiscard]] base::result<attachment> attach(place where, const store_address& address);

}  // namespace sallyport::backends::local

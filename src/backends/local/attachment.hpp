#pragma once

#include "backends/local/gate.hpp"
#include "backends/local/lmdb_table.hpp"
#include "backends/local/place.hpp"
#include "backends/local/token_file.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace sallyport::backends::local {

/// One process's hold on a store's folder, for as long as it has clients there.
///
/// The folder holds: `tokens` (the only file that matters after a reboot), `presence` (whose record
/// locks say who is attached), and, named after the boot, `gate-*` and `state-*.mdb`; an `inbox-*`
/// for every open client. The files of another boot are never read, only removed: after a power
/// cut they may hold anything. A gate is put in place last, so what a killed process left half
/// made is made again.
///
/// In a sticky folder a user can't remove the files of another. Those of an earlier boot are then
/// emptied, and what stands in the way of this one's is written over.
///
/// Record locks on two bytes of `presence` keep a store from being begun anew beside somebody:
///
/// | byte | shared (F_RDLCK) | exclusive (F_WRLCK) |
/// |---|---|---|
/// | attaching | who looks at the files and opens them; any number at a time | who makes or remakes them |
/// | present | who is attached, for as long as it is | who removes and remakes the files |
///
/// 1. Files are made and remade only by who holds both bytes exclusively. So nobody looks meanwhile, and
///    nobody is attached. A token file that was lost is made anew with all the rest, never alone: the
///    records would go on with numbers of which the new file knows nothing.
/// 2. Who looked and found all usable becomes present before it lets go of `attaching`. Between its
///    look and its presence nobody can have held `attaching` exclusively, so the files that it
///    opened are the ones in the folder. From then on nobody can be alone.
/// 3. Who looked in vain lets go of everything and comes back for the exclusive turn, in which it
///    looks again from the start: another may have made the store meanwhile. It is not present while
///    it waits, so two who found the same damage are not in each other's way.
/// 4. Whoever dies loses its locks in the same moment. What it was making has no gate yet, or has
///    one and is whole. After a reboot nobody holds a lock, and the names are those of another boot.
/// 5. The guess from the gate's presence, which decides what turn to ask for first, decides nothing
///    else: a wrong one costs a look in vain, or an exclusive turn that finds all in order.
///
/// A crowd on a store that is there needs shared locks only and does not wait at all. Who has to wait
/// pauses, up to 32 ms at a time; hundreds who wait leave the processor to the one they wait for.
struct attachment {
  place where;
  descriptor presence;
  std::unique_ptr<token_file> tokens;
  std::unique_ptr<gate> way_in;
  std::unique_ptr<lmdb_file> file;
};

/// Warns whoever looks after the gates of a store whose tokens begin anew.
void tell_of_new_tokens(const std::string& store);

/// A process that is behind a client on record and lives, though perhaps not attached: the companion of one
/// that was killed keeps what it held. REQUIRES: nobody else has the file open, or the gate is held.
[[nodiscard]] std::optional<std::int64_t> living_process(lmdb_file& file);

/// Attaches to the store, making it first where there is none for this boot. A damaged one is set
/// aside, with a warning in the log, but only when no other process is attached: two processes
/// must never work on two versions of one store. Fails with store_refused or unavailable; what()
/// says what to do.
/// REQUIRES: this process is not attached to the same folder: its record locks would get lost.
[[nodiscard]] base::result<attachment> attach(place where, const store_address& address);

}  // namespace sallyport::backends::local

#pragma once

#include "backends/local/place.hpp"
#include "base/result.hpp"

#include <string>
#include <string_view>
#include <variant>

/// `local:machine`, the one store of all users of this machine (docs/decisions/0020). Its files are
/// made once, by root, in a folder that users may enter and not write to. Users write *in* them: they
/// make none, rename none and remove none. So no user can be in another's way by owning a file, and no
/// setting of the kernel about sticky folders matters. What other stores make anew after a reboot or
/// when it is damaged is begun anew here inside the same files.
///
/// | file | what |
/// |---|---|
/// | `tokens`, `presence` | as in every store |
/// | `gate`, `state.mdb` | as `gate-BOOT` and `state-BOOT.mdb`; the gate says of which boot it is |
/// | `inbox/000` to `inbox/fff` | pipes; each client takes one that nobody has |
namespace sallyport::backends::local {

inline constexpr const char* machine_parent = "/var/lib/sallyport";
inline constexpr const char* machine_path = "/var/lib/sallyport/machine";
inline constexpr const char* machine_gate_file = "gate";
inline constexpr const char* machine_state_file = "state.mdb";

/// Opens its folder. Fails with store_refused, naming the remedy, where it was not made yet, or is
/// for a group that this process is not in.
[[nodiscard]] base::result<place> open_machine_place();

/// What a missing file of it means.
[[nodiscard]] base::failure machine_store_incomplete(std::string_view name);

/// "all users", or "root and the users of group 'deploy'".
[[nodiscard]] std::string users_of_machine_store(int folder);

/// Makes what is missing of it, and gives it to the group that the address names, or to all users. One
/// that is there keeps its tokens and, unless the address says otherwise, its group and its size; another
/// size begins it anew, and so does a token file that was lost: both need that nobody uses it, nor keeps a
/// lock of it. Fails with store_refused unless called by root.
/// REQUIRES: this process does not have it open.
[[nodiscard]] base::result<std::monostate> make_machine_store(const store_address& address);

}  // namespace sallyport::backends::local

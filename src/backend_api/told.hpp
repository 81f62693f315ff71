#pragma once

#include "backend_api/backend.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

/// What a machine has decided that the listener is to be told. A machine is pure: it puts these among
/// its actions, and whoever carries those out tells them.
namespace sallyport::backend_api {

struct acquire_told {
  holder_id holder;
  base::result<acquire_answer> answer;
};
struct renew_told {
  holder_id holder;
  base::result<renew_answer> answer;
};
struct downgrade_told {
  holder_id holder;
  base::result<renew_answer> answer;
};
struct leave_told {
  holder_id holder;
  base::result<leave_answer> answer;
};
/// The answer to a set_value; whose, only the one knows who has given the ticket.
struct value_told {
  std::uint64_t ticket = 0;
  base::result<bool> answer;
};
/// It has got in, perhaps: let it claim to find out.
struct entered_told {
  holder_id holder;
};
struct lost_told {
  holder_id holder;
};
struct changed_told {
  lock_name name;
};
struct reconnected_told {};
struct disconnected_told {};
/// Somebody wishes that it give its grant back.
struct wanted_told {
  holder_id holder;
};

inline void tell(events& listener, acquire_told& what) {
  listener.acquire_answered(what.holder, std::move(what.answer));
}
inline void tell(events& listener, renew_told& what) {
  std::array<renew_outcome, 1> outcome{{{what.holder, std::move(what.answer)}}};
  listener.renewals_answered(outcome);
}
inline void tell(events& listener, downgrade_told& what) {
  listener.downgrade_answered(what.holder, std::move(what.answer));
}
inline void tell(events& listener, leave_told& what) {
  listener.leave_answered(what.holder, std::move(what.answer));
}
inline void tell(events& listener, entered_told& what) {
  listener.granted_notice(what.holder, std::nullopt);
}
inline void tell(events& listener, lost_told& what) { listener.lost_notice(what.holder); }
inline void tell(events& listener, changed_told& what) { listener.changed_notice(what.name); }
inline void tell(events& listener, reconnected_told& /*what*/) { listener.reconnected(); }
inline void tell(events& listener, disconnected_told& /*what*/) { listener.disconnected(); }
inline void tell(events& listener, wanted_told& what) {
  listener.release_wanted_notice(what.holder);
}

/// False: the action is none of those above, and is still to be carried out.
template <class... Actions>
bool tell(events& listener, std::variant<Actions...>& action) {
  return std::visit(
      [&](auto& what) {
        if constexpr (requires { tell(listener, what); }) {
          tell(listener, what);
          return true;
        } else {
          return false;
        }
      },
      action);
}

}  // namespace sallyport::backend_api

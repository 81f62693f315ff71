#pragma once

#include "backend_api/requests.hpp"
#include "backends/redis/reply.hpp"
#include "base/result.hpp"
#include "sim/clock.hpp"
#include <sallyport/types.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::sim {

enum class operation : std::uint8_t { acquire, renew, release, withdraw, downgrade, set_value };

/// One request as it travels; owns what the backend's caller only lent.
struct request {
  operation what = operation::acquire;
  std::uint64_t number = 0;  ///< matches the reply
  lock_name name;
  lock_kind kind = lock_kind::mutex;
  lock_mode mode = lock_mode::exclusive;
  backend_api::holder_id holder;
  duration lease_length{};
  duration claim_window{};
  duration ticket_length{};
  bool may_wait = false;
  std::uint32_t permits = 1;
  std::uint32_t token_count = 0;
  std::uint32_t local_waiters = 0;
  std::string value{};
  time_point answer_by{};
  true_time sent_at = 0;
  bool doubled = false;  ///< a copy that an old connection delivers once more
  bool asked_before = true;
  /// Redis: what is said to the server.
  std::shared_ptr<const std::vector<std::string>> command{};
  /// Redis: the channel for notices is not open yet, so it is asked without queueing.
  bool unheard = false;
  /// Redis: a heartbeat that is asked by the script for several of them.
  bool beat = false;
};

using answer =
    std::variant<base::result<backend_api::acquire_answer>, base::result<backend_api::renew_answer>,
                 backend_api::leave_answer, bool>;

struct reply {
  std::uint64_t number = 0;
  operation what = operation::acquire;
  backend_api::holder_id holder;
  answer says;
  std::optional<base::failure> failed{};  ///< the store's own trouble, in place of an answer
  bool unheard = false;                   ///< as in the request
  bool in_trouble = false;                ///< it was done, and that is not what the driver hears
  /// Redis: the server does not know the script of this request.
  std::shared_ptr<const request> unknown_script{};
  /// A node of a quorum, or Redis with `left_rest`: its very words.
  std::shared_ptr<const backends::redis::reply> raw{};
  /// Redis: a heartbeat found that something has changed, and is to be asked in full.
  std::shared_ptr<const request> ask_in_full{};
  /// Redis: there were too many others to be served first, and it is to be asked again at once.
  std::shared_ptr<const request> ask_again{};
  /// Redis: the request whose script left waiters to be served; `raw` says so.
  std::shared_ptr<const request> left_rest{};
};

}  // namespace sallyport::sim

#pragma once

#include "backends/redis/connection.hpp"
#include "backends/redis/node.hpp"
#include "backends/redis/protocol.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace sallyport::backends::redis {

class session;

/// What a reply means, if one came.
template <class T>
base::result<T> decoded(base::result<reply>&& said, base::result<T> (*decode)(const reply&)) {
  if (!said) return tl::unexpected(std::move(said.error()));
  return decode(*said);
}

/// What follows a grant when it has to be on replicas: a claim, which is a write of the grantee's
/// own, and, if too few have it, the grant goes back.
struct replica_proof {
  wire_command claim;
  wire_command give_back;
};

/// One command of a session on its way, with what its answer is for.
class request_exchange final : public exchange {
 public:
  enum class purpose : std::uint8_t {
    acquire,
    confirm,    ///< the claim behind an acquire that was granted
    give_back,  ///< the end of a grant that too few replicas have
    renew,
    leave,
    downgrade,
    confirm_downgrade,
    serve_rest,  ///< goes on with what a call of ours left to be served
    other
  };

  request_exchange(session& whose, purpose what, std::uint32_t slot)
      : home_(whose), purpose_(what), slot_(slot) {}

  void answered(base::result<reply> said) override;
  [[nodiscard]] bool again(const reply& said) const override {
    return purpose_ == purpose::acquire && undecided(said);
  }
  /// As answered, with the number of replicas that have what was written; nothing: unknown.
  void witnessed(base::result<reply> said, std::optional<std::int64_t> replicas);

  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  /// Its effect counts only when replicas have it.
  [[nodiscard]] bool needs_replicas() const noexcept;

  backend_api::holder_id holder;  ///< for whom; zero: nobody
  /// acquire: the channel for notices was not open yet, so it was asked without queueing.
  bool unheard = false;
  std::function<void(base::result<reply>)> done;  ///< other
  std::shared_ptr<node> via;                      ///< where it was sent to
  std::unique_ptr<replica_proof> proof;           ///< acquire and downgrade, with replicas
  backend_api::granted grant;                     ///< confirm: what it is about
  time_point give_back_by{};                      ///< confirm: the acquire's own answer_by
  base::failure why;                              ///< give_back: what the asker is told

 private:
  [[nodiscard]] std::unique_ptr<request_exchange> successor(purpose what);
  bool redirected(const base::result<reply>& said);
  /// If this call's script left waiters to be served, another one goes on: nobody waits for it.
  void go_on_serving(const base::result<reply>& said);
  void deliver(base::result<reply> said);
  void deliver_acquire(base::result<reply> said);
  void deliver_confirm(base::result<reply> said);
  void deliver_give_back(const base::result<reply>& said);
  void deliver_downgrade(base::result<reply> said);
  /// A renewal that too few replicas have does not count.
  [[nodiscard]] base::result<backend_api::renew_answer> renewal(base::result<reply> said) const;

  session& home_;
  const purpose purpose_;
  const std::uint32_t slot_;
  unsigned redirections_ = 0;
  std::optional<std::int64_t> replicas_;
};

/// Sends it on the node's connection for such commands, with WAIT behind it. Too few replicas in
/// half of the time that is left until answer_by: that is their number.
void send_witnessed(std::shared_ptr<node> where, std::unique_ptr<request_exchange> what,
                    unsigned replicas);

}  // namespace sallyport::backends::redis

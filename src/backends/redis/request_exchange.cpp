#include "backends/redis/request_exchange.hpp"

#include "backends/redis/session.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

namespace sallyport::backends::redis {

using backend_api::acquire_answer;
using backend_api::delivery_gate;
using backend_api::granted;
using backend_api::held;
using backend_api::renew_answer;
using backend_api::renew_outcome;
using backend_api::renewed;
using backend_api::waiting;

namespace {

/// What a new waiter is told that is not in the queue yet, since it would not be heard there. It
/// asks again as soon as the channel is open; at once, if that happened while its question was under
/// way.
waiting until_heard(bool open_now) {
  return {.ask_again_after = std::chrono::milliseconds{open_now ? 0 : 50}};
}

/// Of the time until answer_by, what the claim may take: the rest is for giving back.
time_point claim_by(time_point answer_by) {
  const time_point now = lease_clock::now();
  return now + std::max(answer_by - now, duration::zero()) * 3 / 4;
}

}  // namespace

bool request_exchange::needs_replicas() const noexcept {
  return purpose_ == purpose::renew || purpose_ == purpose::confirm ||
         purpose_ == purpose::confirm_downgrade;
}

std::unique_ptr<request_exchange> request_exchange::successor(purpose what) {
  auto next = std::make_unique<request_exchange>(home_, what, slot_);
  next->answer_by = answer_by;
  next->order_key = order_key;
  next->holder = holder;
  next->unheard = unheard;
  next->done = std::move(done);
  next->proof = std::move(proof);
  next->grant = grant;
  next->give_back_by = give_back_by;
  next->why = std::move(why);
  return next;
}

bool request_exchange::redirected(const base::result<reply>& said) {
  if (!said || !said->is_error() || !via) return false;
  if (redirections_ >= session::most_redirections) return false;
  router::redirection where = home_.router_->redirect(*said, slot_, via);
  if (!where.to) return false;
  auto again = successor(purpose_);
  again->command = std::move(command);
  again->command.asking = where.asking;
  again->redirections_ = redirections_ + 1;
  home_.send(std::move(where.to), std::move(again));
  return true;
}

void request_exchange::answered(base::result<reply> said) {
  const delivery_gate::pass pass(home_.gate_);
  if (!pass.open() || redirected(said)) return;
  go_on_serving(said);
  deliver(std::move(said));
}

void request_exchange::go_on_serving(const base::result<reply>& said) {
  std::optional<wire_command> rest;
  if (said) rest = rest_to_serve(command, *said);
  if (rest) home_.serve_rest(std::move(*rest), slot_);
  if (purpose_ == purpose::serve_rest) home_.rest_served();
}

void request_exchange::witnessed(base::result<reply> said, std::optional<std::int64_t> replicas) {
  replicas_ = replicas;
  answered(std::move(said));
}

void request_exchange::deliver(base::result<reply> said) {
  switch (purpose_) {
    case purpose::acquire:
      deliver_acquire(std::move(said));
      return;
    case purpose::confirm:
      deliver_confirm(std::move(said));
      return;
    case purpose::give_back:
      deliver_give_back(said);
      return;
    case purpose::renew: {
      std::array<renew_outcome, 1> outcome{{{holder, renewal(std::move(said))}}};
      home_.listener_.renewals_answered(outcome);
      return;
    }
    case purpose::leave:
      home_.listener_.leave_answered(holder, decoded(std::move(said), &leave_answer_of));
      return;
    case purpose::downgrade:
      deliver_downgrade(std::move(said));
      return;
    case purpose::confirm_downgrade: {
      auto answer = renewal(std::move(said));
      // The server has done it, and has let readers in: that nothing happened must not be said.
      if (!answer) answer.error().code = make_error_code(errc::outcome_unknown);
      home_.listener_.downgrade_answered(holder, std::move(answer));
      return;
    }
    case purpose::serve_rest:
      // Whoever left was answered before. If this failed, the next question of any waiter goes on.
      return;
    case purpose::other:
      done(std::move(said));
      return;
  }
}

void request_exchange::deliver_acquire(base::result<reply> said) {
  base::result<acquire_answer> answer =
      said ? acquire_answer_of(*said, home_.draw())
           : base::result<acquire_answer>(tl::unexpected(std::move(said.error())));
  if (unheard && answer && std::holds_alternative<held>(*answer)) {
    const bool open_now = via && !home_.speech_->how().cluster &&
                          via->listens(home_.speech_->place_of({}), lease_clock::now());
    answer = until_heard(open_now);
  }
  if (proof && answer && std::holds_alternative<granted>(*answer)) {
    auto next = successor(purpose::confirm);
    next->grant = std::get<granted>(*answer);
    next->command = std::move(next->proof->claim);
    next->answer_by = claim_by(answer_by);
    next->give_back_by = answer_by;
    home_.dispatch(std::move(next));
    return;
  }
  home_.listener_.acquire_answered(holder, std::move(answer));
}

void request_exchange::deliver_confirm(base::result<reply> said) {
  base::result<renew_answer> answer = renewal(std::move(said));
  if (answer && std::holds_alternative<renewed>(*answer)) {
    grant.remaining = std::get<renewed>(*answer).remaining;
    grant.provisional = false;
    home_.listener_.acquire_answered(holder, acquire_answer(grant));
    return;
  }
  if (answer) {
    home_.listener_.acquire_answered(
        holder, base::fail(errc::unavailable, "the grant lapsed before its replicas were asked"));
    return;
  }
  auto next = successor(purpose::give_back);
  next->why = std::move(answer.error());
  next->command = std::move(next->proof->give_back);
  next->answer_by = give_back_by;
  home_.dispatch(std::move(next));
}

void request_exchange::deliver_give_back(const base::result<reply>& said) {
  const bool certain = said && !said->is_error();
  why.code = make_error_code(certain ? errc::unavailable : errc::outcome_unknown);
  home_.listener_.acquire_answered(holder, tl::unexpected(std::move(why)));
}

void request_exchange::deliver_downgrade(base::result<reply> said) {
  auto answer = decoded(std::move(said), &renew_answer_of);
  if (proof && answer && std::holds_alternative<renewed>(*answer)) {
    auto next = successor(purpose::confirm_downgrade);
    next->command = std::move(next->proof->claim);
    home_.dispatch(std::move(next));
    return;
  }
  home_.listener_.downgrade_answered(holder, std::move(answer));
}

base::result<renew_answer> request_exchange::renewal(base::result<reply> said) const {
  auto answer = decoded(std::move(said), &renew_answer_of);
  const unsigned wanted = home_.address_.replicas;
  if (wanted == 0 || !answer || !std::holds_alternative<renewed>(*answer)) return answer;
  if (replicas_ && *replicas_ >= std::int64_t{wanted}) return answer;
  const std::string have =
      replicas_ ? "only " + std::to_string(*replicas_) : "it is unknown how many";
  return base::fail(errc::unavailable,
                    have + " of " + std::to_string(wanted) + " replicas have the grant");
}

namespace {

/// A claim and the WAIT behind it. Both replies count only if they came over one connection: a new
/// one knows nothing of what was written before it.
class witnessed_claim final : public std::enable_shared_from_this<witnessed_claim> {
 public:
  witnessed_claim(std::shared_ptr<node> where, std::unique_ptr<request_exchange> what)
      : where_(std::move(where)), what_(std::move(what)) {}

  void send(unsigned replicas) {
    auto over = where_->witness();
    if (!over) {
      what_->answered(tl::unexpected(over.error()));
      return;
    }
    const time_point now = lease_clock::now();
    const auto left = std::chrono::floor<std::chrono::milliseconds>((what_->answer_by - now) / 2);
    auto claim = std::make_unique<part>(shared_from_this(), &witnessed_claim::claim_came);
    claim->command = what_->command;
    claim->answer_by = what_->answer_by;
    claim->order_key = what_->order_key;
    auto wait = std::make_unique<part>(shared_from_this(), &witnessed_claim::count_came);
    wait->command = plain_command({"WAIT"});
    wait->command.add(std::int64_t{replicas});
    wait->command.add(std::max<std::int64_t>(left.count(), 1));
    wait->answer_by = what_->answer_by;
    (*over)->send(std::move(claim));
    (*over)->send(std::move(wait));
  }

 private:
  class part final : public exchange {
   public:
    part(std::shared_ptr<witnessed_claim> whole, void (witnessed_claim::*then)(base::result<reply>))
        : whole_(std::move(whole)), then_(then) {}
    void answered(base::result<reply> said) override { ((*whole_).*then_)(std::move(said)); }

   private:
    const std::shared_ptr<witnessed_claim> whole_;
    void (witnessed_claim::*const then_)(base::result<reply>);
  };

  void claim_came(base::result<reply> said) {
    generation_ = where_->witness_generation();
    claim_ = std::move(said);
    // It was sent again, since its script was unknown, and so behind the WAIT.
    if (counted_) what_->witnessed(std::move(*claim_), std::nullopt);
  }

  void count_came(base::result<reply> said) {
    counted_ = true;
    if (!claim_) return;
    const bool same = generation_ == where_->witness_generation();
    std::optional<std::int64_t> count;
    if (same && said && said->is_integer()) count = said->integer;
    what_->witnessed(std::move(*claim_), count);
  }

  const std::shared_ptr<node> where_;
  const std::unique_ptr<request_exchange> what_;
  std::optional<base::result<reply>> claim_;
  bool counted_ = false;
  std::uint64_t generation_ = 0;
};

}  // namespace

void send_witnessed(std::shared_ptr<node> where, std::unique_ptr<request_exchange> what,
                    unsigned replicas) {
  what->via = where;
  std::make_shared<witnessed_claim>(std::move(where), std::move(what))->send(replicas);
}

}  // namespace sallyport::backends::redis

#include "backends/redis/session.hpp"
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::redis {

using backend_api::acquire_request;
using backend_api::delivery_gate;
using backend_api::holder_id;

/// Several heartbeats on their way, with what is needed to ask for one of them in full.
class session::heartbeats final : public exchange {
 public:
  heartbeats(session& whose, std::span<const acquire_request> batch) : home_(whose) {
    all_.reserve(batch.size());
    answer_by = batch.front().answer_by;
    for (const acquire_request& each : batch) {
      answer_by = std::min(answer_by, each.answer_by);
      all_.push_back({each.name, std::string(each.value), each});
    }
    command = home_.speech_->beat(batch);
  }

  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    const bool each_has_one = said && said->is_array() && said->elements.size() == all_.size();
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const holder_id& who = all_[i].request.holder;
      if (!said) {
        home_.listener_.acquire_answered(who, tl::unexpected(said.error()));
      } else if (each_has_one && said->elements[i].is_array()) {
        home_.listener_.acquire_answered(who, acquire_answer_of(said->elements[i], home_.draw()));
      } else {
        home_.acquire(all_[i].again());
      }
    }
  }

 private:
  struct asked {
    lock_name name;
    std::string value;
    acquire_request request;  // but for its references

    [[nodiscard]] acquire_request again() const {
      return {.name = name,
              .kind = request.kind,
              .mode = request.mode,
              .holder = request.holder,
              .lease_length = request.lease_length,
              .claim_window = request.claim_window,
              .ticket_length = request.ticket_length,
              .may_wait = true,
              .permits = request.permits,
              .token_count = request.token_count,
              .local_waiters = request.local_waiters,
              .value = value,
              .answer_by = request.answer_by};
    }
  };

  session& home_;
  std::vector<asked> all_;
};

void session::acquire_all(std::span<const acquire_request> batch) {
  std::vector<acquire_request> beats;
  for (const acquire_request& each : batch) {
    if (speech_->may_beat(each)) {
      beats.push_back(each);
    } else {
      acquire(each);
    }
  }
  const delivery_gate::pass pass(gate_);
  const std::shared_ptr<node> where =
      pass.open() && !beats.empty() ? router_->node_for(0) : nullptr;
  if (!where || !where->listens(speech_->place_of({}), lease_clock::now())) {
    for (const acquire_request& each : beats) acquire(each);
    return;
  }
  hearing_.be_heard();
  const connection::gathering together(where->commands());
  for (std::size_t from = 0; from < beats.size(); from += most_beats) {
    const std::size_t count = std::min(most_beats, beats.size() - from);
    where->commands().send(
        std::make_unique<heartbeats>(*this, std::span(beats).subspan(from, count)));
  }
}

}  // namespace sallyport::backends::redis

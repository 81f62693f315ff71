#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/drive_ticket.hpp"
#include "backend_api/hearing.hpp"
#include "backends/local/inbox.hpp"
#include "backends/local/local_store.hpp"
#include "backends/local/watch_list.hpp"
#include "base/mutex.hpp"
#include <sallyport/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sallyport::backends::local {

/// One open client of a local store: its contenders, its inbox, and the processes whose death it
/// waits for.
///
/// It has no thread. Requests are answered inside their own call. What comes from outside, notices
/// and deaths, is heard by one thread at a time: see backend_api::hearing.
/// Thread safety: all members. Listeners are called with a pass of the gate and without a mutex;
/// they may close the session.
class session final : public std::enable_shared_from_this<session>,
                      private backend_api::ear,
                      private peer_watcher {
 public:
  static base::result<std::shared_ptr<session>> open(std::shared_ptr<local_store> store,
                                                     const backend_api::open_request& request);
  /// Use open().
  session(std::shared_ptr<local_store> store, backend_api::events& listener, client_number self,
          inbox mail, descriptor everything, backend_api::hearing::attention attention,
          descriptor bell);

  /// Runs operate(rules) in a transaction, gives its result to answer(result), then delivers what
  /// that meant for other contenders of this client.
  template <class Operate, class Answer>
  void ask(time_point answer_by, Operate operate, Answer answer);

  [[nodiscard]] client_number self() const noexcept { return self_; }
  [[nodiscard]] backend_api::events& listener() const noexcept { return listener_; }

  /// The number under which the store knows this contender; 0: it does not.
  contender_number known(const holder_id& who) SALLYPORT_EXCLUDES(mutex_);
  /// As watch_list::expect and watch_list::forget.
  void expect(const holder_id& who) SALLYPORT_EXCLUDES(mutex_);
  void forget(const holder_id& who) SALLYPORT_EXCLUDES(mutex_);
  /// Keeps the contender's number, and watches those in its way from now on.
  void remember(const holder_id& who, contender_number number,
                const std::vector<client_number>& in_the_way) SALLYPORT_EXCLUDES(mutex_);
  /// As watch_list::left.
  void left(const holder_id& who, bool withdrawn, backend_api::leave_answer said)
      SALLYPORT_EXCLUDES(mutex_);

  /// Afterwards attention_fd() stays silent until somebody needs it. So a caller that takes turns at
  /// a busy lock does not pay for the switch.
  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline);
  /// Somebody waits for notices without driving: a holder, an observer, a waiter at its heartbeat.
  void be_heard() { hearing_.be_heard(); }
  [[nodiscard]] int attention_fd() const noexcept { return hearing_.attention_fd(); }
  void attend();
  void close();

 private:
  // backend_api::ear
  bool hear(time_point deadline) override;
  void ring() noexcept override;
  [[nodiscard]] backend_api::urgency unfinished() override { return backend_api::urgency::nothing; }
  /// Ends the program where the listener has no memory: nobody could say what it heard.
  void deliver(std::vector<notice>& notices) noexcept;
  void peer_event(client_number who, bool companion, std::vector<notice>& notices,
                  std::vector<client_number>& died) SALLYPORT_EXCLUDES(mutex_);
  // peer_watcher
  bool begin_watching(client_number number) override SALLYPORT_REQUIRES(mutex_);
  void end_watching(client_number number) noexcept override SALLYPORT_REQUIRES(mutex_);
  void listen_to(const peer& who, client_number number, int operation) noexcept;

  backend_api::events& listener_;
  const client_number self_;
  backend_api::delivery_gate gate_;
  std::shared_ptr<local_store> store_;  // null after close; used with an open pass only
  std::optional<inbox> mail_;           // likewise; read by who hears
  const descriptor everything_;         // an epoll of inbox, bell and peers
  const descriptor bell_;               // wakes who hears
  bool missed_ = false;                 // notices were read and not delivered; for who hears
  backend_api::hearing hearing_;

  base::mutex mutex_;
  watch_list contenders_ SALLYPORT_GUARDED_BY(mutex_){*this};
  std::unordered_map<client_number, std::shared_ptr<const peer>> peers_
      SALLYPORT_GUARDED_BY(mutex_);  // those that are watched
};

template <class Operate, class Answer>
void session::ask(time_point answer_by, Operate operate, Answer answer) {
  using outcome = base::result<std::invoke_result_t<Operate&, lock_rules&>>;
  const std::shared_ptr<session> alive = shared_from_this();
  const backend_api::delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    answer(outcome(base::fail(errc::closed, "the client was closed")));
    return;
  }
  std::vector<notice> notices;
  answer(store_->transact(answer_by, self_, notices, operate));
  if (!notices.empty()) deliver(notices);
}

}  // namespace sallyport::backends::local

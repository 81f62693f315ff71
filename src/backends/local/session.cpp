#include "backends/local/session.hpp"

#include "base/epoll.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <new>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace sallyport::backends::local {
namespace {

// What an epoll event says: which of ours it is. Peers come in pairs behind the first two.
constexpr std::uint64_t mail_event = 0;
constexpr std::uint64_t bell_event = 1;
constexpr std::uint64_t peer_event_number(client_number who, bool companion) noexcept {
  return (who + 1) * 2 + (companion ? 1 : 0);
}

int control(int set, int operation, int member, std::uint32_t events, std::uint64_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  return ::epoll_ctl(set, operation, member, &event);
}

/// The mutexes and semaphores of ten thousand waiters wake nobody else: one event at a time would
/// do, a few save calls.
constexpr std::size_t events_at_a_time = 16;

timespec time_until(time_point deadline) {
  constexpr duration longest = std::chrono::hours{1};
  const time_point now = lease_clock::now();
  const duration left = deadline <= now            ? duration::zero()
                        : deadline > now + longest ? longest
                                                   : deadline - now;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
}

}  // namespace

base::result<std::shared_ptr<session>> session::open(std::shared_ptr<local_store> store,
                                                     const backend_api::open_request& request) {
  client_record who;
  who.process = this_process();
  if (request.owner.companion_pid != 0) {
    const auto companion = identify(request.owner.companion_pid);
    if (!companion) {
      return base::fail(errc::bad_option, "client_options::companion_pid: no process " +
                                              std::to_string(request.owner.companion_pid) +
                                              " is running");
    }
    who.companion = *companion;
  }
  descriptor everything(::epoll_create1(EPOLL_CLOEXEC));
  descriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!everything.open() || !bell.open()) {
    return tl::unexpected(system_failure(errno, "open a client of the store"));
  }
  auto attention = backend_api::hearing::make_attention(everything.number());
  if (!attention) {
    return tl::unexpected(
        system_failure(attention.error().code.value(), "open a client of the store"));
  }

  // A ready-made pipe is taken first, because the number leads to it; one that is to be made is named
  // after the number.
  const bool ready_made = store->pipes_of_clients() == pipes::ready_made;
  base::result<inbox> mail = base::fail(errc::unavailable, "no pipe yet");
  number_slot slot;
  if (ready_made) {
    mail = inbox::take(store->folder());
    if (!mail) return tl::unexpected(mail.error());
    slot = {.divisor = ready_made_pipes, .remainder = mail->taken_pipe()};
  }
  const auto number = store->add_client(who, request.owner.label, slot);
  if (!number) return tl::unexpected(number.error());
  if (!ready_made) mail = inbox::make(store->folder(), *number, store->file_mode());
  if (!mail) {
    store->remove_client(*number);
    return tl::unexpected(mail.error());
  }
  const int all = everything.number();
  if (control(all, EPOLL_CTL_ADD, mail->descriptor_number(), EPOLLIN, mail_event) != 0 ||
      control(all, EPOLL_CTL_ADD, bell.number(), EPOLLIN, bell_event) != 0) {
    store->remove_client(*number);
    return tl::unexpected(system_failure(errno, "open a client of the store"));
  }
  return std::make_shared<session>(std::move(store), request.listener, *number, std::move(*mail),
                                   std::move(everything), std::move(*attention), std::move(bell));
}

session::session(std::shared_ptr<local_store> store, backend_api::events& listener,
                 client_number self, inbox mail, descriptor everything,
                 backend_api::hearing::attention attention, descriptor bell)
    : listener_(listener),
      self_(self),
      store_(std::move(store)),
      mail_(std::move(mail)),
      everything_(std::move(everything)),
      bell_(std::move(bell)),
      hearing_(*this, everything_.number(), std::move(attention)) {}

contender_number session::known(const holder_id& who) {
  const base::mutex_lock lock(mutex_);
  return contenders_.known(who);
}

void session::expect(const holder_id& who) {
  const base::mutex_lock lock(mutex_);
  contenders_.expect(who);
}

void session::forget(const holder_id& who) {
  const base::mutex_lock lock(mutex_);
  contenders_.forget(who);
}

void session::remember(const holder_id& who, contender_number number,
                       const std::vector<client_number>& in_the_way) {
  const base::mutex_lock lock(mutex_);
  contenders_.remember(who, number, in_the_way);
}

void session::left(const holder_id& who, bool withdrawn, backend_api::leave_answer said) {
  const base::mutex_lock lock(mutex_);
  contenders_.left(who, withdrawn, said);
}

bool session::begin_watching(client_number number) {
  // The store looked at it a moment ago, so it is known, but for the rare case that others pushed
  // it out.
  auto who = store_->find_peer(number);
  if (!who) return false;
  listen_to(*who, number, EPOLL_CTL_ADD);
  peers_.insert_or_assign(number, std::move(who));
  return true;
}

void session::end_watching(client_number number) noexcept {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  listen_to(*found->second, number, EPOLL_CTL_DEL);
  peers_.erase(found);
}

void session::listen_to(const peer& who, client_number number, int operation) noexcept {
  const int set = everything_.number();
  if (who.process_descriptor() >= 0) {
    control(set, operation, who.process_descriptor(), EPOLLIN, peer_event_number(number, false));
  }
  if (who.companion_descriptor() >= 0) {
    control(set, operation, who.companion_descriptor(), EPOLLIN, peer_event_number(number, true));
  }
}

void session::peer_event(client_number who, bool companion, std::vector<notice>& notices,
                         std::vector<client_number>& died) {
  const base::mutex_lock lock(mutex_);
  const auto found = peers_.find(who);
  if (found == peers_.end()) return;
  const peer& one = *found->second;
  if (!one.dead()) {
    // One of two has ended: that alone means nothing, and it would be told again and again.
    const int ended = companion ? one.companion_descriptor() : one.process_descriptor();
    control(everything_.number(), EPOLL_CTL_DEL, ended, 0, 0);
    return;
  }
  for (const holder_id& waiter : contenders_.died(who)) {
    notices.push_back({self_, notice_kind::look, waiter, std::nullopt, {}});
  }
  died.push_back(who);
}

void session::deliver(std::vector<notice>& notices) noexcept {
  for (const notice& each : notices) {
    switch (each.kind) {
      case notice_kind::granted:
        listener_.granted_notice(each.holder, each.grant);
        break;
      case notice_kind::look:
        listener_.granted_notice(each.holder, std::nullopt);
        break;
      case notice_kind::lost:
        listener_.lost_notice(each.holder);
        break;
      case notice_kind::changed:
        if (lock_name::acceptable(each.name)) listener_.changed_notice(lock_name(each.name));
        break;
    }
  }
}

bool session::hear(time_point deadline) {
  std::array<epoll_event, events_at_a_time>
      events;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const timespec patience = time_until(deadline);
  const int count = base::wait_for_events(everything_.number(), events, &patience);
  const backend_api::delivery_gate::pass pass(gate_);
  if (!pass.open()) return false;
  if (count <= 0) return true;
  const std::shared_ptr<local_store> store = store_;
  std::vector<notice> notices;
  std::vector<client_number> died;
  bool understood = !missed_;
  missed_ = true;  // unless the memory lasts to the end
  for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(count))) {
    const std::uint64_t number = each.data.u64;
    if (number == mail_event) {
      understood = mail_->receive(notices) && understood;
    } else if (number == bell_event) {
      eventfd_t rings = 0;
      ::eventfd_read(bell_.number(), &rings);
    } else {
      peer_event(number / 2 - 1, number % 2 == 1, notices, died);
    }
  }
  missed_ = false;
  deliver(notices);
  if (!understood) listener_.reconnected();
  // The waiter is in already; what else the dead left can wait. The watchdog cannot: it has losses to
  // tell.
  for (const client_number each : died) store->peer_ended(each);
  return true;
}

void session::ring() noexcept { ::eventfd_write(bell_.number(), 1); }

backend_api::drive_outcome session::drive(backend_api::drive_ticket& ticket, time_point deadline) {
  const std::shared_ptr<session> alive = shared_from_this();
  try {
    return hearing_.drive(ticket, deadline);
  } catch (const std::bad_alloc&) {
    ring();
    return backend_api::drive_outcome::no_memory;
  }
}

void session::attend() {
  const std::shared_ptr<session> alive = shared_from_this();
  try {
    hearing_.attend();
  } catch (const std::bad_alloc&) {
    // Whoever hears next lets everybody ask again; until then each waiter has its heartbeat.
  }
}

void session::close() {
  if (!gate_.close()) return;
  ring();
  bool something_left = false;
  {
    const base::mutex_lock lock(mutex_);
    something_left = !contenders_.empty();
  }
  // Before the record: a pipe without one would stay for ever if this process died in between.
  mail_.reset();
  if (something_left) {
    store_->bury(self_, local_store::patience_with_the_stopped);
  } else {
    store_->remove_client(self_);
  }
  store_.reset();
}

}  // namespace sallyport::backends::local

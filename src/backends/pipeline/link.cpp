#include "backends/pipeline/link.hpp"

#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace sallyport::backends::pipeline {
namespace {

using namespace std::chrono_literals;

// A connection that broke sooner than this counts as a failed attempt: no tight loop with a server
// that throws everybody out.
constexpr duration proof_time = 1s;

}  // namespace

base::result<std::shared_ptr<const net::tls_context>> link::context_of(
    const net::tls_settings& tls) {
  if (!tls.on) return std::shared_ptr<const net::tls_context>();
  auto context = net::tls_context::make(tls);
  if (!context) return base::fail(errc::bad_option, std::move(context.error().detail));
  return context;
}

link::link(std::shared_ptr<net::pump> engine, settings how,
           std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose)
    : pump_(std::move(engine)),
      settings_(std::move(how)),
      tls_(std::move(tls)),
      user_(std::move(whose)),
      random_(base::kernel_seed()),
      where_(settings_.where) {}

std::string link::describe() {
  const base::mutex_lock lock(mutex_);
  return settings_.store + " at " + where_.describe();
}

bool link::drop_pending() {
  const base::mutex_lock lock(mutex_);
  return wishes_.drop.has_value();
}

base::failure link::unavailable(const std::string& what) {
  return {make_error_code(errc::unavailable), describe() + ": " + what};
}

base::failure link::network_failure(const base::failure& why) {
  if (why.code != std::error_code(EKEYREJECTED, std::generic_category()))
    return unavailable(why.detail);
  return {
      make_error_code(errc::store_refused),
      describe() + ": " + why.detail +
          "; check ca_file (who signed the server's certificate), server_name (whose it is) and "
          "cert_file with key_file (who we are)"};
}

// Wishes of other threads: they are noted, and the pump's thread is called.

void link::want() {
  {
    const base::mutex_lock lock(mutex_);
    wishes_.wanted = true;
    wishes_.eager = true;
  }
  alarm(lease_clock::now());
}

void link::drop(base::failure why) {
  {
    const base::mutex_lock lock(mutex_);
    wishes_.drop = std::move(why);
  }
  alarm(lease_clock::now());
}

void link::rest(base::failure why) {
  {
    const base::mutex_lock lock(mutex_);
    wishes_.wanted = false;
    wishes_.eager = false;
    wishes_.rest = true;
    wishes_.drop = std::move(why);
  }
  alarm(lease_clock::now());
}

void link::retarget(net::endpoint where) {
  {
    const base::mutex_lock lock(mutex_);
    where_ = std::move(where);
    wishes_.drop = {make_error_code(errc::unavailable),
                    "the connection moves to " + settings_.store + " at " + where_.describe()};
  }
  alarm(lease_clock::now());
}

void link::close() {
  pump_->dismiss(number_);
  const base::mutex_lock lock(mutex_);
  wishes_.closed = true;
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

link::wishes link::take_wishes() {
  const base::mutex_lock lock(mutex_);
  wishes taken = std::exchange(wishes_, wishes{});
  wishes_.closed = taken.closed;
  return taken;
}

// The pump's thread.

void link::due(time_point now) {
  const wishes asked = take_wishes();
  const std::shared_ptr<user> whose = user_.lock();
  if (asked.closed || !whose) return;
  wanted_ = (wanted_ && !asked.rest) || asked.wanted;
  if (asked.drop) {
    if (stage_ == stage::up) {
      end(*asked.drop, true);
    } else if (stage_ != stage::idle) {
      // Nobody has been told of this attempt yet; what waits for it waits for the next.
      dialer_.reset();
      forget_stream();
      stage_ = stage::idle;
      next_attempt_ = now;
    } else {
      next_attempt_ = std::min(next_attempt_, now);
    }
  }
  if (stage_ == stage::idle && wanted_) {
    if (asked.eager) next_attempt_ = std::min(next_attempt_, began_ + least_pause);
    if (now >= next_attempt_) begin(now);
  }
  if (stage_ == stage::dialing) {
    dial(now);
  } else if (stage_ == stage::greeting && now >= give_up_) {
    end(unavailable("it did not answer the greeting in time"), false);
  }
  if (stage_ == stage::idle && wanted_) alarm(next_attempt_);
  if (stage_ == stage::greeting) alarm(give_up_);
  whose->link_due(now);
}

void link::ready(std::uint32_t events) {
  const std::shared_ptr<user> whose = user_.lock();
  if (!whose) return;
  switch (stage_) {
    case stage::idle:
      break;
    case stage::dialing:
      dial(lease_clock::now());
      break;
    case stage::greeting:
      continue_greeting();
      break;
    case stage::up:
      whose->link_ready(events);
      break;
  }
}

void link::begin(time_point now) {
  began_ = now;
  give_up_ = now + settings_.connect_timeout;
  next_attempt_ = time_point::max();
  net::endpoint where;
  {
    const base::mutex_lock lock(mutex_);
    where = where_;
  }
  dialer_.emplace(std::move(where), tls_, settings_.tls.server_name, give_up_);
  stage_ = stage::dialing;
}

void link::dial(time_point now) {
  const net::dialer::progress step = dialer_->proceed(now);
  switch (step.what) {
    case net::dialer::progress::state::working:
      if (step.watch >= 0) {
        pump_->watch(number_, step.watch, step.watch_for);
      } else {
        pump_->unwatch(number_);
      }
      alarm(step.look_again);
      break;
    case net::dialer::progress::state::failed:
      end(network_failure(step.why), false);
      break;
    case net::dialer::progress::state::connected: {
      stream_ = dialer_->take();
      dialer_.reset();
      const base::mutex_lock lock(mutex_);
      socket_ = stream_->descriptor_number();
      // close() may have come before there was anything to end.
      if (wishes_.closed) ::shutdown(socket_, SHUT_RDWR);
      stage_ = stage::greeting;
      break;
    }
  }
  if (stage_ == stage::greeting) greet();
}

void link::greet() {
  greeting_ = greeting();
  greeting_written_ = 0;
  more_to_say_ = false;
  alarm(give_up_);
  if (!pump_->watch(number_, stream_->descriptor_number(), EPOLLIN)) {
    end(unavailable("its socket can't be watched"), false);
    return;
  }
  continue_greeting();
}

void link::continue_greeting() {
  do {
    write_greeting();
    const auto heard = hear_greeting();
    if (!heard) {
      end(heard.error(), false);
      return;
    }
    const std::shared_ptr<user> whose = user_.lock();
    if (!whose) return;
    if (*heard) {
      stage_ = stage::up;
      give_up_ = time_point::max();
      up_since_ = lease_clock::now();
      whose->link_up();
      return;
    }
  } while (std::exchange(more_to_say_, false));
}

void link::write_greeting() {
  while (greeting_written_ < greeting_.size()) {
    const net::transfer step =
        stream_->write_some(std::string_view(greeting_).substr(greeting_written_));
    if (step.what == net::transfer::outcome::moved) {
      greeting_written_ += step.bytes;
      continue;
    }
    if (step.what != net::transfer::outcome::again) break;  // reading says why
    pump_->watch(number_, stream_->descriptor_number(),
                 step.wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
    break;
  }
  if (greeting_written_ == greeting_.size() && !greeting_.empty()) {
    greeting_.clear();  // it may hold a password
    greeting_written_ = 0;
    pump_->watch(number_, stream_->descriptor_number(), EPOLLIN);
  }
}

void link::watch_output(bool on) {
  pump_->watch(number_, stream_->descriptor_number(), on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

base::result<bool> link::receive(std::string_view& bytes) {
  net::transfer step = stream_->read_some(buffer_);
  switch (step.what) {
    case net::transfer::outcome::moved:
      break;
    case net::transfer::outcome::again:
      return false;
    case net::transfer::outcome::closed:
      return base::fail(errc::unavailable, "it closed the connection");
    case net::transfer::outcome::failed:
      return tl::unexpected(std::move(step.why));
  }
  bytes = std::string_view(buffer_.data(), step.bytes);
  return step.more;
}

void link::fail(const base::failure& why) {
  if (stage_ == stage::up) end(unavailable(why.detail), false);
}

void link::forget_stream() {
  pump_->unwatch(number_);
  {
    const base::mutex_lock lock(mutex_);
    socket_ = -1;
  }
  stream_.reset();
}

duration link::pause() {
  duration longest = first_pause;
  for (unsigned i = 0; i < failures_ && longest < longest_pause; ++i) longest *= 2;
  longest = std::min(longest, longest_pause);
  return duration(static_cast<duration::rep>(static_cast<double>(longest.count()) *
                                             (0.5 + random_.unit() / 2)));
}

void link::end(const base::failure& why, bool retry_at_once) {
  const bool was_up = stage_ == stage::up;
  const time_point now = lease_clock::now();
  stage_ = stage::idle;
  dialer_.reset();
  give_up_ = time_point::max();
  if (const std::shared_ptr<user> whose = user_.lock()) whose->link_down(why, was_up);
  forget_stream();
  if (was_up && now - up_since_ >= proof_time) failures_ = 0;
  next_attempt_ = retry_at_once ? std::max(now, began_ + least_pause) : now + pause();
  ++failures_;
  if (wanted_) alarm(next_attempt_);
}

}  // namespace sallyport::backends::pipeline

#include "backends/etcd/transport_parts.hpp"
#include <sallyport/lease_clock.hpp>

#include <string_view>
#include <utility>

// The two streams: keep-alives and watches.
namespace sallyport::backends::etcd {

namespace {

/// A log-in does not end sooner. A watch that is denied on a stream younger than this is denied for
/// good: logging in again, over and over, would not help.
constexpr duration shortest_log_in = std::chrono::seconds{3};

/// The same words for who may not watch a key, and for a log-in that has ended.
bool denied(const codec::watch_report& said) {
  const auto says = [&](std::string_view words) {
    return said.why.find(words) != std::string::npos;
  };
  return said.ended && (says("permission denied") || says("invalid auth token"));
}

}  // namespace

void transport::keep_alive(std::string request) { say(*keep_alives_, std::move(request)); }

void transport::watch(std::string request) { say(*watches_, std::move(request)); }

void transport::say(line& where, std::string request) {
  const base::mutex_lock lock(mutex_);
  if (shut_) return;
  where.to_say.push_back(std::move(request));
  if (where.open != nullptr) {
    where.open->write_next();
  } else if (!reopening_) {
    open(where);
  }
}

void transport::open_lines() {
  for (line* each : {keep_alives_.get(), watches_.get()}) {
    if (each->open == nullptr && !each->to_say.empty()) open(*each);
  }
}

void transport::open(line& where) {
  if (!ready()) {
    await_connection();
    return;
  }
  if (!user_.empty() && token_.empty()) {
    log_in();
    return;
  }
  auto* const fresh =
      new stream(shared_from_this(), where, current_, lease_clock::now());  // NOLINT: owns itself
  where.open = fresh;
  fresh->token = token_;
  if (where.is_watch) fresh->context.AddMetadata("hasleader", "true");
  if (!token_.empty()) fresh->context.AddMetadata("token", token_);
  fresh->begin(*members_[current_]->stub, *queue_);
}

void transport::replace(stream& which) {
  which.replaced = true;
  which.context.TryCancel();
}

void transport::stream::started(bool ok) {
  {
    const base::mutex_lock lock(home->mutex_);
    if (home->shut_) {
      over = true;
    } else if (ok) {
      ready = true;
      read();
      write_next();
    } else {
      finish();
    }
  }
  drop(1);
}

void transport::stream::was_read(bool ok) {
  std::string bytes;
  {
    const base::mutex_lock lock(home->mutex_);
    if (home->shut_) {
      over = true;
    } else if (ok) {
      bytes = bytes_of(heard);
    } else {
      finish();
    }
  }
  if (!bytes.empty()) home->stream_said(*this, bytes);
  {
    const base::mutex_lock lock(home->mutex_);
    if (ok && !home->shut_ && !over) read();
  }
  drop(1);
}

void transport::stream::written(bool ok) {
  {
    const base::mutex_lock lock(home->mutex_);
    writing = false;
    if (home->shut_) {
      over = true;
    } else if (ok) {
      write_next();
    } else {
      finish();
    }
  }
  drop(1);
}

void transport::stream::finished(bool /*ok*/) {
  home->stream_ended(*this, status);
  drop(1);
}

void transport::stream::drop(int count) {
  bool last = false;
  {
    const base::mutex_lock lock(home->mutex_);
    under_way -= count;
    last = under_way == 0;
    if (last && where.open == this) where.open = nullptr;
  }
  if (last) delete this;  // NOLINT: owns itself
}

void transport::stream_said(stream& which, const std::string& bytes) {
  bool back = false;
  const bool is_watch = which.where.is_watch;
  {
    const base::mutex_lock lock(mutex_);
    if (which.where.open != &which) return;
    if (is_watch) back = std::exchange(which.where.was_broken, false);
  }
  if (!is_watch) {
    if (const auto said = codec::read_keep_alive(bytes)) listener_.kept_alive(*said);
    return;
  }
  const auto said = codec::read_watch(bytes);
  if (!said) return;
  if (denied(*said)) {
    const base::mutex_lock lock(mutex_);
    const bool old = which.token != token_ || lease_clock::now() - which.opened >= shortest_log_in;
    if (!user_.empty() && old) {
      if (which.token == token_) token_.clear();
      replace(which);  // the listener hears of all its watches together
      return;
    }
  }
  listener_.watch_reported(*said);
  if (back) listener_.watches_back();
}

void transport::stream_ended(stream& which, const grpc::Status& status) {
  const bool is_watch = which.where.is_watch;
  auto how = stream_end::broken;
  {
    const base::mutex_lock lock(mutex_);
    if (shut_) return;
    if (which.replaced) how = stream_end::replaced;
    if (which.where.open == &which) which.where.open = nullptr;
    // What was not said yet belongs to what the listener is about to say anew.
    which.where.to_say.clear();
    which.where.was_broken = true;
    if (meaning_of(status) == meaning::log_in_again && which.token == token_) token_.clear();
    const meaning what = meaning_of(status);
    if (!which.replaced && (what == meaning::lost || what == meaning::not_done)) {
      move_on(which.asked);
    }
    reopening_ = true;
    ring_later(which.replaced ? duration::zero() : reopen_pause);
  }
  if (is_watch) {
    listener_.watches_over(how);
  } else {
    listener_.keep_alives_over(how);
  }
}

}  // namespace sallyport::backends::etcd

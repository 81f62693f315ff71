#include "backends/redis/subscriber.hpp"

#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <array>
#include <utility>

namespace sallyport::backends::redis {

base::result<std::shared_ptr<subscriber>> subscriber::make(std::shared_ptr<net::pump> engine,
                                                           settings how,
                                                           std::weak_ptr<listener> whose) {
  auto made = std::make_shared<subscriber>(how, std::move(whose));
  auto linked = link::make(std::move(engine),
                           {.where = std::move(how.where),
                            .tls = std::move(how.tls),
                            .user = std::move(how.user),
                            .password = std::move(how.password),
                            .client_name = std::move(how.client_name),
                            .database = how.database,
                            .connect_timeout = how.connect_timeout},
                           made);
  if (!linked) return tl::unexpected(linked.error());
  made->link_ = std::move(*linked);
  return made;
}

subscriber::subscriber(const settings& how, std::weak_ptr<listener> whose)
    : ping_interval_(how.ping_interval),
      ping_patience_(how.ping_patience),
      listener_(std::move(whose)) {}

subscriber::~subscriber() {
  if (link_) subscriber::close();
}

void subscriber::ask(question::kind what, std::string_view channel, bool sharded) {
  std::array<std::string_view, 2> words{"PING", channel};
  std::size_t count = 2;
  switch (what) {
    case question::kind::subscribe:
      words[0] = sharded ? "SSUBSCRIBE" : "SUBSCRIBE";
      break;
    case question::kind::unsubscribe:
      words[0] = sharded ? "SUNSUBSCRIBE" : "UNSUBSCRIBE";
      break;
    case question::kind::ping:
      count = 1;
      break;
  }
  append_command(out_.bytes(), std::span(words).first(count));
  questions_.push_back({what, std::string(channel)});
}

void subscriber::flush() {
  // If it is broken, reading will say so, or the next ping.
  if (up_) out_.flush(*link_);
}

void subscriber::subscribe(std::string_view channel, bool sharded) {
  bool connect = false;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_ || !channels_.emplace(channel, sharded).second) return;
    connect = !up_;
    if (up_) {
      ask(question::kind::subscribe, channel, sharded);
      if (!busy_ && !out_.blocked()) flush();
      const time_point look = lease_clock::now() + ping_interval_;
      if (look < look_at_) link_->alarm(look_at_ = look);
    }
  }
  if (connect) link_->want();
}

void subscriber::unsubscribe(std::string_view channel) {
  const base::mutex_lock lock(mutex_);
  const auto found = channels_.find(std::string(channel));
  if (closed_ || found == channels_.end()) return;
  if (up_) {
    ask(question::kind::unsubscribe, channel, found->second);
    if (!busy_ && !out_.blocked()) flush();
  }
  channels_.erase(found);
}

void subscriber::retarget(net::endpoint where) { link_->retarget(std::move(where)); }

void subscriber::drop(base::failure why) { link_->drop(std::move(why)); }

void subscriber::rest(base::failure why) {
  {
    const base::mutex_lock lock(mutex_);
    channels_.clear();
  }
  link_->rest(std::move(why));
}

void subscriber::close() {
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    up_ = false;
    channels_.clear();
  }
  link_->close();
}

void subscriber::link_up() {
  const base::mutex_lock lock(mutex_);
  if (closed_) return;
  up_ = true;
  heard_ = false;
  pinged_ = false;
  for (const auto& [channel, sharded] : channels_) {
    ask(question::kind::subscribe, channel, sharded);
  }
  flush();
  look_at_ = lease_clock::now() + ping_interval_;
  link_->alarm(look_at_);
}

void subscriber::link_down(const base::failure& why, bool /*was_up*/) {
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    up_ = false;
    busy_ = false;
    questions_.clear();
    out_.forget();
    look_at_ = time_point::max();
  }
  if (const std::shared_ptr<listener> whose = listener_.lock()) whose->lost(why);
}

void subscriber::link_ready(std::uint32_t /*events*/) { take_replies(); }

bool subscriber::take_replies() {
  bool more = true;
  while (more) {
    {
      const base::mutex_lock lock(mutex_);
      if (!up_) return false;
      busy_ = true;
    }
    auto got = link_->read(said_);
    bool understood = true;
    for (const reply& each : said_) understood = understood && hear(each);
    const bool heard = !said_.empty();
    said_.clear();
    if (!got || !understood) {
      link_->fail(got ? base::failure{make_error_code(errc::unavailable),
                                      "it said something that is no answer and no message"}
                      : got.error());
      return false;
    }
    more = *got;
    const base::mutex_lock lock(mutex_);
    busy_ = false;
    heard_ = heard_ || heard;
    if (heard && std::exchange(pinged_, false)) {
      look_at_ = lease_clock::now() + ping_interval_;
      link_->alarm(look_at_);
    }
    flush();
  }
  return true;
}

bool subscriber::hear(const reply& said) {
  if (said.is_error()) return hear_refusal(said);
  if (said.what == reply::kind::status && said.text == "PONG") return hear_pong();
  if (!said.is_array() || said.elements.size() < 2 || !said.elements[0].is_text()) return false;
  const std::string& what = said.elements[0].text;
  if (what == "message" || what == "smessage") {
    if (said.elements.size() != 3) return false;
    {
      const base::mutex_lock lock(mutex_);
      if (!channels_.contains(said.elements[1].text)) return true;
    }
    if (const std::shared_ptr<listener> whose = listener_.lock()) {
      whose->message(said.elements[1].text, said.elements[2].text);
    }
    return true;
  }
  if (what == "pong") return hear_pong();
  if (what == "subscribe" || what == "ssubscribe") return hear_subscribed(said.elements[1].text);
  if (what == "unsubscribe" || what == "sunsubscribe") return hear_unsubscribed(said.elements[1]);
  return false;
}

bool subscriber::hear_refusal(const reply& said) {
  std::string channel;
  {
    const base::mutex_lock lock(mutex_);
    if (questions_.empty() || questions_.front().what != question::kind::subscribe) return false;
    channel = std::move(questions_.front().channel);
    questions_.pop_front();
    if (channels_.erase(channel) == 0) return true;
  }
  if (const std::shared_ptr<listener> whose = listener_.lock()) whose->refused(channel, said.text);
  return true;
}

bool subscriber::hear_subscribed(const std::string& channel) {
  {
    const base::mutex_lock lock(mutex_);
    if (questions_.empty() || questions_.front().what != question::kind::subscribe ||
        questions_.front().channel != channel) {
      return false;
    }
    questions_.pop_front();
    if (!channels_.contains(channel)) return true;
  }
  if (const std::shared_ptr<listener> whose = listener_.lock()) whose->subscribed(channel);
  return true;
}

bool subscriber::hear_unsubscribed(const reply& channel) {
  {
    const base::mutex_lock lock(mutex_);
    if (!questions_.empty() && questions_.front().what == question::kind::unsubscribe &&
        questions_.front().channel == channel.text) {
      questions_.pop_front();
      return true;
    }
    // Unasked: the slot of a sharded channel has moved to another server.
    if (channels_.erase(channel.text) == 0) return true;
  }
  if (const std::shared_ptr<listener> whose = listener_.lock()) {
    whose->ended(channel.text);
  }
  return true;
}

bool subscriber::hear_pong() {
  const base::mutex_lock lock(mutex_);
  if (questions_.empty() || questions_.front().what != question::kind::ping) return false;
  questions_.pop_front();
  return true;
}

void subscriber::link_due(time_point now) {
  // What has come in time is not late because nobody looked.
  if (!take_replies()) return;
  bool silent = false;
  {
    const base::mutex_lock lock(mutex_);
    if (!up_ || now < look_at_) return;
    silent = pinged_ && !heard_;
    if (!silent) {
      const bool ask_now = !heard_ && !channels_.empty();
      if (ask_now) {
        ask(question::kind::ping, {}, false);
        flush();
      }
      pinged_ = ask_now;
      heard_ = false;
      look_at_ =
          channels_.empty() ? time_point::max() : now + (ask_now ? ping_patience_ : ping_interval_);
      if (look_at_ != time_point::max()) link_->alarm(look_at_);
    }
  }
  if (silent) link_->fail({make_error_code(errc::unavailable), "it has gone silent"});
}

}  // namespace sallyport::backends::redis

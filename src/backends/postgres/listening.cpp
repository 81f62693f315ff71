#include "backends/postgres/listening.hpp"

#include "backends/postgres/speech.hpp"
#include <sallyport/lease_clock.hpp>

#include <utility>
#include <vector>

namespace sallyport::backends::postgres {

/// LISTEN, UNLISTEN, or a question whether anybody is there.
class listening::question final : public exchange {
 public:
  /// `opens`: this channel; empty: it opens none.
  question(std::weak_ptr<listening> home, std::string opens)
      : home_(std::move(home)), opens_(std::move(opens)) {}

  void answered(base::result<reply> said) override {
    const auto home = opens_.empty() ? nullptr : home_.lock();
    if (!home) return;
    if (!said || said->is_error()) {
      home->not_opened(opens_);
    } else if (const auto whose = home->listener_.lock()) {
      whose->gap_ended();
    }
  }

 private:
  const std::weak_ptr<listening> home_;
  const std::string opens_;
};

std::shared_ptr<listening> listening::make(std::shared_ptr<net::pump> engine,
                                           connection::settings how,
                                           std::weak_ptr<listener> whose) {
  auto made = std::make_shared<listening>(engine, std::move(whose));
  made->connection_ = connection::make(std::move(engine), std::move(how), made);
  made->number_ = made->pump_->enroll(made);
  return made;
}

listening::listening(std::shared_ptr<net::pump> engine, std::weak_ptr<listener> whose)
    : pump_(std::move(engine)), listener_(std::move(whose)) {}

void listening::say(call what, std::string opens) {
  auto asked = std::make_unique<question>(weak_from_this(), std::move(opens));
  asked->what = std::move(what);
  asked->answer_by = lease_clock::now() + answer_patience;
  connection_->send(std::move(asked));
}

void listening::listen(const std::string& channel) {
  bool ping = false;
  bool up = false;
  {
    const base::mutex_lock lock(mutex_);
    if (!channels_.insert(channel).second) return;
    ping = !std::exchange(pinging_, true);
    up = up_;
  }
  if (ping) pump_->alarm(number_, lease_clock::now() + ping_interval);
  if (up) {
    say(speech::listen(channel), channel);
  } else {
    connection_->want();  // and connected() listens to all
  }
}

void listening::unlisten(const std::string& channel) {
  {
    const base::mutex_lock lock(mutex_);
    unopened_.erase(channel);
    if (channels_.erase(channel) == 0 || !up_) return;
  }
  say(speech::unlisten(channel), {});
}

void listening::not_opened(const std::string& channel) {
  const base::mutex_lock lock(mutex_);
  // On the next connection all are opened anyway.
  if (up_ && channels_.contains(channel)) unopened_.insert(channel);
}

void listening::close() {
  pump_->dismiss(number_);
  connection_->close();
}

base::result<std::optional<std::string>> listening::greet(const reply* /*said*/,
                                                          int /*server_process*/) {
  return std::optional<std::string>{};
}

void listening::connected() {
  std::vector<std::string> all;
  {
    const base::mutex_lock lock(mutex_);
    up_ = true;
    all.assign(channels_.begin(), channels_.end());
  }
  for (const std::string& each : all) say(speech::listen(each), each);
}

void listening::disconnected(const base::failure& /*why*/, bool /*was_up*/) {
  const base::mutex_lock lock(mutex_);
  up_ = false;
  unopened_.clear();
}

void listening::notified(std::string_view channel, std::string_view payload) {
  if (const auto whose = listener_.lock()) whose->message(channel, payload);
}

void listening::due(time_point now) {
  bool up = false;
  std::unordered_set<std::string> unopened;
  {
    const base::mutex_lock lock(mutex_);
    up = up_;
    unopened.swap(unopened_);
  }
  for (const std::string& each : unopened) say(speech::listen(each), each);
  if (up) say({.prepared = nullptr, .text = "SELECT 1", .parameters = {}}, {});
  pump_->alarm(number_, now + ping_interval);
}

}  // namespace sallyport::backends::postgres

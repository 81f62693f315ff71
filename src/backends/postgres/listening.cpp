#include "backends/postgres/listening.hpp"

#include "backends/postgres/speech.hpp"
#include <sallyport/lease_clock.hpp>

#include <utility>
#include <vector>

namespace sallyport::backends::postgres {

/// LISTEN, UNLISTEN, or a question whether anybody is there.
class listening::question final : public exchange {
 public:
  question(std::weak_ptr<listening> home, bool opens) : home_(std::move(home)), opens_(opens) {}

  void answered(base::result<reply> said) override {
    // Whatever failed is said again on the next connection.
    if (!opens_ || !said || said->is_error()) return;
    const auto home = home_.lock();
    const auto whose = home ? home->listener_.lock() : nullptr;
    if (whose) whose->gap_ended();
  }

 private:
  const std::weak_ptr<listening> home_;
  const bool opens_;
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

void listening::say(call what, bool opens) {
  auto asked = std::make_unique<question>(weak_from_this(), opens);
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
    say(speech::listen(channel), true);
  } else {
    connection_->want();  // and connected() listens to all
  }
}

void listening::unlisten(const std::string& channel) {
  {
    const base::mutex_lock lock(mutex_);
    if (channels_.erase(channel) == 0 || !up_) return;
  }
  say(speech::unlisten(channel), false);
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
  for (const std::string& each : all) say(speech::listen(each), true);
}

void listening::disconnected(const base::failure& /*why*/, bool /*was_up*/) {
  const base::mutex_lock lock(mutex_);
  up_ = false;
}

void listening::notified(std::string_view channel, std::string_view payload) {
  if (const auto whose = listener_.lock()) whose->message(channel, payload);
}

void listening::due(time_point now) {
  bool up = false;
  {
    const base::mutex_lock lock(mutex_);
    up = up_;
  }
  if (up) say({.prepared = nullptr, .text = "SELECT 1", .parameters = {}}, false);
  pump_->alarm(number_, now + ping_interval);
}

}  // namespace sallyport::backends::postgres

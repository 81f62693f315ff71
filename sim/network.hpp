#pragma once

#include "sim/context.hpp"
#include "sim/messages.hpp"
#include "sim/store_node.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::sim {

/// The process's end of its link to the store. Called at the moment something arrives at its
/// machine; a frozen process looks at it later.
class link_user {
 public:
  link_user() = default;
  link_user(const link_user&) = delete;
  link_user& operator=(const link_user&) = delete;

  virtual void replies_arrive(std::vector<reply> batch) = 0;
  virtual void notice_arrives(const backends::memory::notice& what) = 0;
  /// What was sent by connection `ended` or an older one will not be answered any more.
  virtual void connection_ends(std::uint64_t ended) = 0;
  /// Either connection is back: notices may have been missed.
  virtual void connection_begins() = 0;
  /// Redis: messages of a channel come from now on, again or for the first time.
  virtual void line_begins() { connection_begins(); }
  /// Redis: and no longer, until it begins again.
  virtual void line_ends() {}
  /// Redis: something was published on a channel of this process.
  virtual void message_arrives(const std::string& /*channel*/, const std::string& /*payload*/) {}

 protected:
  ~link_user() = default;
};

/// How requests and replies travel. `messages`: each has a fate of its own, which is worse than TCP.
/// `stream`: as TCP; what is lost is lost with all that follows it on its connection, and what is
/// executed late of an old connection is so in order, up to the first that is not.
enum class carriage : std::uint8_t { messages, stream };

/// A process's two connections to the store: one for requests and their replies, in order, and one
/// for notices. Bytes of a closed connection may still arrive at the store, late; nothing of it
/// arrives at the process. Lives as long as anything of it is on its way, also after its process
/// was killed.
/// Thread safety: none.
class link : public notice_listener, public std::enable_shared_from_this<link> {
 public:
  link(context& shared, server& store, client_number client,
       carriage how = carriage::messages) noexcept
      : shared_(shared), store_(store), client_(client), how_(how) {}

  void attach(link_user* user) noexcept { user_ = user; }
  [[nodiscard]] bool connected() const noexcept { return connected_; }
  /// Names the present connection.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

  /// REQUIRES: connected().
  void send(std::vector<request> batch);
  /// The request connection breaks; a new one is made after a while.
  void reset();
  /// The notices' connection breaks.
  virtual void reset_notices();
  void connect_after(duration delay);

  void cut(bool to_store, bool from_store) noexcept;
  virtual void heal();

  // notice_listener
  void publish(const backends::memory::notice& what) override;

 protected:
  struct direction {
    bool cut = false;
    true_time last = 0;    // nothing overtakes this
    bool stalled = false;  // stream: nothing comes through until the connection is made anew
  };

  [[nodiscard]] duration draw_delay(fault slow, counter counted);
  [[nodiscard]] true_time in_order(direction& way, duration delay);
  [[nodiscard]] bool cut_off() const noexcept { return to_store_.cut || from_store_.cut; }
  [[nodiscard]] bool cut_from_store() const noexcept { return from_store_.cut; }
  [[nodiscard]] bool in_use() const noexcept { return user_ != nullptr; }
  [[nodiscard]] link_user& user() noexcept { return *user_; }
  [[nodiscard]] context& shared() noexcept { return shared_; }
  [[nodiscard]] client_number client() const noexcept { return client_; }

 private:
  /// One connection's past: what it sent may arrive after its end, but not after the store's.
  struct sender {
    std::uint64_t connection = 0;
    std::uint64_t store_life = 0;
  };

  /// Of an old connection, as a stream: when it is executed; nothing: never.
  [[nodiscard]] std::optional<true_time> late_in_order(std::uint64_t connection);
  void arrive_at_store(const std::vector<request>& batch, sender by, bool late);
  void serve(const std::vector<request>& batch, std::uint64_t sent_by);
  [[nodiscard]] reply answer_to(const request& asked);
  void send_back(std::vector<reply> batch);
  void send_notice(const backends::memory::notice& what, duration delay);
  void try_to_connect();

  context& shared_;
  server& store_;
  client_number client_;
  const carriage how_;
  link_user* user_ = nullptr;
  direction to_store_;
  direction from_store_;
  std::map<std::uint64_t, direction> old_;  // stream: what is left of connections that ended
  std::uint64_t epoch_ = 1;                 // 0: no connection
  bool connected_ = false;
  bool connecting_ = false;
  bool subscribed_ = true;
};

}  // namespace sallyport::sim

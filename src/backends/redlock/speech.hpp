#pragma once

#include "backend_api/backend.hpp"
#include "backends/redis/keys.hpp"
#include "backends/redis/reply.hpp"
#include "backends/redis/wire.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What is said to one node of a quorum and what its answers mean. Pure: no connection, no clock.
namespace sallyport::backends::redlock {

using backend_api::duration;
using redis::reply;
using redis::script_source;
using redis::wire_command;

/// The scripts of scripts/*.lua; written by CMake.
namespace scripts {
extern const script_source adopt;
extern const script_source bid;
extern const script_source break_lock;
extern const script_source enqueue;
extern const script_source extend;
extern const script_source heal;
extern const script_source leave;
extern const script_source look;
extern const script_source raise;
extern const script_source who;
}  // namespace scripts

/// One lock as a contender wants it; the parts of a request that commands are made of.
struct wish {
  std::string name;
  std::string contender;  ///< 32 hexadecimal digits
  duration lease_length{};
  duration claim_window{};
  duration ticket_length{};
  std::uint32_t tokens = 1;
  std::uint32_t local_waiters = 0;
  std::string value;
};

/// How requests become commands, for one client. Immutable.
/// Thread safety: all members.
class speech {
 public:
  struct settings {
    std::string prefix;
    std::string client;  ///< who hears notices: 16 hexadecimal digits, fresh for every client
    backend_api::owner_info owner{};
  };

  explicit speech(settings how);

  // `mark`: the stamp of the node's mark, which scripts compare; for adopt() the whole of it.
  [[nodiscard]] wire_command bid(const std::string& mark, const wish& what,
                                 const std::string& id) const;
  [[nodiscard]] wire_command extend(const std::string& mark, const wish& what,
                                    const std::string& id, std::uint32_t tokens) const;
  [[nodiscard]] wire_command raise(const std::string& mark, std::string_view name,
                                   const std::string& id, std::uint64_t token) const;
  struct farewell {
    std::string_view name;
    std::string contender;
    std::string id;
    bool hand_over = false;
    std::string nonce = {};
    bool withdraw = false;
  };
  [[nodiscard]] wire_command leave(const farewell& what) const;
  [[nodiscard]] wire_command enqueue(const std::string& mark, const wish& what,
                                     std::uint64_t came) const;
  [[nodiscard]] wire_command heal(const std::string& mark, const wish& what, const std::string& id,
                                  backend_api::token_block tokens) const;
  [[nodiscard]] wire_command adopt(const std::string& expected, const std::string& mark,
                                   std::uint64_t floor) const;
  [[nodiscard]] wire_command read_mark() const;
  /// Clock and counter.
  [[nodiscard]] wire_command look(const std::string& mark) const;
  [[nodiscard]] wire_command who(std::string_view name) const;
  [[nodiscard]] wire_command break_lock(std::string_view name, const std::string& id,
                                        backend_api::break_mode mode) const;

  /// Where this client hears what concerns it.
  [[nodiscard]] std::string channel() const;
  [[nodiscard]] const settings& how() const noexcept { return how_; }

 private:
  [[nodiscard]] wire_command line_call(const script_source& script, std::string_view name) const;
  void add_counter(wire_command& call) const;
  void add_mark(wire_command& call) const;
  void add_channel_head(wire_command& call) const;

  settings how_;
  std::string card_;
};

/// What bid, extend, enqueue, raise and heal answer.
struct vote {
  enum class kind : std::uint8_t {
    yes,
    no,
    handed_over,   ///< somebody's release gave it to this contender, under `nonce`
    not_a_member,  ///< `mark` is what the node has instead
    far_behind     ///< raise: its counter is so far below the token that it is not believed
  };
  kind what = kind::no;
  std::uint64_t counter = 0;  ///< yes
  std::string nonce;
  std::string mark;
  bool absent = false;          ///< no: nobody has this node's vote
  bool foreign = false;         ///< no: a client of another library has it
  bool free = false;            ///< enqueue: bid for it
  bool first = false;           ///< enqueue: nobody stands before it
  duration remaining{};         ///< of whoever has it; zero when nobody does
  std::uint64_t server_us = 0;  ///< bid: the server's time
};
[[nodiscard]] base::result<vote> bid_answer_of(const reply& said);
[[nodiscard]] base::result<vote> extend_answer_of(const reply& said);
[[nodiscard]] base::result<vote> enqueue_answer_of(const reply& said);
/// raise and heal
[[nodiscard]] base::result<vote> plain_answer_of(const reply& said);
[[nodiscard]] base::result<bool> leave_answer_of(const reply& said);
struct adopt_answer {
  bool done = false;
  std::string mark;
};
[[nodiscard]] base::result<adopt_answer> adopt_answer_of(const reply& said);
struct look_answer {
  std::optional<std::string> other_mark;   ///< the node has this one; then the rest is nothing
  std::optional<std::uint64_t> server_us;  ///< nothing: it is no time
  std::optional<std::uint64_t> counter;  ///< zero where there is none yet; nothing: it is no number
};
[[nodiscard]] look_answer look_answer_of(const reply& said);

/// What a message on a client's channel says.
struct notice {
  enum class kind : std::uint8_t { handed_over, wake, lost };
  kind what = kind::wake;
  std::string whom;   ///< the contender, or for `lost` the id
  std::string nonce;  ///< handed_over
};
[[nodiscard]] std::optional<notice> parse_notice(std::string_view message);

}  // namespace sallyport::backends::redlock

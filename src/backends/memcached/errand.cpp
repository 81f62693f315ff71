#include "backends/memcached/errand.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::backends::memcached {

using backend_api::acquire_answer;
using backend_api::break_mode;
using backend_api::gone;
using backend_api::held;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::token_block;
using backend_api::waiting;

namespace {

using namespace std::chrono_literals;

constexpr std::string_view stranger = "not a Sallyport client";

/// The server answers; others change the item all the time.
base::failure restless(errc code) {
  return {make_error_code(code), "others change the item all the time", true};
}

/// Whose the item is, if it is one of ours at all.
std::optional<record> owned(const reply& said, const holder_id& holder) {
  if (said.found != meta_outcome::item) return std::nullopt;
  auto what = from_value(said.value);
  if (!what || what->closed || what->holder != holder) return std::nullopt;
  return what;
}

std::uint64_t token_of(const record& what, std::uint64_t cas) {
  return what.token != 0 ? what.token : cas;
}

token_block block_of(std::uint64_t token) {
  return {.first = fencing_token{token}, .last = fencing_token{token}};
}

base::failure refused_to_store(const reply& said) {
  return {make_error_code(errc::unavailable),
          "memcached stored nothing: " + said.why + "; it may need more memory (-m)"};
}

/// An item never lives for ever: 0 would mean that.
std::int64_t same_time(std::int64_t seconds) { return std::max<std::int64_t>(seconds, 1); }

}  // namespace

std::int64_t seconds_for(duration lease_length) {
  return (std::chrono::ceil<std::chrono::seconds>(lease_length) + clock_slack).count();
}

duration left_of(std::int64_t seconds) {
  return std::max<duration>(std::chrono::seconds{seconds} - clock_slack, duration::zero());
}

duration poll_pause(unsigned polls, double draw) {
  const duration full = std::min<duration>(first_poll * (1 << std::min(polls, 6U)), longest_poll);
  return full / 2 +
         duration{static_cast<duration::rep>(static_cast<double>(full.count()) / 2 * draw)};
}

// ---- acquire -------------------------------------------------------------------------------------

acquire_errand::acquire_errand(question asked)
    : errand(asked.key), verdict(held{}), asked_(std::move(asked)) {}

errand_step acquire_errand::begin() { return asked_.asked_before ? begin_by_reading() : add(); }

errand_step acquire_errand::add() {
  value_ = to_value(asked_.mine);
  return {.say = add_item(key_, value_, seconds_for(asked_.lease_length))};
}

errand_step acquire_errand::heard(const reply& said) {
  if (said.stored != store_outcome::none) return heard_store(said);
  return said.found == meta_outcome::item ? judge(said) : add();
}

errand_step acquire_errand::heard_store(const reply& said) {
  if (said.stored == store_outcome::refused) {
    verdict = tl::unexpected(refused_to_store(said));
    return {};
  }
  // The id is in it, so nobody else writes the same.
  if (said.stored == store_outcome::stored && said.found == meta_outcome::item &&
      said.value == value_) {
    // By our own count, which begins before the sending: the item's time is longer.
    return grant(asked_.mine, said, asked_.lease_length);
  }
  if (said.found == meta_outcome::item) return judge(said);
  // It has just gone: the other's time was up, or our own item was deleted at once.
  if (once_more()) return begin_by_reading();
  return fail(errc::unavailable, "memcached forgets the lock as soon as it has it");
}

errand_step acquire_errand::judge(const reply& said) {
  auto what = from_value(said.value);
  if (what && !what->closed && what->holder == asked_.mine.holder) {
    return grant(std::move(*what), said, std::min(left_of(said.seconds), asked_.lease_length));
  }
  if (what && what->kind != asked_.mine.kind) {
    return fail(errc::wrong_kind, "the name is in use as a " + std::string(to_string(what->kind)));
  }
  if (asked_.may_wait) {
    verdict = waiting{.ask_again_after = asked_.pause};
  } else {
    verdict = held{};
  }
  return {};
}

errand_step acquire_errand::grant(record what, const reply& said, duration remaining) {
  if (said.cas == 0) {
    return fail(errc::store_refused, "memcached runs without CAS (-C); locks need it");
  }
  verdict =
      backend_api::granted{.tokens = block_of(token_of(what, said.cas)), .remaining = remaining};
  granted = grant_memory{.said = std::move(what), .cas = said.cas};
  return {};
}

errand_step acquire_errand::fail(errc code, std::string why) {
  verdict = base::fail(code, std::move(why));
  return {};
}

// ---- renew ---------------------------------------------------------------------------------------

renew_errand::renew_errand(question asked, std::optional<grant_memory> known)
    : errand(asked.key), verdict(gone{}), asked_(std::move(asked)), known_(std::move(known)) {}

errand_step renew_errand::begin() {
  if (!known_) return begin_by_reading();
  return extend(std::move(known_->said), known_->cas);
}

errand_step renew_errand::extend(record what, std::uint64_t cas) {
  what.token = asked_.draw_token ? 0 : token_of(what, cas);
  what.local_waiters = asked_.local_waiters;
  return replace(what, seconds_for(asked_.lease_length), cas);
}

errand_step renew_errand::heard(const reply& said) {
  auto mine = owned(said, asked_.holder);
  if (said.stored == store_outcome::stored && mine) {
    verdict = backend_api::renewed{.tokens = block_of(token_of(*mine, said.cas)),
                                   .remaining = asked_.lease_length};
    renewed = grant_memory{.said = std::move(*mine), .cas = said.cas, .wanted = said.fetched};
    return {};
  }
  if (said.stored == store_outcome::refused && mine) {
    verdict = tl::unexpected(refused_to_store(said));
    return {};
  }
  if (!mine) {
    verdict = gone{};
    return {};
  }
  if (once_more()) return extend(std::move(*mine), said.cas);
  verdict = tl::unexpected(restless(errc::unavailable));
  return {};
}

// ---- leave ---------------------------------------------------------------------------------------

leave_errand::leave_errand(std::string key, const holder_id& holder, std::uint64_t known)
    : errand(std::move(key)), verdict(leave_answer::not_there), holder_(holder), known_(known) {}

errand_step leave_errand::begin() { return known_ != 0 ? remove(known_) : begin_by_reading(); }

errand_step leave_errand::heard(const reply& said) {
  switch (said.found) {
    case meta_outcome::done:
      verdict = leave_answer::left;
      wanted = said.fetched;
      return {};
    case meta_outcome::absent:
      verdict = leave_answer::not_there;
      return {};
    case meta_outcome::exists:
      // Renewed in between, by a request of ours that was late; or it is another's by now.
      if (once_more()) return begin_by_reading();
      break;
    case meta_outcome::item:
      if (owned(said, holder_)) return remove(said.cas);
      verdict = leave_answer::not_there;
      return {};
  }
  verdict = tl::unexpected(restless(errc::outcome_unknown));
  return {};
}

// ---- an election's value -------------------------------------------------------------------------

value_errand::value_errand(std::string key, const holder_id& holder, std::string value)
    : errand(std::move(key)), verdict(false), holder_(holder), value_(std::move(value)) {}

errand_step value_errand::heard(const reply& said) {
  auto mine = owned(said, holder_);
  if (said.stored == store_outcome::stored && mine) {
    now = grant_memory{.said = std::move(*mine), .cas = said.cas, .wanted = said.fetched};
    verdict = true;
    return {};
  }
  if (!mine) {
    verdict = false;
    return {};
  }
  if (said.stored == store_outcome::refused) {
    verdict = tl::unexpected(refused_to_store(said));
    return {};
  }
  if (!once_more()) {
    verdict = tl::unexpected(restless(errc::unavailable));
    return {};
  }
  mine->token = token_of(*mine, said.cas);
  mine->value = value_;
  return replace(*mine, same_time(said.seconds), said.cas);
}

// ---- looking and breaking ------------------------------------------------------------------------

who_errand::who_errand(std::string key, lock_name name, std::int64_t wall_clock_ms)
    : errand(std::move(key)),
      verdict(std::optional<lock_info>{}),
      name_(std::move(name)),
      now_ms_(wall_clock_ms) {}

errand_step who_errand::heard(const reply& said) {
  if (said.found != meta_outcome::item) return {};
  const auto what = from_value(said.value);
  const auto remaining = std::chrono::floor<std::chrono::milliseconds>(left_of(said.seconds));
  lock_info info;
  info.name = name_.text();
  info.kind = what ? what->kind : lock_kind::mutex;
  if (what && what->closed) {
    info.closed_for = std::max<std::chrono::milliseconds>(remaining, 1ms);
  } else {
    holder_info holder;
    holder.remaining = remaining;
    if (what) {
      holder.token = fencing_token{token_of(*what, said.cas)};
      holder.host = what->host;
      holder.pid = what->pid;
      holder.label = what->label;
      holder.value = what->value;
      holder.local_waiters = what->local_waiters;
      holder.held_for =
          std::chrono::milliseconds{std::max<std::int64_t>(now_ms_ - what->since_ms, 0)};
    } else {
      holder.label = stranger;
    }
    info.holders.push_back(std::move(holder));
  }
  verdict = std::optional<lock_info>(std::move(info));
  return {};
}

break_errand::break_errand(std::string key, fencing_token observed, break_mode mode)
    : errand(std::move(key)), verdict(std::monostate{}), observed_(observed), mode_(mode) {}

errand_step break_errand::fail(base::failure why) {
  verdict = tl::unexpected(std::move(why));
  return {};
}

errand_step break_errand::heard(const reply& said) {
  if (said.stored == store_outcome::stored || said.found == meta_outcome::done) {
    verdict = std::monostate{};
    return {};
  }
  if (said.stored == store_outcome::refused) {
    verdict = tl::unexpected(refused_to_store(said));
    return {};
  }
  if (said.found == meta_outcome::exists) {
    if (once_more()) return begin_by_reading();
    return fail(restless(errc::unavailable));
  }
  if (said.found == meta_outcome::absent) return fail({errc::no_such_lock, "nobody holds it"});
  return judge(said);
}

errand_step break_errand::judge(const reply& said) {
  auto what = from_value(said.value);
  if (!what) {
    return fail(
        {errc::not_supported,
         "the item belongs to another client than Sallyport's: end it there, or delete it"});
  }
  if (what->closed) return fail({errc::no_such_lock, "nobody holds it; it is still closed"});
  const std::uint64_t token = token_of(*what, said.cas);
  if (fencing_token{token} != observed_) {
    return fail({errc::token_mismatch, "it is held under another token by now"});
  }
  if (!once_more()) return fail(restless(errc::unavailable));
  if (mode_ == break_mode::at_once) return remove(said.cas);
  record stone = std::move(*what);
  stone.closed = true;
  stone.holder = {};
  stone.token = token;
  stone.value.clear();
  return replace(stone, same_time(said.seconds), said.cas);
}

}  // namespace sallyport::backends::memcached

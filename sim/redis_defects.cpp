#include "sim/redis_defects.hpp"

#include "backends/redis/protocol.hpp"
#include "backends/redlock/speech.hpp"
#include "base/check.hpp"
#include "base/planted.hpp"
#include "sim/redis/sha1.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <string_view>

namespace sallyport::sim {
namespace {

using base::defect;

/// What is written in a script, and what a mistake would have written there.
struct mistake {
  defect which;
  std::string_view right;
  std::string_view wrong;
};

constexpr std::array<mistake, 10> mistakes{{
    {defect::script_releases_anybody,
     "type(value) == 'string' and string.sub(value, 1, #ARGV[5]) == ARGV[5]",
     "type(value) == 'string'"},
    {defect::script_renews_anybody,
     "if type(value) ~= 'string' or string.sub(value, 1, #head) ~= head then return {0} end\nlocal",
     "if type(value) ~= 'string' then return {0} end\nlocal"},
    {defect::script_forgets_expiry, "ARGV[15], 'PX', ARGV[8])", "ARGV[15])"},
    {defect::script_ignores_foreigner, "~= 'sp1 ' then\n    foreign = true",
     "~= 'sp1 ' then\n    value = false"},
    {defect::tokens_without_floor, "if last == tonumber(", "if false and last == tonumber("},
    {defect::queue_expires_early, "* 1.25)", "* 0.3)"},
    {defect::blocks_ahead_of_clock, "elseif last > block_end and", "elseif false and"},
    {defect::unheard_waiter_starves, "redis.call('ZADD', queue, place + 0.5, id)",
     "redis.call('ZADD', queue, place, id)"},
    {defect::raise_unconditional, "if id ~= ARGV[2] then return {0} end", ""},
    {defect::claim_without_draw, "last = redis.call('INCRBY', counter, ARGV[4])\nhold(",
     "last = tonumber(redis.call('GET', counter) or 0)\nhold("},
}};

/// The scripts with the present mistake in them: by their text, and by the hash of the right one.
struct broken_scripts {
  defect which = defect::none;
  std::map<std::string, std::string, std::less<>> text_of;
  std::map<std::string, std::string, std::less<>> sha1_of;
};

std::size_t replace_all(std::string& text, std::string_view right, std::string_view wrong) {
  std::size_t count = 0;
  for (auto at = text.find(right); at != std::string::npos; at = text.find(right, at)) {
    text.replace(at, right.size(), wrong);
    at += wrong.size();
    ++count;
  }
  return count;
}

broken_scripts break_scripts(const mistake& made) {
  using namespace backends::redis;
  namespace quorum = backends::redlock::scripts;
  broken_scripts broken{made.which, {}, {}};
  std::size_t count = 0;
  for (const auto* each :
       {&scripts::acquire,   &scripts::acquire_many, &scripts::beat,       &scripts::break_lock,
        &scripts::downgrade, &scripts::leave,        &scripts::leave_many, &scripts::raise,
        &scripts::renew,     &scripts::renew_many,   &scripts::set_value,  &scripts::who,
        &quorum::adopt,      &quorum::bid,           &quorum::break_lock,  &quorum::enqueue,
        &quorum::extend,     &quorum::heal,          &quorum::leave,       &quorum::raise,
        &quorum::who}) {
    std::string text(each->text);
    count += replace_all(text, made.right, made.wrong);
    broken.sha1_of.emplace(each->sha1, redis::sha1_hex(text));
    broken.text_of.emplace(each->text, std::move(text));
  }
  SALLYPORT_CHECK(count > 0);  // the script was changed: the mistake has to be made anew
  return broken;
}

}  // namespace

const std::vector<std::string>& with_defect(const std::vector<std::string>& command) {
  static broken_scripts broken;
  static std::vector<std::string> changed;
  if (broken.which != base::planted_defect) {
    broken = {base::planted_defect, {}, {}};
    for (const mistake& each : mistakes) {
      if (each.which == base::planted_defect) broken = break_scripts(each);
    }
  }
  if (broken.text_of.empty()) return command;
  for (const auto* replacements : {&broken.text_of, &broken.sha1_of}) {
    for (std::size_t i = 1; i < command.size() && i < 3; ++i) {
      const auto found = replacements->find(command[i]);
      if (found == replacements->end()) continue;
      changed = command;
      changed[i] = found->second;
      return changed;
    }
  }
  return command;
}

}  // namespace sallyport::sim

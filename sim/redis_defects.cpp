#include "sim/redis_defects.hpp"

#include "backends/redis/protocol.hpp"
#include "backends/redlock/speech.hpp"
#include "base/check.hpp"
#include "base/planted.hpp"
#include "sim/redis/sha1.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

namespace sallyport::sim {
namespace {

using base::defect;

/// What is written in a script, and what a mistake would have written there.
struct mistake {
  defect which;
  std::string_view right;
  std::string_view wrong;
};

constexpr std::array<mistake, 11> mistakes{{
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
    {defect::newcomer_passes_unserved, "if more then return {5} end", ""},
    {defect::unheard_waiter_starves, "redis.call('ZADD', queue, place + 0.5, id)",
     "redis.call('ZADD', queue, place, id)"},
    {defect::raise_unconditional, "if id ~= ARGV[2] then return {0} end", ""},
    {defect::claim_without_draw, "last = redis.call('INCRBY', counter, ARGV[4])\nhold(",
     "last = tonumber(redis.call('GET', counter) or 0)\nhold("},
}};

/// What a script does for many waiters, and from how few on in a world with small bounds.
struct smaller_bound {
  std::string_view usual;
  std::string_view here;
};

constexpr std::array<smaller_bound, 3> smaller_bounds{{
    {"local most_served = 128", "local most_served = 2"},
    {"places_a_stretch, longest_stretch = 128, 32", "places_a_stretch, longest_stretch = 2, 4"},
    {"local tickets_left = 128", "local tickets_left = 2"},
}};

/// The scripts as they run here, where they differ: by their text, and by the hash of the usual one.
struct changed_scripts {
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

changed_scripts change_scripts(const mistake* made, bool small_bounds) {
  using namespace backends::redis;
  namespace quorum = backends::redlock::scripts;
  changed_scripts changed;
  std::size_t mistakes_made = 0;
  std::array<std::size_t, smaller_bounds.size()> bounds_found{};
  for (const auto* each :
       {&scripts::acquire,   &scripts::acquire_many, &scripts::beat,       &scripts::break_lock,
        &scripts::downgrade, &scripts::leave,        &scripts::leave_many, &scripts::raise,
        &scripts::renew,     &scripts::renew_many,   &scripts::set_value,  &scripts::who,
        &quorum::adopt,      &quorum::bid,           &quorum::break_lock,  &quorum::enqueue,
        &quorum::extend,     &quorum::heal,          &quorum::leave,       &quorum::raise,
        &quorum::who}) {
    std::string text(each->text);
    if (made != nullptr) mistakes_made += replace_all(text, made->right, made->wrong);
    for (std::size_t i = 0; small_bounds && i < smaller_bounds.size(); ++i) {
      bounds_found[i] += replace_all(text, smaller_bounds[i].usual, smaller_bounds[i].here);
    }
    changed.sha1_of.emplace(each->sha1, redis::sha1_hex(text));
    changed.text_of.emplace(each->text, std::move(text));
  }
  // A script was changed: the mistake has to be made anew, or the bound be found again.
  SALLYPORT_CHECK(made == nullptr || mistakes_made > 0);
  for (const std::size_t found : bounds_found) SALLYPORT_CHECK(!small_bounds || found > 0);
  return changed;
}

const changed_scripts& scripts_with(const mistake* made, bool small_bounds) {
  thread_local std::map<std::pair<const mistake*, bool>, changed_scripts> all;
  const auto [place, fresh] = all.try_emplace({made, small_bounds});
  if (fresh) place->second = change_scripts(made, small_bounds);
  return place->second;
}

}  // namespace

const std::vector<std::string>& as_run_here(const std::vector<std::string>& command,
                                            bool small_bounds) {
  thread_local std::vector<std::string> changed;
  const auto* const made = std::ranges::find(mistakes, base::planted_defect,
                                             [](const mistake& each) { return each.which; });
  const bool mistaken = made != mistakes.end();
  if (!mistaken && !small_bounds) return command;
  const changed_scripts& scripts = scripts_with(mistaken ? made : nullptr, small_bounds);
  for (const auto* replacements : {&scripts.text_of, &scripts.sha1_of}) {
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

#pragma once

#include "backends/redis/reply.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

/// What a node says, written by a test.
namespace sallyport::backends::redlock::said {

using redis::reply;

inline reply number(std::int64_t value) { return {reply::kind::integer, value, {}, {}}; }
inline reply text(std::string value) { return {reply::kind::text, 0, std::move(value), {}}; }
inline reply error(std::string value) { return {reply::kind::error, 0, std::move(value), {}}; }
inline reply list(std::vector<reply> all) { return {reply::kind::array, 0, {}, std::move(all)}; }
inline reply numbers(std::initializer_list<std::int64_t> all) {
  reply made = list({});
  for (const std::int64_t each : all) made.elements.push_back(number(each));
  return made;
}

}  // namespace sallyport::backends::redlock::said

#include "bench/harness/bar.hpp"

#include "bench/harness/text.hpp"

#include <algorithm>
#include <stdexcept>

namespace sallyport::bench {
namespace {

bool holds(const bar& wanted, double value) {
  switch (wanted.what) {
    case bar::kind::none:
      return true;
    case bar::kind::times_limit:
    case bar::kind::at_most:
      return value <= wanted.value;
    case bar::kind::below:
      return value < wanted.value;
    case bar::kind::exactly:
      return value == wanted.value;
  }
  return false;
}

}  // namespace

std::string to_string(const bar& wanted) {
  switch (wanted.what) {
    case bar::kind::none:
      return {};
    case bar::kind::times_limit:
      return "<= " + number(wanted.value) + " x limit";
    case bar::kind::below:
      return "< " + number(wanted.value);
    case bar::kind::at_most:
      return "<= " + number(wanted.value);
    case bar::kind::exactly:
      return "= " + number(wanted.value);
  }
  return {};
}

std::string_view to_string(verdict given) noexcept {
  switch (given) {
    case verdict::none:
      return "";
    case verdict::met:
      return "met";
    case verdict::mostly_met:
      return "mostly met";
    case verdict::mostly_missed:
      return "mostly MISSED";
    case verdict::missed:
      return "MISSED";
  }
  return "";
}

verdict judge(const bar& wanted, std::span<const double> values, std::span<const double> to_limit) {
  if (wanted.what == bar::kind::none) return verdict::none;
  const auto judged = wanted.what == bar::kind::times_limit ? to_limit : values;
  if (judged.empty()) throw std::invalid_argument("judge: a bar, but nothing to hold against it");
  const auto passes = [&wanted](double value) { return holds(wanted, value); };
  if (passes(summarise(judged).median)) {
    return std::all_of(judged.begin(), judged.end(), passes) ? verdict::met : verdict::mostly_met;
  }
  return std::any_of(judged.begin(), judged.end(), passes) ? verdict::mostly_missed
                                                           : verdict::missed;
}

}  // namespace sallyport::bench

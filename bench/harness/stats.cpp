#include "bench/harness/stats.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace sallyport::bench {

summary summarise(std::span<const double> values) {
  if (values.empty()) throw std::invalid_argument("summarise: no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {.median = median, .smallest = sorted.front(), .largest = sorted.back()};
}

std::vector<double> ratios(std::span<const double> above, std::span<const double> below) {
  if (above.size() != below.size()) throw std::invalid_argument("ratios: rounds do not match");
  std::vector<double> all;
  all.reserve(above.size());
  for (std::size_t i = 0; i < above.size(); ++i) {
    if (below[i] == 0) throw std::invalid_argument("ratios: a limit of zero");
    all.push_back(above[i] / below[i]);
  }
  return all;
}

double percentile(std::span<std::int64_t> values, double share) {
  if (values.empty() || !(share > 0 && share <= 1)) {
    throw std::invalid_argument("percentile: no values, or a share outside of (0, 1]");
  }
  const auto rank =
      static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto nth = values.begin() + (std::max<std::ptrdiff_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return static_cast<double>(*nth);
}

sampler::sampler(std::size_t capacity) : capacity_(capacity) {
  if (capacity < 2) throw std::invalid_argument("sampler: a capacity below 2");
  kept_.reserve(capacity);
}

void sampler::thin_out() {
  std::size_t left = 0;
  for (std::size_t i = 0; i < kept_.size(); i += 2) kept_[left++] = kept_[i];
  kept_.resize(left);
  stride_ *= 2;
}

}  // namespace sallyport::bench

#include "bench/harness/runner.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace sallyport::bench {
namespace {

constexpr seconds warm_up{0.05};

std::vector<double> measure(const program& each, const measure_settings& settings) {
  try {
    auto figures = each.measure(settings);
    if (figures.size() != each.figures.size()) throw std::runtime_error("wrong number of figures");
    return figures;
  } catch (const std::exception& failure) {
    throw std::runtime_error(each.id + ": " + failure.what());
  }
}

}  // namespace

std::vector<measured_rounds> run_all(std::span<const program> programs, const options& how,
                                     progress& told) {
  const std::size_t count = programs.size();
  std::vector<measured_rounds> measured(count);
  measure_settings settings{
      .time = std::min(how.time, warm_up), .hold = how.hold, .tick = [&told] { told.tick(); }};
  for (int round = -1; round < how.rounds; ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      if (programs[i].repeat == repetition::once) continue;
      told.now_at(
          (round < 0 ? std::string{"warm-up"}
                     : "round " + std::to_string(round + 1) + " of " + std::to_string(how.rounds)) +
          ": " + programs[i].id);
      auto figures = measure(programs[i], settings);
      if (round >= 0) measured[i].push_back(std::move(figures));
    }
    settings.time = how.time;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (programs[i].repeat != repetition::once) continue;
    told.now_at("once: " + programs[i].id);
    measured[i].push_back(measure(programs[i], settings));
  }
  return measured;
}

}  // namespace sallyport::bench

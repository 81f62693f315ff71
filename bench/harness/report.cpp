#include "bench/harness/report.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace sallyport::bench {
namespace {

std::vector<double> column(const measured_rounds& measured, std::size_t figure_index) {
  std::vector<double> values;
  values.reserve(measured.size());
  for (const auto& round : measured) {
    if (figure_index >= round.size()) {
      throw std::invalid_argument("make_rows: a round lacks a figure");
    }
    values.push_back(round[figure_index]);
  }
  return values;
}

std::size_t index_of(std::span<const program> programs, const std::string& id) {
  const auto found = std::find_if(programs.begin(), programs.end(),
                                  [&id](const program& each) { return each.id == id; });
  if (found == programs.end()) throw std::invalid_argument("make_rows: no program '" + id + "'");
  return static_cast<std::size_t>(found - programs.begin());
}

/// The limit's rounds of the figure of that name; empty when it has none.
std::vector<double> limit_column(const program& limit, const measured_rounds& measured,
                                 const std::string& name) {
  for (std::size_t i = 0; i < limit.figures.size(); ++i) {
    if (limit.figures[i].name == name) return column(measured, i);
  }
  return {};
}

}  // namespace

std::vector<missing_program> take_out_missing(std::vector<program>& programs) {
  std::vector<missing_program> missing;
  std::vector<program> present;
  for (program& each : programs) {
    std::string why = each.why_missing ? each.why_missing() : std::string{};
    if (why.empty()) {
      present.push_back(std::move(each));
    } else {
      missing.push_back({.id = each.id, .why = std::move(why)});
    }
  }
  programs = std::move(present);
  return missing;
}

std::vector<row> make_rows(std::span<const program> programs,
                           std::span<const measured_rounds> measured) {
  if (programs.size() != measured.size()) {
    throw std::invalid_argument("make_rows: as many results as programs are needed");
  }
  std::vector<row> rows;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const program& each = programs[i];
    const bool is_limit = std::any_of(programs.begin(), programs.end(),
                                      [&each](const program& p) { return p.limit == each.id; });
    for (std::size_t j = 0; j < each.figures.size(); ++j) {
      const figure& shown = each.figures[j];
      row fresh{.group = each.group,
                .program_id = each.id,
                .title = each.title,
                .figure_name = shown.name,
                .unit = shown.unit,
                .rounds = column(measured[i], j),
                .value = {},
                .limit_id = {},
                .ratio = {},
                .wanted = shown.wanted,
                .is_limit = is_limit};
      fresh.value = summarise(fresh.rounds);
      std::vector<double> to_limit;
      if (!each.limit.empty() && shown.compared) {
        const std::size_t k = index_of(programs, each.limit);
        const auto limits = limit_column(programs[k], measured[k],
                                         shown.beside.empty() ? shown.name : shown.beside);
        if (!limits.empty()) {
          to_limit = ratios(fresh.rounds, limits);
          fresh.limit_id = each.limit;
          fresh.ratio = summarise(to_limit);
        }
      }
      fresh.given = judge(fresh.wanted, fresh.rounds, to_limit);
      rows.push_back(std::move(fresh));
    }
  }
  return rows;
}

}  // namespace sallyport::bench

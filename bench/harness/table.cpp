#include "bench/harness/report.hpp"
#include "bench/harness/text.hpp"

#include <algorithm>
#include <array>

namespace sallyport::bench {
namespace {

constexpr std::size_t cells = 8;
using line = std::array<std::string, cells>;
constexpr std::array<bool, cells> to_the_right{false, false, true, true, true, true, false, false};

std::string spread(const summary& of) {
  if (of.smallest == of.largest) return {};
  return "[" + number(of.smallest) + " - " + number(of.largest) + "]";
}

line cells_of(const row& each, bool repeats_title) {
  line made;
  made[0] = repeats_title ? "" : "  " + each.title;
  made[1] = each.figure_name + (each.unit.empty() ? "" : ", " + each.unit);
  made[2] = number(each.value.median);
  made[3] = spread(each.value);
  if (each.ratio) {
    made[4] = number(each.ratio->median);
    made[5] = spread(*each.ratio);
  } else if (each.is_limit) {
    made[4] = "limit";
  }
  made[6] = to_string(each.wanted);
  made[7] = to_string(each.given);
  return made;
}

void write(std::string& text, const line& made, const std::array<std::size_t, cells>& widths) {
  std::string whole;
  for (std::size_t i = 0; i < cells; ++i) {
    const std::string padding(widths[i] - columns(made[i]), ' ');
    whole += to_the_right[i] ? padding + made[i] : made[i] + padding;
    if (i + 1 < cells) whole += "  ";
  }
  whole.erase(whole.find_last_not_of(' ') + 1);
  text += whole + "\n";
}

std::string heading(const report& whole) {
  const machine_facts& machine = whole.machine;
  const load_facts& load = whole.load;
  std::string text;
  text += "machine   " + std::to_string(machine.cores) + " cores, " + machine.processor + "; " +
          machine.kernel + "\n";
  text += "compiler  " + machine.compiler + (machine.optimised ? "" : ", NOT OPTIMISED") + "\n";
  text += "run       " + machine.started_at + ", " + number(whole.run.took.count()) +
          " s: " + whole.run.command + "\n";
  text += "rounds    " + std::to_string(whole.run.rounds) + " x " + number(whole.run.time.count()) +
          " s a program, in turn; ratios are taken round by round\n";
  text += "noise     steal " + number(load.steal_percent) + " %, other programs " +
          number(load.others_cores) + " of " + std::to_string(machine.cores) + " cores\n";
  for (const missing_program& each : whole.missing) {
    text += "missing   " + each.id + ": " + each.why + "\n";
  }
  if (!machine.optimised) text += "\nBuilt without optimisation: these figures mean nothing.\n";
  return text;
}

}  // namespace

std::string to_table(const report& whole) {
  const line head{"",        "figure",         "median", "[least - most]",
                  "x limit", "[least - most]", "bar",    "verdict"};
  std::vector<line> lines;
  for (std::size_t i = 0; i < whole.rows.size(); ++i) {
    const bool repeats = i > 0 && whole.rows[i - 1].program_id == whole.rows[i].program_id;
    lines.push_back(cells_of(whole.rows[i], repeats));
  }
  std::array<std::size_t, cells> widths{};
  for (std::size_t i = 0; i < cells; ++i) {
    widths[i] = columns(head[i]);
    for (const line& each : lines) widths[i] = std::max(widths[i], columns(each[i]));
  }

  std::string text = heading(whole) + "\n";
  write(text, head, widths);
  std::size_t bars = 0;
  std::size_t met = 0;
  for (std::size_t i = 0; i < whole.rows.size(); ++i) {
    const row& each = whole.rows[i];
    if (i == 0 || whole.rows[i - 1].group != each.group) text += each.group + "\n";
    write(text, lines[i], widths);
    if (each.given != verdict::none) ++bars;
    if (is_met(each.given)) ++met;
  }
  if (bars > 0) text += "\n" + std::to_string(met) + " of " + std::to_string(bars) + " bars met\n";
  return text;
}

}  // namespace sallyport::bench

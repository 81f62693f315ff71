#include "bench/harness/report.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace sallyport::bench {
namespace {

std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char each : text) {
    const auto code = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      made += '\\';
      made += each;
    } else if (code < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
      made += escape.data();
    } else {
      made += each;
    }
  }
  return made + "\"";
}

std::string plain(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

/// Writes "key": value pairs; the caller sees to braces.
class fields {
 public:
  explicit fields(std::string indent) : indent_(std::move(indent)) {}

  fields& raw(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "\n" : ",\n") + indent_ + quoted(key) + ": " + value;
    return *this;
  }
  fields& add(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  fields& add(std::string_view key, double value) { return raw(key, plain(value)); }
  fields& add(std::string_view key, const summary& value) {
    return raw(key, "{\"median\": " + plain(value.median) + ", \"min\": " + plain(value.smallest) +
                        ", \"max\": " + plain(value.largest) + "}");
  }

  [[nodiscard]] std::string object() const {
    return "{" + text_ + "\n" + indent_.substr(0, indent_.size() - 2) + "}";
  }

 private:
  std::string indent_;
  std::string text_;
};

std::string row_object(const row& each) {
  std::string rounds;
  for (const double value : each.rounds) rounds += (rounds.empty() ? "" : ", ") + plain(value);
  fields made{"      "};
  made.add("group", each.group)
      .add("program", each.program_id)
      .add("title", each.title)
      .add("figure", each.figure_name)
      .add("unit", each.unit)
      .add("value", each.value)
      .raw("rounds", "[" + rounds + "]");
  if (each.ratio) made.add("limit", each.limit_id).add("ratio_to_limit", *each.ratio);
  if (each.given != verdict::none) {
    made.add("bar", to_string(each.wanted))
        .add("verdict", to_string(each.given))
        .raw("bar_met", is_met(each.given) ? "true" : "false");
  }
  return made.object();
}

}  // namespace

std::string to_json(const report& whole) {
  const auto machine = fields{"    "}
                           .add("cores", whole.machine.cores)
                           .add("processor", whole.machine.processor)
                           .add("kernel", whole.machine.kernel)
                           .add("compiler", whole.machine.compiler)
                           .raw("optimised", whole.machine.optimised ? "true" : "false")
                           .object();
  const auto run = fields{"    "}
                       .add("command", whole.run.command)
                       .add("started_at", whole.machine.started_at)
                       .add("rounds", whole.run.rounds)
                       .add("program_seconds", whole.run.time.count())
                       .add("hold_seconds", whole.run.hold.count())
                       .add("took_seconds", whole.run.took.count())
                       .add("steal_percent", whole.load.steal_percent)
                       .add("others_cores", whole.load.others_cores)
                       .object();
  std::string rows;
  for (const row& each : whole.rows) {
    rows += (rows.empty() ? "\n    " : ",\n    ") + row_object(each);
  }
  std::string missing;
  for (const missing_program& each : whole.missing) {
    missing += (missing.empty() ? "\n    " : ",\n    ") +
               fields{"      "}.add("program", each.id).add("why", each.why).object();
  }
  return fields{"  "}
             .add("schema", 1)
             .raw("machine", machine)
             .raw("run", run)
             .raw("rows", "[" + rows + "\n  ]")
             .raw("missing", "[" + missing + (missing.empty() ? "" : "\n  ") + "]")
             .object() +
         "\n";
}

}  // namespace sallyport::bench

#include "cli/arguments.hpp"

#include "cli/message.hpp"
#include "cli/text.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::cli {

std::optional<argument_reader::item> argument_reader::next() {
  if (!cluster_.empty()) return read_short();
  if (at_ == arguments_.size()) return std::nullopt;
  const std::string_view text = arguments_[at_++];
  if (text == "--") {
    after_dashes_ = true;
    return std::nullopt;
  }
  if (text.starts_with("--")) return read_long(text.substr(2));
  if (text.starts_with('-') && text.size() > 1) {
    cluster_ = text.substr(1);
    return read_short();
  }
  return item{nullptr, text};
}

argument_reader::item argument_reader::read_long(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const option_spec& each) { return each.long_name == name; });
  const std::string shown = "--" + std::string(name);
  if (found == options_.end()) {
    std::vector<std::string_view> known;
    for (const option_spec& each : options_) known.push_back(each.long_name);
    const auto meant = nearest(name, known);
    throw usage_error(
        "unknown option " + quoted(shown) +
        (meant ? "; did you mean --" + std::string(*meant) + "?" : "; --help lists the options"));
  }
  if (found->value_name.empty()) {
    if (equals != std::string_view::npos) throw usage_error(shown + " takes no value");
    return {&*found, {}};
  }
  return {&*found, equals == std::string_view::npos ? next_value(shown) : text.substr(equals + 1)};
}

argument_reader::item argument_reader::read_short() {
  const char name = cluster_.front();
  cluster_.remove_prefix(1);
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const option_spec& each) { return each.short_name == name; });
  const std::string shown = std::string("-") + name;
  if (found == options_.end()) {
    // flock(1) has it, and people will type it.
    const bool command_string = name == 'c';
    throw usage_error("unknown option " + quoted(shown) +
                      (command_string ? "; for a command line of the shell write: -- sh -c '...'"
                                      : "; --help lists the options"));
  }
  if (found->value_name.empty()) return {&*found, {}};
  if (!cluster_.empty()) return {&*found, std::exchange(cluster_, {})};
  return {&*found, next_value(shown)};
}

std::string_view argument_reader::next_value(const std::string& option) {
  if (at_ == arguments_.size()) throw usage_error(option + " needs a value");
  const std::string_view value = arguments_[at_++];
  if (value == "--") throw usage_error(option + " needs a value, and '--' follows");
  return value;
}

}  // namespace sallyport::cli

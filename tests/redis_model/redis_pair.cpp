#include "tests/redis_model/redis_pair.hpp"

#include "sim/redis/numbers.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace sallyport::redis_model {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::microseconds beginning = 1'700'000'000s;
constexpr std::size_t longest_trace = 40;
// Longer than a message of the same machine takes, and not waited for in the good case.
constexpr auto no_further_message = 0ms;

reply from(const kit::redis_reply& said) {
  reply answer;
  switch (said.is) {
    case kit::redis_reply::kind::nil:
      answer.what = reply::kind::nil;
      break;
    case kit::redis_reply::kind::integer:
      answer.what = reply::kind::integer;
      break;
    case kit::redis_reply::kind::text:
      answer.what = reply::kind::text;
      break;
    case kit::redis_reply::kind::status:
      answer.what = reply::kind::status;
      break;
    case kit::redis_reply::kind::error:
      answer.what = reply::kind::error;
      break;
    case kit::redis_reply::kind::array:
      answer.what = reply::kind::array;
      break;
  }
  answer.integer = said.integer;
  answer.text = said.text;
  for (const auto& item : said.items) answer.elements.push_back(from(item));
  return answer;
}

void keep_first_words(reply& answer) {
  if (answer.is_error()) answer.text = std::string(answer.error_word());
  for (auto& element : answer.elements) keep_first_words(element);
}

bool before(const reply& left, const reply& right) { return left.text < right.text; }

void put_in_order(reply& answer, order how) {
  if (!answer.is_array()) return;
  auto& elements = answer.elements;
  switch (how) {
    case order::exact:
      return;
    case order::items:
      std::sort(elements.begin(), elements.end(), before);
      return;
    case order::pairs: {
      std::vector<std::pair<std::string, std::string>> pairs;
      for (std::size_t i = 0; i + 1 < elements.size(); i += 2) {
        pairs.emplace_back(elements[i].text, elements[i + 1].text);
      }
      std::sort(pairs.begin(), pairs.end());
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        elements[2 * i].text = pairs[i].first;
        elements[2 * i + 1].text = pairs[i].second;
      }
      return;
    }
    case order::who:
      for (reply& each : elements) {
        if (each.elements.size() > 3) put_in_order(each.elements[3], order::pairs);
      }
      return;
    case order::scan:
      if (elements.size() == 2) put_in_order(elements[1], order::items);
      return;
  }
}

std::string quoted(const std::string& text) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string shown = "\"";
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 0x20 || value >= 0x7f) {
      shown += "\\x";
      shown += digits[value >> 4];
      shown += digits[value & 0xfU];
    } else {
      if (byte == '"' || byte == '\\') shown += '\\';
      shown += byte;
    }
  }
  return shown + '"';
}

std::string to_line(const words& command) {
  std::string line;
  for (const auto& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

}  // namespace

std::string to_line(const reply& answer) {
  switch (answer.what) {
    case reply::kind::nil:
      return "nil";
    case reply::kind::integer:
      return std::to_string(answer.integer);
    case reply::kind::text:
      return quoted(answer.text);
    case reply::kind::status:
      return '+' + answer.text;
    case reply::kind::error:
      return '-' + answer.text;
    case reply::kind::array:
      break;
  }
  std::string line = "[";
  for (const auto& element : answer.elements) {
    line += (line.size() == 1 ? "" : ", ") + to_line(element);
  }
  return line + ']';
}

order order_of(std::string_view command) {
  using sim::redis::is_word;
  if (is_word(command, "hgetall")) return order::pairs;
  if (is_word(command, "hkeys") || is_word(command, "hvals")) return order::items;
  if (is_word(command, "scan")) return order::scan;
  return order::exact;
}

redis_pair::redis_pair()
    : server_({.clock = &clock_}),
      probe_(server_.address()),
      listener_(server_.address()),
      model_(host_, [this](const sim::redis::publication& sent) {
        const std::string channel(sent.channel);
        if (!subscribed(channel, sent.sharded)) return std::int64_t{0};
        messages_.push_back({sent.sharded, channel, std::string(sent.payload)});
        return std::int64_t{1};
      }) {
  probe_.expect({"DEBUG", "SET-ACTIVE-EXPIRE", "0"});
  reset();
}

void redis_pair::reset() {
  while (!channels_.empty()) unsubscribe(std::string(*channels_.begin()));
  while (!sharded_channels_.empty()) unsubscribe(std::string(*sharded_channels_.begin()), true);
  probe_.expect({"FLUSHALL"});
  probe_.expect({"SCRIPT", "FLUSH"});
  model_.keys().clear();
  model_.forget_scripts();
  messages_.clear();
  difference_.clear();
  trace_.clear();
  now_ = beginning;
  clock_.freeze(kit::shifted_clock::wall_time{now_});
}

void redis_pair::move_clock(std::chrono::microseconds by) {
  now_ += by;
  clock_.freeze(kit::shifted_clock::wall_time{now_});
  note("clock " + std::to_string(now_.count()) + " us");
}

void redis_pair::subscribe(const std::string& channel, bool sharded) {
  if (!(sharded ? sharded_channels_ : channels_).insert(channel).second) return;
  listener_.send({sharded ? "SSUBSCRIBE" : "SUBSCRIBE", channel});
  listener_.receive();
  note("subscribe " + quoted(channel));
}

void redis_pair::unsubscribe(const std::string& channel, bool sharded) {
  if ((sharded ? sharded_channels_ : channels_).erase(channel) == 0) return;
  listener_.send({sharded ? "SUNSUBSCRIBE" : "UNSUBSCRIBE", channel});
  listener_.receive();
  note("unsubscribe " + quoted(channel));
}

reply redis_pair::ask_real(const words& command, order how) {
  auto answer = from(probe_.command(command));
  if (how != order::scan || !answer.is_array() || answer.elements.size() != 2) return answer;
  // The other one has a single page.
  auto& cursor = answer.elements[0].text;
  while (cursor != "0") {
    auto next = command;
    next[1] = cursor;
    auto page = from(probe_.command(next));
    cursor = page.elements.at(0).text;
    for (auto& key : page.elements.at(1).elements) answer.elements[1].elements.push_back(key);
  }
  return answer;
}

std::optional<reply> redis_pair::execute(const words& command, order how) {
  messages_.clear();
  auto real = ask_real(command, how);
  auto model = model_.execute(command, now_);
  note(to_line(command) + " -> " + to_line(real));
  auto answer = model;
  for (auto* each : {&real, &model}) {
    keep_first_words(*each);
    put_in_order(*each, how);
  }
  if (real != model) {
    difference_ = to_line(command) + "\n  real:  " + to_line(real) + "\n  model: " + to_line(model);
    return std::nullopt;
  }
  if (!compare_messages()) return std::nullopt;
  return answer;
}

bool redis_pair::compare_messages() {
  std::vector<message> heard;
  const auto take = [&] {
    const auto said = listener_.receive();
    const auto texts = said.texts();
    if (texts.size() != 3) return;
    heard.push_back({texts[0] == "smessage", texts[1], texts[2]});
  };
  for (std::size_t i = 0; i < messages_.size(); ++i) take();
  while (listener_.readable(no_further_message)) take();
  if (heard == messages_) return true;
  difference_ = "messages\n  real: ";
  for (const auto& each : heard) difference_ += ' ' + each.channel + '=' + each.payload;
  difference_ += "\n  model:";
  for (const auto& each : messages_) difference_ += ' ' + each.channel + '=' + each.payload;
  return false;
}

bool redis_pair::compare_keys() {
  const auto found = execute({"SCAN", "0"}, order::scan);
  if (!found.has_value()) return false;
  for (const auto& key : found->elements.at(1).elements) {
    const auto type = execute({"TYPE", key.text});
    if (!type.has_value() || !execute({"PEXPIRETIME", key.text}).has_value()) return false;
    bool same = true;
    if (type->text == "string") {
      same = execute({"GET", key.text}).has_value();
    } else if (type->text == "hash") {
      same = execute({"HGETALL", key.text}, order::pairs).has_value();
    } else {
      same = execute({"ZRANGE", key.text, "0", "-1", "WITHSCORES"}).has_value();
    }
    if (!same) return false;
  }
  return true;
}

void redis_pair::note(const std::string& line) {
  trace_.push_back(line);
  if (trace_.size() > longest_trace) trace_.pop_front();
}

std::string redis_pair::trace() const {
  std::string all;
  for (const auto& line : trace_) all += "  " + line + '\n';
  return all;
}

}  // namespace sallyport::redis_model

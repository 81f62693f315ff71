#include "sim/redis_server.hpp"

#include "sim/redis_defects.hpp"

#include <array>
#include <utility>

namespace sallyport::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr time_point server_epoch{std::chrono::seconds{1'700'000'000}};

/// It keeps compiled scripts and nothing else, so one seed after another may use it: compiling them
/// takes longer than a whole simulation.
redis::script_host& scripts_of_this_thread() {
  thread_local redis::script_host host;
  return host;
}

}  // namespace

std::vector<std::string> words_of(const backends::redis::wire_command& command, bool by_text) {
  std::vector<std::string> all = arguments_of(command);
  if (command.script == nullptr) return all;
  const auto script = by_text ? command.script->text : command.script->sha1;
  all.insert(all.begin(), {by_text ? "EVAL" : "EVALSHA", std::string(script)});
  return all;
}

redis_server::redis_server(context& shared, script_list scripts)
    : server(draw_store_clock(shared.random, server_epoch)),
      shared_(shared),
      scripts_(scripts),
      memory_(scripts_of_this_thread(),
              [this](const redis::publication& sent) { return publish(sent); }) {}

microseconds redis_server::wall_time() const {
  return std::chrono::floor<microseconds>(machine_time().time_since_epoch());
}

redis::wall_ms redis_server::wall_ms() const {
  return std::chrono::floor<milliseconds>(wall_time()).count();
}

redis::reply redis_server::run(const words& command) {
  return memory_.execute(as_run_here(command, shared_.plan.small_bounds), wall_time());
}

void redis_server::add(client_number client, const std::shared_ptr<redis_link>& connections) {
  links_[client] = connections;
}

void redis_server::greet() {
  for (const auto* each : scripts_) {
    // What it knows already is not sent again here: these are long.
    const words by_name =
        as_run_here({"EVALSHA", std::string(each->sha1)}, shared_.plan.small_bounds);
    if (memory_.find_script(by_name[1]) != nullptr) continue;
    (void)run({"SCRIPT", "LOAD", std::string(each->text)});
  }
}

std::int64_t redis_server::publish(const redis::publication& sent) {
  std::int64_t listeners = 0;
  for (const auto& [client, weak] : links_) {
    const auto each = weak.lock();
    if (!each) continue;
    const auto count = each->listeners(sent.channel);
    listeners += count;
    if (count > 0) each->publish_on(sent.channel, sent.payload);
  }
  published(sent, listeners > 0);
  return listeners;
}

void redis_server::stop() {
  server::stop();
  ++life_;
  memory_.forget_scripts();
  for (const auto& [client, weak] : links_) {
    if (const auto each = weak.lock()) each->server_ended();
  }
}

void redis_server::forget_scripts() {
  shared_.note("the scripts are flushed");
  shared_.count.add(counter::scripts_flushed);
  memory_.forget_scripts();
}

redis::reply redis_server::draw_refusal() {
  // Said before a script has written anything.
  constexpr std::array<const char*, 8> refusals{
      "OOM command not allowed", "READONLY You can't write against a read only replica.",
      "LOADING the dataset",     "BUSY with a script",
      "MISCONF on disk",         "NOREPLICAS to write to",
      "NOPERM to run it",        "NOAUTH Authentication required."};
  redis::reply raw;
  raw.what = redis::reply::kind::error;
  raw.text = refusals[shared_.random.below(refusals.size())];
  return raw;
}

void redis_server::save_now_and_then() {
  saved_ = memory_.keys();
  const duration lease = shared_.plan.lease;
  shared_.loop.after(draw_between(shared_.random, lease / 8, 2 * lease), [this] {
    if (!shared_.healed) save_now_and_then();
  });
}

}  // namespace sallyport::sim

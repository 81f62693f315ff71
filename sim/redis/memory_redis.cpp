#include "sim/redis/memory_redis.hpp"

namespace sallyport::sim::redis {
namespace {

// What a script may do: everything that a client may, but for scripts.
class calls_of_script final : public script_host::command_runner {
 public:
  explicit calls_of_script(command_context& here) : here_(here) {}

  reply call_from_script(arguments given) override {
    const auto* const known = find_command(given.front());
    if (known == nullptr) return error_reply("ERR Unknown Redis command called from script");
    if (!fits_arity(*known, given.size())) {
      return error_reply("ERR Wrong number of args calling Redis command from script");
    }
    if (!known->in_scripts) {
      return error_reply("ERR This Redis command is not allowed from script");
    }
    return known->run(here_, given);
  }

 private:
  command_context& here_;
};

}  // namespace

reply memory_redis::execute(arguments command, std::chrono::microseconds now) {
  if (command.empty()) return error_reply("ERR empty command");
  const auto* const known = find_command(command.front());
  if (known == nullptr) {
    return error_reply("ERR unknown command '" + std::string(command.front()) +
                       "', with args beginning with: ");
  }
  if (!fits_arity(*known, command.size())) return wrong_number_of_arguments(known->name);
  command_context here{*this, keys_, now,
                       std::chrono::floor<std::chrono::milliseconds>(now).count()};
  return known->run(here, command);
}

reply memory_redis::execute(const std::vector<std::string>& command,
                            std::chrono::microseconds now) {
  const std::vector<std::string_view> views(command.begin(), command.end());
  return execute(arguments(views), now);
}

std::int64_t memory_redis::publish(const publication& message) const {
  return on_publish_ ? on_publish_(message) : 0;
}

script_host::loaded memory_redis::load_script(std::string_view body) {
  auto loaded = host_.load(body);
  if (loaded.compiled != nullptr) known_scripts_.emplace(loaded.compiled->sha1, loaded.compiled);
  return loaded;
}

const script_host::script* memory_redis::find_script(std::string_view sha1) const {
  const auto found = known_scripts_.find(sha1);
  return found == known_scripts_.end() ? nullptr : found->second;
}

reply memory_redis::run_script(const script_host::script& what, arguments keys, arguments values,
                               command_context& here) {
  calls_of_script calls(here);
  return host_.run(what, keys, values, calls);
}

}  // namespace sallyport::sim::redis

#include "cli/schema.hpp"

#include "cli/arguments.hpp"
#include "cli/exit_codes.hpp"
#include "cli/help.hpp"
#include "cli/inspect.hpp"
#include "cli/message.hpp"
#include "cli/public_address.hpp"
#include "cli/store.hpp"
#include "cli/text.hpp"
#include <sallyport/client.hpp>
#include <sallyport/error.hpp>

#include <array>
#include <string>
#include <string_view>

namespace sallyport::cli {

int schema_command(std::span<char* const> arguments) {
  constexpr std::array<option_spec, 2> flags{{{0, "store", "URI"}, {'h', "help", ""}}};
  std::string store = default_store();
  bool named = false;
  const auto take_store = [&](std::string_view uri) {
    if (named)
      throw usage_error("one URI at a time; " + quoted(public_address_of(uri).text) +
                        " is one too many");
    named = true;
    store = uri;
  };
  argument_reader reader{arguments, flags};
  while (const auto item = reader.next()) {
    if (item->option != nullptr && item->option->long_name == "help") return print_help("schema");
    take_store(item->value);
  }
  for (const char* const each : reader.rest()) take_store(each);
  try {
    print(client::schema(store));
  } catch (const lock_error& error) {
    if (error.code() != errc::not_supported) throw;
    throw usage_error(error.what());
  }
  return exit_code::success;
}

}  // namespace sallyport::cli

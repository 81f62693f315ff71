#pragma once

#include "backends/sql/test_live_store.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

/// What each server says in its own way of its settings: the backend's settings_live_test.cpp.
namespace sallyport::sql_live {

/// Something that administrators set, and values that they give it, as the server's own words for
/// setting it have them.
struct odd_setting {
  std::string name;
  std::vector<std::string> values;
};

/// One value for each setting that is not left as it is.
struct chosen_setting {
  std::string name;
  std::string value;
};

/// What every session of a user begins with.
[[nodiscard]] std::span<const odd_setting> session_settings();
/// What the server is started with.
[[nodiscard]] std::span<const odd_setting> server_settings();

[[nodiscard]] std::unique_ptr<sql_server> start_server_with(
    const std::vector<chosen_setting>& settings);
/// A user who may make tables and no more than that, and whose sessions begin with these settings. Of
/// several such users only the last one need have its settings.
void make_user_with(const sql_server& server, const std::string& user,
                    const std::vector<chosen_setting>& settings);

}  // namespace sallyport::sql_live

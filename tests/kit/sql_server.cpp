#include "tests/kit/sql_server.hpp"

#include "tests/kit/shifted_clock.hpp"
#include "tests/kit/unprivileged.hpp"

#include <utility>

namespace sallyport::kit {

sql_rows sql_probe::rows(const std::string& sql) {
  begin(sql);
  return result();
}

std::string sql_probe::value(const std::string& sql) {
  const sql_rows all = rows(sql);
  return all.empty() || all.front().empty() ? "" : all.front().front();
}

sql_server::sql_server(make which, const std::string& folder_name,
                       const std::filesystem::path& parent, const shifted_clock* clock)
    : make_(std::move(which)), clock_(clock), folder_(folder_name, parent) {
  give_away(folder());
}

void sql_server::prepare(std::string tool, std::vector<std::string> arguments,
                         const std::string& trouble) {
  child_process made{{.program = std::move(tool),
                      .called_as = {},
                      .arguments = std::move(arguments),
                      .environment = {"LC_ALL=C", "TZ=UTC"},
                      .folder = folder(),
                      .log = folder() / "prepare.log",
                      .run_as = not_root()}};
  if (made.wait_for_end() != 0) throw kit_error(trouble + "\n" + made.log_tail());
}

void sql_server::keep(const sql_tls& files) const {
  for (const auto& [from, to] : {std::pair{files.certificate, "server.crt"},
                                 {files.key, "server.key"},
                                 {files.authority, "ca.crt"}}) {
    std::filesystem::copy_file(from, folder() / to);
    give_away(folder() / to);
  }
  // PostgreSQL refuses a key that others may read.
  std::filesystem::permissions(folder() / "server.key", std::filesystem::perms::owner_read);
}

void sql_server::start() {
  if (running()) throw kit_error("the server runs already");
  std::vector<std::string> environment{"LC_ALL=C", "TZ=UTC"};
  if (clock_ != nullptr) {
    for (const std::string& each : clock_->environment()) environment.push_back(each);
  }
  process_ = std::make_unique<child_process>(child_options{.program = make_.program,
                                                           .called_as = {},
                                                           .arguments = arguments(),
                                                           .environment = std::move(environment),
                                                           .folder = folder(),
                                                           .log = folder() / "log",
                                                           .run_as = not_root()});
  const bool ready = eventually([&] {
    if (!process_->running()) return true;  // no use in waiting on
    return value("SELECT 1") == "1";
  });
  if (!ready || !process_->running()) {
    throw kit_error(make_.name + " does not answer\n" + log_tail());
  }
}

void sql_server::stop() {
  process_->signal(make_.clean_end);
  if (!process_->wait_for_end()) throw kit_error(make_.name + " does not stop\n" + log_tail());
}

}  // namespace sallyport::kit

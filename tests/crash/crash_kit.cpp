#include "tests/crash/crash_kit.hpp"

#include "backends/local/lmdb_table.hpp"
#include "backends/local/local_store.hpp"
#include "backends/local/place.hpp"
#include "backends/local/process.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <signal.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace sallyport::crash {

namespace fs = std::filesystem;
namespace local = backends::local;

crash_test::crash_test() {
  std::string pattern = (fs::temp_directory_path() / "crash-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
}

crash_test::~crash_test() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

client crash_test::open(client_options options) const {
  options.label = "test";
  return client::open(address(), std::move(options));
}

std::vector<std::string> crash_test::files_of_store() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ + "/store")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::size_t crash_test::sweep() const {
  auto store = local::local_store::find_or_open(*local::parse_address(address()));
  if (!store) {
    ADD_FAILURE() << store.error().detail;
    return 0;
  }
  std::vector<local::notice> own;
  const auto all =
      (*store)->transact(lease_clock::now() + patience, 0, own,
                         [&](local::lock_rules& rules) { return rules.some_clients(0, 100'000); });
  if (!all) {
    ADD_FAILURE() << all.error().detail;
    return 0;
  }
  std::size_t dead = 0;
  for (const local::listed_client& each : *all) {
    if (!local::peer(each.record).dead()) continue;
    (*store)->bury(each.number, patience);
    ++dead;
  }
  return dead;
}

void crash_test::expect_nothing_left() const {
  sweep();
  {
    const auto look = open();
    EXPECT_TRUE(look.list().empty());
  }
  for (const std::string& name : files_of_store()) {
    EXPECT_FALSE(name.starts_with("inbox-")) << name << " was left behind";
    EXPECT_EQ(name.find(".new"), std::string::npos) << name << " was left behind";
  }
  const auto where = local::open_place(folder_ + "/store");
  const auto here = local::this_machine();
  ASSERT_TRUE(where && here);
  auto file = local::lmdb_file::open(where->folder.number(), "state-" + here->boot_id + ".mdb",
                                     local::store_address::smallest_map_bytes, false);
  ASSERT_TRUE(file) << file.error().detail;
  local::lmdb_table records(**file);
  std::string next;
  for (int i = 0; i < 1000; ++i) {
    const auto at = records.at_or_after(next.empty() ? std::string_view("\0", 1) : next);
    if (!at) break;
    EXPECT_EQ(at->key, "M") << "a record was left behind: " << testing::PrintToString(at->key);
    if (at->key == "M") {
      const auto meta = local::read_record<local::meta_record>(at->value);
      ASSERT_TRUE(meta);
      EXPECT_EQ(meta->watches, 0U);
      EXPECT_LE(meta->last_token, meta->reserved_token);
    }
    next = std::string(at->key) + '\0';
  }
}

looping_worker::~looping_worker() {
  if (pid_ == 0) return;
  kill();
  reap();
}

void looping_worker::start(std::vector<std::string> words) {
  words.insert(words.begin(), SALLYPORT_CONTRACT_HOLDER);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, arguments.front(), nullptr, nullptr, arguments.data(), environ);
  if (error != 0) throw std::runtime_error("cannot start " + words.front());
  pid_ = pid;
}

pid_t looping_worker::running() {
  if (pid_ == 0) return 0;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "a worker ended by itself: " << status;
    pid_ = 0;
  }
  return pid_;
}

void looping_worker::kill() const {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
}

int looping_worker::reap() {
  int status = 0;
  if (pid_ != 0) ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return status;
}

std::int64_t percentile(std::vector<std::int64_t> values, int share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - 1) * static_cast<std::size_t>(share) / 100];
}

void pause_for(std::chrono::microseconds length) {
  const timespec span{.tv_sec = 0, .tv_nsec = static_cast<long>(length.count()) * 1000};
  ::ppoll(nullptr, 0, &span, nullptr);
}

}  // namespace sallyport::crash

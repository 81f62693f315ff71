#include "backend_api/module.hpp"
#include "base/log.hpp"
#include "client/registry.hpp"
#include "tests/modules/registry.hpp"
#include <sallyport/sallyport.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <latch>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sallyport {
namespace {

using namespace std::chrono_literals;

using client_detail::load_module;
using client_detail::module_folders;
using modules_testing::made;
using modules_testing::module_named;
using ::testing::AllOf;
using ::testing::HasSubstr;

const auto& build() { return client_detail::home_of_modules().build; }

std::string file_of(const std::string& module) {
  return std::string(made) + "/sallyport_" + module + ".so";
}

/// The module's handle if it is loaded, or nullptr.
void* loaded(const std::string& module) {
  return dlopen(file_of(module).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

/// What open() fails with.
lock_error failure_of(const std::string& uri) {
  try {
    static_cast<void>(client::open(uri));
  } catch (const lock_error& error) {
    return error;
  }
  ADD_FAILURE() << uri << " was opened";
  return lock_error{errc::closed, "opened"};
}

/// What the environment names; nullptr: nothing.
void name_in_environment(const char* folder) {
  // No other thread of the tests is there at the time. NOLINTBEGIN(concurrency-mt-unsafe)
  if (folder == nullptr) {
    ::unsetenv("SALLYPORT_MODULES");
  } else {
    ::setenv("SALLYPORT_MODULES", folder, 1);
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

/// The tests' modules are beside the program, where it looks when nobody tells it otherwise.
class Modules : public ::testing::Test {
 protected:
  Modules() { name_in_environment(nullptr); }
};

TEST_F(Modules, AreLoadedWhenAnAddressAsksForThem) {
  static_cast<void>(client::open("memory:"));
  ASSERT_EQ(loaded("lazy"), nullptr);

  static_cast<void>(client::open("lazy:"));

  EXPECT_NE(loaded("lazy"), nullptr);
}

TEST_F(Modules, ServeLocksLikeAnyBackend) {
  const auto store = client::open("echo:served");
  mutex orders{store, "orders", {.lease_length = 10s}};

  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  constexpr int workers = 4;
  std::vector<std::thread> crew;
  crew.reserve(workers);
  for (int worker = 0; worker < workers; ++worker) {
    crew.emplace_back([&] {
      const auto own = client::open("echo:served");
      mutex same{own, "orders", {.lease_length = 10s}};
      for (int turn = 0; turn < 25; ++turn) {
        const auto held = same.acquire();
        most = std::max(most.load(), ++inside);
        --inside;
      }
    });
  }
  for (auto& each : crew) each.join();

  EXPECT_EQ(most.load(), 1);
  EXPECT_FALSE(store.who("orders").has_value());
}

TEST_F(Modules, HaveACopyOfTheCodeThatTheProgramDoesNotSee) {
  const auto store = client::open("echo:own");
  const auto same_name = client::open("memory:own");
  mutex inside{store, "orders", {.lease_length = 10s}};
  mutex outside{same_name, "orders", {.lease_length = 10s}};

  const auto held = inside.acquire();

  EXPECT_TRUE(outside.try_acquire().has_value());
  void* const module = loaded("echo");
  ASSERT_NE(module, nullptr);
  EXPECT_NE(dlsym(module, backend_api::module_symbol), nullptr);
  EXPECT_EQ(dlsym(module, "_ZN9sallyport13lock_categoryEv"), nullptr);
}

TEST_F(Modules, FailWithCodesThatTheProgramKnows) {
  const lock_error error = failure_of("echo:?refuse");

  EXPECT_EQ(error.code(), errc::store_refused);
  EXPECT_EQ(&error.code().category(), &lock_category());
  EXPECT_THAT(error.what(), HasSubstr("as you wished"));
}

TEST_F(Modules, LogWhereTheProgramLogs) {
  std::vector<std::string> lines;
  base::set_log_sink([&](base::log_level, std::string_view line) { lines.emplace_back(line); });

  static_cast<void>(failure_of("echo:?log"));
  base::set_log_sink({});

  EXPECT_THAT(lines, ::testing::ElementsAre("from inside"));
}

TEST_F(Modules, AreLoadedOnceByManyThreads) {
  constexpr int crowd = 8;
  const auto& module = module_named("raced");
  const auto folders = module_folders(client_detail::home_of_modules());
  std::vector<const backend_api::backend_descriptor*> seen(crowd, nullptr);
  std::latch ready{crowd};
  std::vector<std::thread> threads;
  threads.reserve(crowd);
  ASSERT_EQ(loaded("raced"), nullptr);

  for (int index = 0; index < crowd; ++index) {
    threads.emplace_back([&, index] {
      ready.arrive_and_wait();
      const auto found = load_module(module, build(), folders);
      if (found) seen[static_cast<std::size_t>(index)] = *found;
    });
  }
  for (auto& each : threads) each.join();

  ASSERT_NE(seen.front(), nullptr);
  EXPECT_THAT(seen, ::testing::Each(seen.front()));
  EXPECT_EQ(module.loaded.load(), seen.front());
}

TEST_F(Modules, AreNamedAmongTheSchemes) {
  const lock_error error = failure_of("nosuchstore:");

  EXPECT_EQ(error.code(), errc::unknown_scheme);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("memory:"), HasSubstr("echo:"), HasSubstr("absent:")));
}

TEST_F(Modules, ThatAreMissingAreToldWithTheFoldersSearched) {
  const lock_error error = failure_of("absent:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("sallyport_absent.so was not found in"), HasSubstr(made),
                    HasSubstr("/nowhere/at/all"), HasSubstr("SALLYPORT_MODULES"),
                    HasSubstr("client_options::modules"),
                    HasSubstr("find_package(sallyport COMPONENTS absent)")));
}

TEST_F(Modules, ThatWereLinkedAreNotLookedFor) {
  const auto store = client::open("linked:", {.modules = "/nowhere/at/all"});
  mutex orders{store, "orders", {.lease_length = 10s}};

  EXPECT_TRUE(orders.try_acquire().has_value());
}

TEST_F(Modules, OfOtherSourcesAreRefusedThoughLinked) {
  const lock_error error = failure_of("linked_late:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("the linked backend linked_late"), HasSubstr("build both again")));
}

TEST_F(Modules, OfAnotherVersionAreRefused) {
  const lock_error error = failure_of("other_version:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(file_of("other_version") + " is of Sallyport 0.0.9"),
                    HasSubstr(build().version), HasSubstr("use both of one version")));
}

TEST_F(Modules, OfOtherSourcesAreRefused) {
  const lock_error error = failure_of("other_sources:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(file_of("other_sources")), HasSubstr("build both again")));
}

TEST_F(Modules, ThatAreSomethingElseAreRefused) {
  const lock_error error = failure_of("stranger:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(), HasSubstr(file_of("stranger") + " is no module of Sallyport"));
}

TEST_F(Modules, WithoutALibraryNameItAndItsPackages) {
  const lock_error error = failure_of("needy:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(file_of("needy") + " could not be loaded"),
                                  HasSubstr("libsallyport_far_library.so"),
                                  HasSubstr("on Debian it needs libfar1 libfar2")));
}

/// A folder of its own that goes away again.
class ModuleFolder : public Modules {
 protected:
  ModuleFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "modules_test.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    path_ = name;
  }
  ~ModuleFolder() override {
    name_in_environment(nullptr);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_F(ModuleFolder, ThatTheEnvironmentNamesIsTheOnlyOne) {
  name_in_environment(path().c_str());

  const lock_error error = failure_of("other_version:");

  EXPECT_THAT(error.what(), AllOf(HasSubstr("was not found in " + path().string() + ";"),
                                  ::testing::Not(HasSubstr(made))));
}

TEST_F(ModuleFolder, WithADamagedFileSaysWhatTheLoaderSaid) {
  name_in_environment(path().c_str());
  std::ofstream(path() / "sallyport_absent.so") << "not a shared object";

  const lock_error error = failure_of("absent:");

  EXPECT_EQ(error.code(), errc::module_unusable);
  EXPECT_THAT(error.what(), AllOf(HasSubstr((path() / "sallyport_absent.so").string()),
                                  HasSubstr("could not be loaded:")));
}

TEST_F(ModuleFolder, MayBeRepairedWhileTheProgramRuns) {
  name_in_environment(path().c_str());
  const lock_error first = failure_of("later:");

  std::filesystem::copy_file(file_of("later"), path() / "sallyport_later.so");

  EXPECT_EQ(first.code(), errc::module_unusable);
  EXPECT_NO_THROW(static_cast<void>(client::open("later:")));
  std::filesystem::remove(path() / "sallyport_later.so");
  EXPECT_NO_THROW(static_cast<void>(client::open("later:")))
      << "once loaded, the file is of no use";
}

TEST_F(ModuleFolder, ThatTheProgramNamesIsTheOnlyOne) {
  name_in_environment(made);

  const auto told = [&] {
    try {
      static_cast<void>(client::open("absent:", {.modules = path()}));
    } catch (const lock_error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();

  EXPECT_THAT(told, AllOf(HasSubstr("was not found in " + path().string() + ";"),
                          ::testing::Not(HasSubstr(made))));
}

TEST_F(ModuleFolder, ThatTheProgramNamesIsLoadedFrom) {
  name_in_environment("/nowhere/at/all");
  std::filesystem::copy_file(file_of("named"), path() / "sallyport_named.so");

  EXPECT_NO_THROW(static_cast<void>(client::open("named:", {.modules = path()})));
}

TEST_F(ModuleFolder, BesideTheProgramIsNotUsedWhenEverybodyMayWriteThere) {
  const std::filesystem::path open_to_all = std::filesystem::path(made).parent_path() / "open";
  std::filesystem::create_directories(open_to_all);
  std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
  std::filesystem::copy_file(file_of("echo"), open_to_all / "sallyport_absent.so",
                             std::filesystem::copy_options::overwrite_existing);
  auto home = client_detail::home_of_modules();
  home.from_program = "open";

  const auto folders = module_folders(home);
  const auto found = load_module(module_named("absent"), build(), folders);
  std::filesystem::remove_all(open_to_all);

  ASSERT_EQ(folders.front(), open_to_all);
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().detail,
              HasSubstr(open_to_all.string() + " (not used: everybody may write to " +
                        open_to_all.string() + " (mode 0777, user"));
}

TEST_F(ModuleFolder, BesideTheProgramComesBeforeTheInstalledOne) {
  const auto folders = module_folders(client_detail::home_of_modules());

  EXPECT_THAT(folders, ::testing::ElementsAre(made, "/nowhere/at/all"));
}

}  // namespace
}  // namespace sallyport

#include "client/module_loader.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/temporary_folder.hpp"
#include "tests/kit/unprivileged.hpp"
#include "tests/modules/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::client_detail {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t root = 0;
constexpr uid_t me = 1000;
constexpr gid_t my_group = 1000;
constexpr uid_t somebody = 1001;
constexpr gid_t staff = 50;
constexpr gid_t crew = 2000;

/// A program that I run and that root has installed.
const code_givers installed_by_root{
    .user = me, .group = my_group, .program_owners = {root}, .program_groups = {}, .strict = false};
/// The same, run by root.
const code_givers run_by_root{
    .user = root, .group = 0, .program_owners = {root}, .program_groups = {}, .strict = true};

/// A way on which root has put everything, but for the folder of modules.
std::vector<path_step> way_with(const std::string& parent, const path_step& folder) {
  return {{"/", root, 0, 0755},
          {parent, root, 0, 0755},
          folder,
          {folder.path + "/sallyport_redis.so", folder.owner, folder.group, 0644}};
}

std::string answer(const path_step& folder, const code_givers& givers) {
  return why_not_trusted(way_with("/opt", folder), givers);
}

TEST(ModuleTrust, IsForRootTheUserAndTheOwnerOfTheProgram) {
  code_givers of_somebody = installed_by_root;
  of_somebody.program_owners.push_back(somebody);

  EXPECT_EQ(answer({"/opt/x", root, 0, 0755}, installed_by_root), "");
  EXPECT_EQ(answer({"/opt/x", me, my_group, 0755}, installed_by_root), "");
  EXPECT_EQ(answer({"/opt/x", somebody, crew, 0755}, of_somebody), "");
  EXPECT_NE(answer({"/opt/x", somebody, crew, 0755}, installed_by_root), "");
  EXPECT_NE(answer({"/opt/x", me, my_group, 0755}, run_by_root), "");
}

TEST(ModuleTrust, IsNotForWhatEverybodyMayWrite) {
  EXPECT_THAT(
      answer({"/opt/x", me, my_group, 0777}, installed_by_root),
      AllOf(HasSubstr("/opt/x (mode 0777, user 1000, group 1000)"), HasSubstr("chmod o-w")));
  EXPECT_NE(answer({"/opt/x", root, 0, 01777}, installed_by_root), "")
      << "the sticky bit keeps nobody from adding a module";
}

TEST(ModuleTrust, LooksAtEveryFolderOnTheWay) {
  auto way = way_with("/srv", {"/srv/x", me, my_group, 0755});
  ASSERT_EQ(why_not_trusted(way, installed_by_root), "");

  way[1].mode = 0757;
  EXPECT_THAT(why_not_trusted(way, installed_by_root), HasSubstr("everybody may write to /srv "));
  way[1].mode = 01777;
  EXPECT_EQ(why_not_trusted(way, installed_by_root), "")
      << "in a folder with the sticky bit nobody can replace what is mine";
  way[1] = {"/srv", somebody, crew, 0755};
  EXPECT_THAT(why_not_trusted(way, installed_by_root), HasSubstr("/srv (mode 0755, user 1001"));
}

TEST(ModuleTrust, LooksAtTheModuleItself) {
  auto way = way_with("/opt", {"/opt/x", root, 0, 0755});

  way.back().mode = 0666;
  EXPECT_THAT(why_not_trusted(way, installed_by_root), HasSubstr("/opt/x/sallyport_redis.so"));
  way.back() = {"/opt/x/sallyport_redis.so", somebody, crew, 0644};
  EXPECT_THAT(why_not_trusted(way, installed_by_root), HasSubstr("/opt/x/sallyport_redis.so"));
}

TEST(ModuleTrust, IsForAGroupThatMayReplaceTheProgram) {
  code_givers of_the_crew = run_by_root;
  of_the_crew.program_groups.push_back(crew);

  EXPECT_EQ(answer({"/opt/x", root, crew, 02775}, of_the_crew), "");
  EXPECT_THAT(answer({"/opt/x", root, crew, 02775}, run_by_root),
              AllOf(HasSubstr("its group may write to /opt/x (mode 02775, user 0, group 2000)"),
                    HasSubstr("chmod g-w")));
}

TEST(ModuleTrust, IsForMyOwnGroupAndForThoseToWhomRootGaveAFolder) {
  EXPECT_EQ(answer({"/opt/x", me, my_group, 0775}, installed_by_root), "");
  EXPECT_EQ(answer({"/opt/x", root, staff, 02775}, installed_by_root), "");
  EXPECT_EQ(answer({"/opt/x", root, 0, 0775}, run_by_root), "");
  EXPECT_NE(answer({"/opt/x", me, crew, 0775}, installed_by_root), "");
}

TEST(ModuleTrust, OfRootIsForTheAdministratorsGroupBelowUsrLocalOnly) {
  const auto local = [](const path_step& folder) {
    return why_not_trusted(way_with("/usr", folder), run_by_root);
  };

  EXPECT_EQ(local({"/usr/local", root, staff, 02775}), "");
  EXPECT_EQ(local({"/usr/local/lib", root, staff, 02775}), "");
  EXPECT_NE(local({"/usr/locality", root, staff, 02775}), "");
  EXPECT_NE(local({"/usr/lib", root, staff, 02775}), "");
  EXPECT_NE(local({"/usr/local", somebody, staff, 02775}), "");
}

/// A program and a module, each in a folder of its own, where everybody may look. Given away at will.
class RealModule : public ::testing::Test {
 protected:
  RealModule() {
    const fs::path built = SALLYPORT_TEST_OPEN_MODULE;
    for (const auto& each : {folder(), program().parent_path(), outer(), inner()}) {
      fs::create_directories(each);
      fs::permissions(each, fs::perms(0755));
    }
    fs::copy_file(built, program());
    fs::copy_file(fs::path(modules_testing::made) / "sallyport_echo.so", module());
  }

  [[nodiscard]] const fs::path& folder() const { return own_.path(); }
  [[nodiscard]] fs::path program() const { return folder() / "program/open_module"; }
  [[nodiscard]] fs::path outer() const { return folder() / "outer"; }
  [[nodiscard]] fs::path inner() const { return outer() / "inner"; }
  [[nodiscard]] fs::path module() const { return inner() / "sallyport_echo.so"; }

  static void give(const fs::path& what, uid_t owner, gid_t group, int mode) {
    ASSERT_EQ(::chown(what.c_str(), owner, group), 0) << what;
    ASSERT_EQ(::chmod(what.c_str(), static_cast<mode_t>(mode)), 0) << what;
  }
  /// The module and its two folders.
  void give_module(uid_t owner, gid_t group, int mode) const {
    give(outer(), owner, group, mode);
    give(inner(), owner, group, mode);
    give(module(), owner, group, 0644);
  }

  /// What the program prints that is run as that user.
  [[nodiscard]] std::string run(std::optional<kit::user_and_group> user,
                                std::vector<std::string> arguments,
                                const std::string& modules = "") {
    const fs::path log = folder() / ("log" + std::to_string(++runs_));
    kit::child_process started{{.program = program(),
                                .called_as = {},
                                .arguments = std::move(arguments),
                                .environment = {"SALLYPORT_MODULES=" + modules},
                                .folder = "/",
                                .log = log,
                                .run_as = user}};
    EXPECT_EQ(started.wait_for_end(), 0);
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    return text.str();
  }
  /// The same, with the module's folder in the environment.
  [[nodiscard]] std::string opened_by(std::optional<kit::user_and_group> user) {
    return run(user, {}, inner());
  }

 private:
  // Not where tests have their folders otherwise: set-user-ID programs have to work there, and others get there.
  kit::temporary_folder own_{"trust", "/var/tmp"};
  int runs_ = 0;
};

TEST_F(RealModule, IsLoadedOnlyIfNobodyElseCanReplaceIt) {
  EXPECT_EQ(opened_by({}), "opened\n");

  ASSERT_EQ(::chmod(inner().c_str(), 0777), 0);
  EXPECT_THAT(opened_by({}),
              AllOf(HasSubstr("everybody may write to " + inner().string() + " (mode 0777, user "),
                    HasSubstr("chmod o-w it")));
  ASSERT_EQ(::chmod(inner().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(outer().c_str(), 0777), 0);
  EXPECT_THAT(opened_by({}), HasSubstr("everybody may write to " + outer().string() + " (mode"));
  ASSERT_EQ(::chmod(outer().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(module().c_str(), 0666), 0);
  EXPECT_THAT(opened_by({}), HasSubstr("everybody may write to " + module().string() + " (mode"));
}

TEST_F(RealModule, IsJudgedByWhereALinkLeads) {
  const fs::path link = folder() / "link";
  fs::create_directory_symlink(inner(), link);
  EXPECT_EQ(run({}, {}, link), "opened\n");

  ASSERT_EQ(::chmod(outer().c_str(), 0777), 0);

  EXPECT_THAT(run({}, {}, link), HasSubstr("everybody may write to " + outer().string()));
}

/// Folders and programs of others, which only root can make.
class GivenAwayModule : public RealModule {
 protected:
  static constexpr kit::user_and_group ann{.user = 12345, .group = 12345};
  static constexpr kit::user_and_group ben{.user = 12346, .group = 12346};

  void SetUp() override {
    ASSERT_EQ(::geteuid(), 0U) << "only root can give folders away: run the tests as root";
  }
};

TEST_F(GivenAwayModule, OfAUserIsLoadedByThatUserAndNotByRootOrOthers) {
  give_module(ann.user, ann.group, 0755);

  EXPECT_EQ(opened_by(ann), "opened\n");
  EXPECT_THAT(opened_by(ben), HasSubstr(outer().string() + " (mode 0755, user 12345"));
  EXPECT_THAT(opened_by({}), HasSubstr(outer().string() + " (mode 0755, user 12345"));
}

TEST_F(GivenAwayModule, OfTheProgramsOwnerIsLoadedByAll) {
  give(program(), ann.user, ann.group, 0755);
  give_module(ann.user, ann.group, 0755);

  EXPECT_EQ(opened_by(ben), "opened\n");
  EXPECT_EQ(opened_by({}), "opened\n");
}

TEST_F(GivenAwayModule, InATreeOfAnotherIsLoadedByAProgramInTheSameTree) {
  give(folder(), ann.user, ann.group, 0755);

  EXPECT_EQ(opened_by({}), "opened\n") << "ann can replace the program as well";
}

TEST_F(GivenAwayModule, OfAGroupIsLoadedByItsMembersAndWhereRootGaveItTheFolder) {
  give_module(ann.user, ann.group, 0775);
  EXPECT_EQ(opened_by(ann), "opened\n");

  give_module(0, ann.group, 02775);
  EXPECT_EQ(opened_by(ben), "opened\n");
  EXPECT_THAT(opened_by({}), HasSubstr("its group may write to " + outer().string() +
                                       " (mode 02775, user 0, group 12345)"));

  give(program().parent_path(), 0, ann.group, 02775);
  EXPECT_EQ(opened_by({}), "opened\n") << "that group may replace the program as well";
}

/// A program with privileges that its caller lacks, as which nothing may be done that the caller has chosen.
TEST_F(GivenAwayModule, OfTheCallerIsNotLoadedByAPrivilegedProgram) {
  give_module(ann.user, ann.group, 0755);
  give(program().parent_path(), ann.user, ann.group, 0755);  // where ann has a hard link to it
  for (const int mode : {04755, 02755}) {
    give(program(), ben.user, ben.group, mode);

    EXPECT_THAT(opened_by(ann), AllOf(HasSubstr("was not found in /nowhere/at/all;"),
                                      ::testing::Not(HasSubstr(inner().string()))));
    EXPECT_THAT(run(ann, {inner()}), HasSubstr(outer().string() + " (mode 0755, user 12345"));
  }
  give_module(ben.user, ben.group, 0755);
  EXPECT_EQ(run(ann, {inner()}), "opened\n") << "the folder that the program itself has named";
}

}  // namespace
}  // namespace sallyport::client_detail

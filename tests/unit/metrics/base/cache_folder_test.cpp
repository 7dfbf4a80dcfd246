#include "metrics/base/cache_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class CacheFolders : public ::testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", home_.c_str(), 1); }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(home_);
  }
  static mode_t mode_of(const fs::path& folder) {
    struct stat found {};
    EXPECT_EQ(::stat(folder.c_str(), &found), 0);
    return found.st_mode & 07777;
  }
  const fs::path home_ =
      fs::temp_directory_path() / ("heteroperf-cache-test-" + std::to_string(getpid()));
};

TEST_F(CacheFolders, ANewOneIsPrivateAndGoesWithItsOwner) {
  fs::path gone;
  {
    const PrivateFolder made("x-"), another("x-");
    gone = made.path();
    EXPECT_EQ(gone.parent_path(), home_ / "heteroperf");
    EXPECT_EQ(fs::status(gone).permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none);
    EXPECT_NE(another.path(), gone);
    fs::create_directories(gone / "with/something");
  }
  EXPECT_FALSE(fs::exists(gone));
}

TEST_F(CacheFolders, WhatKilledProcessesLeftIsRemoved) {
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const PrivateFolder living("x-");
  fs::last_write_time(living.path(), long_ago);
  std::string told(256, '\0');
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const PrivateFolder left("x-");
    const std::string name = left.path().string();
    [[maybe_unused]] const auto written = write(ends[1], name.data(), name.size());
    _exit(0);
  }
  told.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], told.data(), 256))));
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(told)) << told;
  { const PrivateFolder soon("x-"); }
  EXPECT_TRUE(fs::exists(told));
  fs::last_write_time(told, long_ago);
  { const PrivateFolder of_another_kind("y-"); }
  EXPECT_TRUE(fs::exists(told));
  { const PrivateFolder later("x-"); }
  EXPECT_FALSE(fs::exists(told));
  EXPECT_TRUE(fs::exists(living.path()));
}

TEST_F(CacheFolders, ARelativePathIsNone) {
  setenv("XDG_CACHE_HOME", "somewhere", 1);
  EXPECT_TRUE(cache_folder().is_absolute());
}

TEST_F(CacheFolders, IsMadePrivate) {
  const mode_t before = umask(0002);
  EXPECT_EQ(mode_of(own_cache_folder()), 0700u);
  EXPECT_EQ(mode_of(home_), 0700u);
  umask(before);
}

TEST_F(CacheFolders, OneThatOthersMayWriteToIsClosedWithoutWhatTheyLeft) {
  for (const mode_t mode : {0775u, 0757u}) {
    const fs::path cache = own_cache_folder();
    fs::create_directories(cache / "planted");
    fs::create_directories(cache / "private");
    std::ofstream(cache / "planted/verdict") << "forged";
    ASSERT_EQ(chmod((cache / "planted").c_str(), 0775), 0);
    ASSERT_EQ(chmod((cache / "private").c_str(), 0700), 0);
    ASSERT_EQ(chmod(cache.c_str(), mode), 0);
    EXPECT_EQ(mode_of(own_cache_folder()), 0700u);
    EXPECT_FALSE(fs::exists(cache / "planted"));
    EXPECT_TRUE(fs::exists(cache / "private"));
  }
}

TEST_F(CacheFolders, AFolderAboveItThatEverybodyMayWriteToIsRefused) {
  own_cache_folder();
  ASSERT_EQ(chmod(home_.c_str(), 0777), 0);
  EXPECT_THROW(PrivateFolder("x-"), SystemError);
  ASSERT_EQ(chmod(home_.c_str(), 01777), 0);
  EXPECT_NO_THROW(PrivateFolder("x-"));
}

TEST_F(CacheFolders, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  constexpr uid_t stranger = 4711;
  const fs::path cache = own_cache_folder();
  ASSERT_EQ(chown(home_.c_str(), stranger, 0), 0);
  EXPECT_THROW(PrivateFolder("x-"), SystemError);
  ASSERT_EQ(chown(home_.c_str(), 0, 0), 0);
  fs::remove(cache);
  fs::create_directories(home_ / "real");
  fs::create_directory_symlink(home_ / "real", cache);
  EXPECT_NO_THROW(PrivateFolder("x-"));
  ASSERT_EQ(lchown(cache.c_str(), stranger, 0), 0);
  EXPECT_THROW(PrivateFolder("x-"), SystemError);
}

TEST_F(CacheFolders, WithoutAHomeItIsThisUsersOwn) {
  unsetenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "", 1);
  EXPECT_EQ(cache_folder(), "/tmp/heteroperf-" + std::to_string(geteuid()));
  if (home != nullptr) setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace heteroperf

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr const char* launcher_variables[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",      "PMI_SIZE",
    "SLURM_PROCID",         "SLURM_NTASKS",         "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"};

/// What detect_launcher() finds in an environment with just these variables.
std::optional<LaunchedRank> detect(const std::map<std::string, std::string>& environment) {
  for (const char* name : launcher_variables) unsetenv(name);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::optional<LaunchedRank> found;
  std::exception_ptr error;
  try {
    found = detect_launcher();
  } catch (...) {
    error = std::current_exception();
  }
  for (const char* name : launcher_variables) unsetenv(name);
  if (error) std::rethrow_exception(error);
  return found;
}

TEST(DetectLauncher, KnowsTheLaunchers) {
  EXPECT_FALSE(detect({}));
  const auto open_mpi = detect({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->rank, 3);
  EXPECT_EQ(open_mpi->size, 4);
  EXPECT_EQ(open_mpi->launcher, "mpirun");
  const auto hydra = detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->size, 2);
  const auto step = detect({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->launcher, "srun");
  EXPECT_EQ(step->size, 8);
}

TEST(DetectLauncher, ABatchScriptIsNoRank) {
  const std::map<std::string, std::string> batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_FALSE(detect(batch));
  for (const char* step : {"4294967291", "4294967290"}) {  // batch step, salloc's shell
    auto with_step = batch;
    with_step["SLURM_STEP_ID"] = step;
    EXPECT_FALSE(detect(with_step)) << step;
  }
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_STEP_ID", "3"},
                       {"SLURM_STEP_NUM_TASKS", "1"}}));
}

TEST(DetectLauncher, NonsenseIsAnError) {
  EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), SystemError);
  EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), SystemError);
  EXPECT_THROW(detect({{"PMI_RANK", "-1"}, {"PMI_SIZE", "4"}}), SystemError);
}

/// A cache folder of its own.
class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "heteroperf-launch-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    cache_ = name;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  void TearDown() override {
    unsetenv(LaunchFolder::variable);
    fs::remove_all(cache_);
  }
  fs::path cache_;
};

TEST_F(Folder, TheFirstReportCounts) {
  fs::path path;
  {
    const LaunchFolder folder;
    path = folder.path();
    EXPECT_EQ(path.parent_path(), cache_ / "heteroperf");
    EXPECT_FALSE(folder.report());
    report_exit(6, "nobody launched this");
    EXPECT_FALSE(folder.report());
    setenv(LaunchFolder::variable, path.c_str(), 1);
    report_exit(7, "rank 1 stopped answering\nand more");
    report_exit(6, "an echo");
    ASSERT_TRUE(folder.report());
    EXPECT_EQ(folder.report()->code, 7);
    EXPECT_EQ(folder.report()->text, "rank 1 stopped answering");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Folder, AnUnusableCacheIsNamed) {
  std::ofstream(cache_ / "file") << "not a folder";
  setenv("XDG_CACHE_HOME", (cache_ / "file").c_str(), 1);
  try {
    const LaunchFolder folder;
    ADD_FAILURE() << "made a folder in a file";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find((cache_ / "file").string()), std::string::npos);
  }
}

TEST(SharedModule, AMissingOneIsNamedWithThePlacesSearched) {
  setenv("HETEROPERF_MODULE_PATH", "/first/place:/second/place", 1);
  try {
    SharedModule::open("nonesuch", Visibility::local);
    ADD_FAILURE() << "loaded what is not there";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    for (const char* part : {"nonesuch", "/first/place", "/second/place", "lib/heteroperf"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part;
    }
  }
  unsetenv("HETEROPERF_MODULE_PATH");
}

TEST_F(Folder, AModuleThatDoesNotLoadSaysWhy) {
  std::ofstream(cache_ / "libheteroperf_broken.so") << "no library";
  setenv("HETEROPERF_MODULE_PATH", cache_.c_str(), 1);
  try {
    SharedModule::open("broken", Visibility::local);
    ADD_FAILURE() << "loaded a text file";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("libheteroperf_broken.so"), std::string::npos);
  }
  unsetenv("HETEROPERF_MODULE_PATH");
}

TEST(MpiStatus, SaysWhatThisBuildCanDo) {
  const BackendStatus status = mpi_status();
  EXPECT_EQ(status.built, HETEROPERF_WITH_MPI != 0);
  EXPECT_EQ(status.usable, status.reason.empty()) << status.reason;
  EXPECT_EQ(status.built, !status.version.empty());
  if (!status.built) {
    EXPECT_NE(status.reason.find("not built with MPI"), std::string::npos);
    EXPECT_THROW(join_mpi_world({}), SystemError);
  }
}

}  // namespace
}  // namespace heteroperf

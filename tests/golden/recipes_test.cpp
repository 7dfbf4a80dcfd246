// The recipes' own shell steps, run with programs that leave stored runs in place of training, and
// with a git and a cmake that put these where a build would. The steps find no other programs than
// those of their image and those that they install.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "tests/golden/python_reader.hpp"
#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Recipes : public ::testing::Test {
 protected:
  void SetUp() override {
    program("packages/git/git", "[ \"$1 $2\" = 'worktree add' ] && cp -r checkout-of-base \"$4\"");
    program("packages/cmake/cmake",
            "[ \"$1\" = --preset ] && exit 0; mkdir -p build/default/suite && cp program "
            "build/default/suite/heteroperf");
    const std::string setup = "[ \"$*\" = 'build full' ] && cp " +
                              (folder_ / "packages/cmake/cmake") + " " + (folder_ / "image");
    program("scripts/setup.sh", setup);
    program("checkout-of-base/scripts/setup.sh", setup);
    program("image/apt-get",
            "for name in \"$@\"; do [ ! -d packages/$name ] || cp packages/$name/* "
            "image/; done");
    for (const char* tool : {"bash", "cat", "cp", "mkdir", "rm", "sh"}) {
      fs::create_symlink(std::string("/bin/") + tool, folder_ / (std::string("image/") + tool));
    }
  }

  /// Programs that the image of a recipe has.
  void preinstall(const std::vector<std::string>& packages) const {
    for (const std::string& name : packages) {
      fs::copy(folder_ / ("packages/" + name + "/" + name), folder_ / ("image/" + name));
    }
  }

  void program(const std::string& name, const std::string& body) const {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    folder_.write(name, "#!/bin/bash\n" + body + "\n");
    chmod((folder_ / name).c_str(), 0755);
  }

  /// A heteroperf whose `run` leaves the next of `count` stored runs where --out or HETEROPERF_OUT
  /// says.
  void store_program(const std::string& name, const std::string& runs, int count, double step_s) {
    NoiseSource noise(static_cast<std::uint64_t>(step_s * 1000));
    for (int i = 0; i < count; ++i) {
      StoredRun run{.number = stored_++};
      run.step_s = step_s * std::exp(0.004 * noise.normal());
      fs::rename(store_run(folder_ / "new", run), fs::path(folder_ / runs) += std::to_string(i));
    }
    const std::string home = folder_ / runs;
    program(name, "[ \"$1\" = run ] || exec " + heteroperf_path() +
                      " \"$@\"\nout=$HETEROPERF_OUT\n"
                      "while [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; shift; done\n"
                      "i=$(cat " +
                      home + "next 2>/dev/null || echo 0); echo $((i+1)) > " + home +
                      "next; cp -r " + home + "$i \"$out\"");
  }

  /// Runs the steps of a CI file one after another; the exit code of the first that fails.
  int run_steps(const std::string& recipe) {
    const auto python = python_with({"yaml"});
    if (!python) return -1;
    const Json steps =
        Json::parse(read_with(*python, "read_recipe.py", {HETEROPERF_RECIPES "/" + recipe}));
    EXPECT_FALSE(steps.empty());
    for (const Json& step : steps) {
      std::vector<std::string> environment{"PATH=" + (folder_ / "image"),
                                           "GITHUB_STEP_SUMMARY=" + (folder_ / "summary.md")};
      for (const auto& [name, value] : step.at("env").items()) {
        environment.push_back(name + "=" + value.get<std::string>());
      }
      const std::string script = folder_.write("step.sh", step.at("script"));
      // GitHub's and GitLab's own way to start one.
      const CommandResult result =
          Command({"/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", script}, folder_.path(),
                  environment)
              .finish();
      said_ += result.out + result.err;
      if (result.exit_code != 0) return result.exit_code;
    }
    return 0;
  }

  std::vector<std::string> night_environment() {
    return {"HETEROPERF=" + (folder_ / "program"), "NIGHTLY=" + (folder_ / "nightly"),
            "SLURM_JOB_ID=" + std::to_string(++nights_)};
  }
  CommandResult night() { return Command(nightly_, folder_.path(), night_environment()).finish(); }

  std::string text_of(const std::string& name) const { return read_text_file(folder_ / name); }

  const std::vector<std::string> nightly_{"/bin/bash", HETEROPERF_RECIPES "/nightly.sbatch", "llm"};
  ScratchFolder folder_;
  std::string said_;
  int stored_ = 0, nights_ = 0;
};

TEST_F(Recipes, GithubPassesAnEqualHead) {
  preinstall({"git", "cmake"});
  store_program("checkout-of-base/program", "base-", 12, 12);
  store_program("program", "head-", 12, 12.001);
  const int code = run_steps("github-actions.yml");
  if (code == -1) GTEST_SKIP() << "no python3 with yaml";
  EXPECT_EQ(code, 0) << said_;
  EXPECT_EQ(text_of("summary.md").rfind("### PASS", 0), 0u);
  EXPECT_TRUE(fs::exists(folder_ / "gate/gate.json"));
}

TEST_F(Recipes, GithubFailsASlowerHead) {
  preinstall({"git", "cmake"});
  store_program("checkout-of-base/program", "base-", 12, 12);
  store_program("program", "head-", 12, 12.8);
  const int code = run_steps("github-actions.yml");
  if (code == -1) GTEST_SKIP() << "no python3 with yaml";
  EXPECT_EQ(code, 3) << said_;
  EXPECT_NE(said_.find("::error title=heteroperf::the head is slower"), std::string::npos);
}

TEST_F(Recipes, GithubSaysWhenNothingWasMeasured) {
  preinstall({"git", "cmake"});
  store_program("checkout-of-base/program", "base-", 1, 12);
  program("program", "exit 1");
  const int code = run_steps("github-actions.yml");
  if (code == -1) GTEST_SKIP() << "no python3 with yaml";
  EXPECT_NE(code, 0);
  EXPECT_NE(said_.find("nothing was gated"), std::string::npos) << said_;
}

TEST_F(Recipes, GitlabFailsASlowerHeadAndLeavesJunit) {
  store_program("checkout-of-base/program", "base-", 12, 12);
  store_program("program", "head-", 12, 12.8);
  const int code = run_steps("gitlab-ci.yml");
  if (code == -1) GTEST_SKIP() << "no python3 with yaml";
  EXPECT_EQ(code, 3) << said_;
  EXPECT_NE(text_of("gate.xml").find("<failure"), std::string::npos);
}

TEST_F(Recipes, NightsAreKeptAndHeldAgainstTheFirst) {
  store_program("program", "night-", 2, 12);
  const CommandResult first = night();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(fs::exists(folder_ / "nightly/baselines/nightly"));
  const CommandResult second = night();
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(text_of("nightly/compare.md").find("the throughput of A"), std::string::npos);
  EXPECT_NE(text_of("nightly/latest.openmetrics").find("# EOF"), std::string::npos);
  EXPECT_NE(text_of("nightly/ranking.html").find("</html>"), std::string::npos);
}

TEST_F(Recipes, AMuchSlowerNightFails) {
  store_program("program", "night-", 1, 12);
  ASSERT_EQ(night().exit_code, 0);
  fs::remove_all(folder_ / "night-0");
  fs::remove(folder_ / "night-next");
  store_program("program", "night-", 1, 24);
  const CommandResult slower = night();
  EXPECT_EQ(slower.exit_code, 3) << slower.out << slower.err;
}

/// Slurm tells the job's shell alone that its time is up.
TEST_F(Recipes, ANightThatMustEndTellsItsRun) {
  program("program",
          "trap 'touch told; exit 130' TERM\ntouch started\n"
          "for i in {1..600}; do sleep 0.1; done");
  Command script(nightly_, folder_.path(), night_environment());
  ASSERT_TRUE(script.wait_until([&] { return fs::exists(folder_ / "started"); }));
  kill(script.pid(), SIGTERM);
  const CommandResult result = script.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_TRUE(fs::exists(folder_ / "told"));
  EXPECT_TRUE(descendants(script.pid()).empty());
}

TEST_F(Recipes, TheNextNightIsForATimeOfDay) {
  store_program("program", "night-", 1, 12);
  program("image/sbatch", "echo \"$@\" > asked");
  std::vector<std::string> environment = night_environment();
  environment.push_back("AGAIN=02:00");
  environment.push_back("PATH=" + (folder_ / "image") + ":/usr/bin:/bin");
  ASSERT_EQ(Command(nightly_, folder_.path(), environment).finish().exit_code, 0);
  EXPECT_EQ(text_of("asked"), "--begin=02:00 " HETEROPERF_RECIPES "/nightly.sbatch llm\n");
}

/// The words of the report are for readers.
TEST_F(Recipes, TheVerdictIsNotReadFromProse) {
  store_program("program", "night-", 2, 12);
  ASSERT_EQ(night().exit_code, 0);
  fs::rename(folder_ / "program", folder_ / "true-program");
  program("program",
          "if [ \"$1 $4\" = 'compare --format' ]; then echo 'B is slower, it is said'; else "
          "exec ./true-program \"$@\"; fi");
  EXPECT_EQ(night().exit_code, 0);
}

}  // namespace
}  // namespace heteroperf::testing

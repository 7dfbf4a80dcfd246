// What the program prints, with the numbers scrubbed, against the files in expected/.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/golden/command.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;

struct Scrub {
  const char* pattern;
  const char* with;
};

/// In this order. What is left is wording, order, and which lines there are.
const Scrub scrubs[] = {
    {"\x1b\\[[0-9;]*m", ""},
    {"(^|\n)(next +|  +)[^\n ]*/heteroperf ", "$1$2heteroperf "},
    {"[0-9]{8}T[0-9]{6}Z-([a-z-]+)-[0-9a-f]{8}", "<run $1>"},
    {"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", "<date>"},
    {"\\b[0-9a-f]{32,64}\\b", "<hash>"},
    // The fastest ways of products on this machine.
    {"engine\\.products=[^ \n]+", "engine.products=<ways>"},
    {"(^|\n)products +[a-z]+ \\(", "$1products  <way> ("},
    // Rules that a busy machine may break.
    {"(^|\n)[ |]*(steady|overhead|steps_few|clock_jump|other_load|throttled) \\([^\n]*", ""},
    // What a build without HDF5 says.
    {"samples_h5 \\([^\n]*", "samples_h5"},
    // Numbers that are no part of a name ("w16", "fp32", "gpt3-175b").
    {"(^|[^A-Za-z0-9_.-])-?[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?(?![0-9A-Za-z_.]*[A-Za-z])", "$1#"},
    {"\\+#", "#"},
    // Prefixes of units, and widths of columns.
    {"# [kMGTPEZ](?=op/s)", "# "},
    {"# [kMGTPEZ](?= |\n)", "#"},
    {"# [KMGT]iB", "# B"},
    {"# (ns|µs|ms)(?![a-z])", "# s"},
    {"  +", "  "},
};

std::string scrubbed(std::string text) {
  for (const Scrub& scrub : scrubs) {
    text = std::regex_replace(text, std::regex(scrub.pattern), scrub.with);
  }
  return text;
}

std::string read_expected(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Compares with expected/<name>.txt. With GOLDEN_REFRESH set, rewrites that file and fails, so
/// that no run passes on a text that nobody has looked at.
void expect_text(const std::string& name, const std::string& printed) {
  const fs::path path = fs::path(HETEROPERF_EXPECTED) / (name + ".txt");
  const std::string text = scrubbed(printed);
  if (std::getenv("GOLDEN_REFRESH") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    FAIL() << path << " is rewritten: look at its difference, then test without GOLDEN_REFRESH";
  }
  EXPECT_EQ(text, read_expected(path)) << "GOLDEN_REFRESH=1 ctest -R golden/text rewrites " << path;
}

TEST(Scrubbed, LeavesNamesAndWordsAlone) {
  EXPECT_EQ(scrubbed("resnet18 w16, fp32, gpt3-175b 2 x 3.5e-7 (95 % CI -1 to 2.5)\n"),
            "resnet18 w16, fp32, gpt3-175b # x # (# % CI # to #)\n");
  EXPECT_EQ(scrubbed("OPS    51.07 ± 10 Gop/s, 4.7 k image/s, 2.263 MiB, 6.819 G\n"),
            "OPS  # ± # op/s, # image/s, # B, #\n");
  EXPECT_EQ(scrubbed("results/20261121T141640Z-automl-image-783df01b/record.json\n"),
            "results/<run automl-image>/record.json\n");
  EXPECT_EQ(scrubbed("a\n  overhead (open): expected 1 %.\n  quick (open)\n"),
            "a\n  quick (open)\n");
  EXPECT_NE(scrubbed("12 trials failed\n"), scrubbed("12 trials diverged\n"));
}

TEST(Text, Count) {
  expect_text("count", heteroperf({"count", "nano"}).out);
  expect_text("count-all", heteroperf({"count", "nano", "--convention", "all"}).out);
}

TEST(Text, List) {
  expect_text("list-workloads", heteroperf({"list", "workloads"}).out);
  expect_text("list-datasets", heteroperf({"list", "datasets"}).out);
}

TEST(Text, Problems) {
  expect_text("problems", heteroperf({"run", "llm", "--ranks", "0", "--set", "sed=1", "--steps",
                                      "3", "--duration", "4"})
                              .err);
}

TEST(Text, Show) {
  const ScratchFolder folder;
  fixed_run().write_finished({folder / "fixed"});
  search_run().write_finished({folder / "search"});
  planned_run().write_finished({folder / "planned"});
  const auto shown = [&](const char* run, const char* format) {
    return heteroperf({"show", run, "--format", format}, folder.path()).out;
  };
  expect_text("show-fixed", shown("fixed", "console"));
  expect_text("show-search", shown("search", "console"));
  expect_text("show-planned", shown("planned", "console"));
  expect_text("show-search-md", shown("search", "md"));
  expect_text("show-fixed-csv", shown("fixed", "csv"));
  expect_text("verify", heteroperf({"verify", "search"}, folder.path()).out);
}

#ifdef HETEROPERF_CAN_RUN
TEST(Text, Run) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf({"run", "llm", "--quick", "--size", "nano", "--ranks", "2", "--threads-per-rank",
                  "1", "--micro-batch", "2", "--steps", "120", "--set", "measure.peak_s=0"},
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_text("run-quick", result.out);
}
#endif

}  // namespace
}  // namespace heteroperf::testing

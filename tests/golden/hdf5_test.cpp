// samples.h5 as others open it: h5py and h5dump.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/journal/journal.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/sha256.hpp"
#include "tests/golden/python_reader.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Hdf5 : public ::testing::Test {
 protected:
  void SetUp() override {
    store_run(folder_.path(), {.number = 1});
    if (!fs::exists(files_.samples())) GTEST_SKIP() << "this build writes no HDF5";
  }

  ScratchFolder folder_;
  const RunFiles files_{folder_ / "run-001"};
};

TEST_F(Hdf5, H5pyReadsShapesUnitsAndAttributes) {
  const auto python = python_with({"h5py"});
  if (!python) GTEST_SKIP() << "no h5py";
  const Json file = Json::parse(read_with(*python, "read_samples_h5.py", {files_.samples()}));
  const std::string text = read_text_file(files_.record());
  const Json record = Json::parse(text);
  const Json& root = file.at("attributes");
  EXPECT_EQ(root.at("format"), "heteroperf-samples");
  for (const char* key : {"run_id", "created_utc", "status"}) {
    EXPECT_EQ(root.at(key), record.at(key)) << key;
  }
  EXPECT_EQ(root.at("record_sha256"), sha256_hex(text));
  EXPECT_TRUE(root.contains("format_version") && root.contains("tool_version") &&
              root.contains("git_commit"));
  const Json& datasets = file.at("datasets");
  EXPECT_EQ(datasets.at("record").at("values"), text);
  const auto steps = read_journal(files_.journal()).all<StepEvent>();
  for (const auto& [name, dataset] : datasets.items()) {
    if (name == "record") continue;
    EXPECT_EQ(dataset.at("shape").size(), 1u) << name;
    EXPECT_EQ(dataset.at("maxshape"), Json{"None"}) << name;  // can be appended to
    EXPECT_FALSE(dataset.at("attributes").at("long_name").get<std::string>().empty()) << name;
    if (dataset.at("type") != "object" && dataset.at("type").get<std::string>()[0] != '|') {
      EXPECT_FALSE(dataset.at("attributes").at("units").get<std::string>().empty()) << name;
    }
    const std::string group = name.substr(0, name.find('/') + 1);
    const std::map<std::string, std::string> scales{{"steps/", "t_end_ns"},
                                                    {"trials/", "id"},
                                                    {"evaluations/", "t_end_ns"},
                                                    {"ranks/", "rank"},
                                                    {"rank_steps/", "step"}};
    const std::string scale = group + scales.at(group);
    EXPECT_EQ(dataset.at("scales").at(0), name == scale ? Json::array() : Json{"/" + scale})
        << name;
    if (!name.starts_with("steps/")) continue;
    EXPECT_EQ(dataset.at("shape").at(0), steps.size()) << name;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(datasets.at("steps/loss").at("values").at(i), steps[i]->loss);
    EXPECT_EQ(datasets.at("steps/t_end_ns").at("values").at(i), steps[i]->t_end_ns);
    EXPECT_EQ(datasets.at("steps/ops_lo").at("values").at(i), steps[i]->ops_strict.low());
  }
  EXPECT_EQ(datasets.at("steps/t_end_ns").at("attributes").at("units"), "ns");
  EXPECT_EQ(datasets.at("steps/compute_s").at("attributes").at("units"), "s");
  EXPECT_EQ(datasets.at("steps/loss").at("attributes").at("units"), "nat");
}

/// Those of older programs have fewer columns; one of today that lacks them was changed.
TEST_F(Hdf5, ArchivesOfTheFirstFormatStillVerify) {
  const auto python = python_with({"h5py"});
  if (!python) GTEST_SKIP() << "no h5py";
  const auto verified = [&] { return heteroperf({"verify", files_.folder.string()}).exit_code; };
  ASSERT_EQ(verified(), 0);
  const std::string whole = read_text_file(files_.samples());
  read_with(*python, "shrink_samples_h5.py", {files_.samples(), "1"});
  EXPECT_EQ(verified(), 0);
  write_file_atomically(files_.samples(), whole);
  read_with(*python, "shrink_samples_h5.py", {files_.samples(), "2"});
  EXPECT_EQ(verified(), 9);
}

TEST_F(Hdf5, H5dumpReadsIt) {
  const char* h5dump = "/usr/bin/h5dump";
  if (!fs::exists(h5dump)) GTEST_SKIP() << "no h5dump";
  const CommandResult result = Command({h5dump, "-H", files_.samples()}, ".").finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"GROUP \"steps\"", "DATASET \"loss\"", "H5S_UNLIMITED", "\"units\""}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace heteroperf::testing

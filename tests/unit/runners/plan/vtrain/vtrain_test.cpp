#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/plan/vtrain/vtrain_time.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

constexpr const char* heading =
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";

class VtrainFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  std::vector<VtrainRow> read(const std::string& rows, const std::string& first = heading) const {
    std::ofstream(file_) << first << rows;
    return read_vtrain_rows(file_);
  }
  std::string problem(const std::string& rows, const std::string& first = heading) const {
    try {
      read(rows, first);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
  std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                ("heteroperf_vtrain_" + std::to_string(getpid()) + ".csv");
};

TEST_F(VtrainFile, IsReadAndChecked) {
  const auto rows = read("8,64,2,1024,16,24,2048,2,2,2,250.5\r\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].micro_batches(), 16);
  EXPECT_DOUBLE_EQ(rows[0].step_s, 0.2505);
  const auto expect = [&](const std::string& row, const std::string& words) {
    EXPECT_NE(problem(row).find(words), std::string::npos) << problem(row);
  };
  expect("8,64,2,1024,16,24,2048,2,2,2,-1\n", "must be positive milliseconds");
  expect("8,64,2,1024,16,24,2048,2,2,2,inf\n", "must be positive milliseconds");
  expect("8,64,2.5,1024,16,24,2048,2,2,2,10\n", "must be a positive whole number");
  expect("8,64,2,1024,16,24,2048,2,2,1,10\n", "degrees 2 x 2 x 1");
  expect("8,64,2,1024,16,24,2048,1e9,1e9,1e9,10\n", "degrees 1000000000 x");
  expect("8,63,2,1024,16,24,2048,2,2,2,10\n", "a batch of 63");
  expect("8,64,2,1024,16,25,2048,2,2,2,10\n", "25 layers");
  expect("8,64,2\n", "line 2 has 3 cells");
  expect("", "has no rows");
  EXPECT_NE(problem("", "a,b\n").find("has 2 columns"), std::string::npos);
  EXPECT_THROW(read_vtrain_rows("/nonexistent.csv"), UserError);
}

TEST(VtrainRows, NeighboursTellTheOddOnes) {
  VtrainRow row{8, 64, 1, 1024, 16, 24, 1024, 8, 1, 1, 1.0};
  std::vector<VtrainRow> rows;
  for (const double time : {1.0, 0.9, 1.2, 0.8, 1.7}) {
    row.step_s = time;
    rows.push_back(row);
    row.micro_batch *= 2;
  }
  const auto odd = odd_rows(rows);
  ASSERT_EQ(odd.size(), 2u);
  EXPECT_EQ(odd[0].index, 2u);
  EXPECT_EQ(odd[1].index, 4u);
}

std::vector<VtrainRow> random_rows(RandomStream& random, std::size_t count) {
  std::vector<VtrainRow> rows;
  while (rows.size() < count) {
    VtrainRow row;
    row.tensor = std::int64_t{1} << random.below(4);
    row.data = std::int64_t{1} << random.below(4);
    row.pipeline = std::int64_t{1} << random.below(3);
    row.devices = row.tensor * row.data * row.pipeline;
    row.micro_batch = std::int64_t{1} << random.below(4);
    row.global_batch = row.micro_batch * row.data * (std::int64_t{1} << random.below(6));
    row.hidden = std::int64_t{1024} << random.below(3);
    row.heads = row.hidden / 64;
    row.layers = 8 * (1 + static_cast<std::int64_t>(random.below(6)));
    row.sequence = 1024;
    rows.push_back(row);
  }
  return rows;
}

TEST(VtrainTime, CalibrationFindsTheMachine) {
  RandomStream random(5);
  std::vector<VtrainRow> rows = random_rows(random, 200);
  VtrainMachine machine;
  machine.rate *= 0.7;
  machine.launch_s *= 1.6;
  machine.sum_bytes_per_s *= 0.5;
  for (VtrainRow& row : rows) row.step_s = vtrain_step_s(row, machine);
  const VtrainSplit split = split_rows(rows, 5);
  EXPECT_EQ(split.calibration.size(), 40u);
  EXPECT_GT(vtrain_error(split.rest, {}), 0.15);
  const VtrainMachine found = calibrate_vtrain(
      split.calibration, {},
      {&VtrainMachine::rate, &VtrainMachine::launch_s, &VtrainMachine::sum_bytes_per_s});
  EXPECT_LT(vtrain_error(split.rest, found), 0.01);
}

/// More of anything that must be done is never faster.
TEST(VtrainTime, GrowsWithTheWork) {
  RandomStream random(6);
  const VtrainMachine machine;
  for (VtrainRow row : random_rows(random, 200)) {
    const double time = vtrain_step_s(row, machine);
    VtrainRow more = row;
    more.global_batch *= 2;
    EXPECT_GT(vtrain_step_s(more, machine), time);
    more = row;
    more.layers *= 2;
    EXPECT_GT(vtrain_step_s(more, machine), time);
    for (const VtrainMember member : vtrain_members()) {
      if (member == &VtrainMachine::rate || member == &VtrainMachine::sum_bytes_per_s) continue;
      VtrainMachine other = machine;
      other.*member *= 2;
      const bool rate = member == &VtrainMachine::network_bytes_per_s ||
                        member == &VtrainMachine::replica_bytes_per_s;
      EXPECT_TRUE(rate ? vtrain_step_s(row, other) <= time : vtrain_step_s(row, other) >= time);
    }
  }
}

void report(const char* name, const std::vector<VtrainRow>& rows, const VtrainSplit& split,
            const VtrainMachine& machine) {
  fmt::print("{}: {} of {} rows calibrate, mean error of the others {:.2f} %, of all {:.2f} %\n",
             name, split.calibration.size(), rows.size(), 100 * vtrain_error(split.rest, machine),
             100 * vtrain_error(rows, machine));
  for (const OddRow& odd : odd_rows(rows)) {
    fmt::print("  inconsistent: row {}: {}\n", odd.index + 1, odd.why);
  }
}

TEST(VtrainMeasured, SingleNodeRows) {
  const auto folder = shared_data("vtrain");
  if (!folder) GTEST_SKIP() << "no vtrain among the shared data (HETEROPERF_SHARED)";
  const auto rows = read_vtrain_rows(*folder + "/single_node_even_rows.csv");
  const VtrainSplit split = split_rows(rows, 10);
  ASSERT_LE(split.calibration.size() * 10, rows.size());
  const VtrainMachine machine = calibrate_vtrain(split.calibration, {}, vtrain_members());
  report("single node", rows, split, machine);
  EXPECT_LT(vtrain_error(split.rest, machine), 0.10);
}

TEST(VtrainMeasured, MultiNodeRows) {
  const auto folder = shared_data("vtrain");
  if (!folder) GTEST_SKIP() << "no vtrain among the shared data (HETEROPERF_SHARED)";
  const auto rows = read_vtrain_rows(*folder + "/multi_node_3.6B_39.1B.csv");
  const VtrainSplit split = split_rows(rows, 11);
  ASSERT_LE(split.calibration.size() * 10, rows.size());
  using M = VtrainMachine;
  const VtrainMachine machine =
      calibrate_vtrain(split.calibration, {},
                       {&M::rate, &M::launch_s, &M::sum_bytes_per_s, &M::network_bytes_per_s,
                        &M::replica_bytes_per_s});
  report("many nodes", rows, split, machine);
  EXPECT_LT(vtrain_error(split.rest, machine), 0.12);
}

}  // namespace
}  // namespace heteroperf

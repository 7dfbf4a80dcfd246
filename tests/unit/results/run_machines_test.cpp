#include "results/comparison/run_digest.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

RunDigest on_epyc() {
  RunDigest run;
  run.host = "node7";
  run.environment = {{"/system/cpu/model", "AMD EPYC 7763"},
                     {"/system/cpu/sockets", "2"},
                     {"/system/cpu/logical_cpus", "256"}};
  return run;
}

TEST(RunMachines, AreTheirCpusAndTheirGpus) {
  RunDigest run = on_epyc();
  EXPECT_EQ(machines_text(run), "2 x AMD EPYC 7763, 256 CPUs");
  run.gpus = {{"NVIDIA H200", 4}};
  EXPECT_EQ(machines_text(run), "2 x AMD EPYC 7763, 256 CPUs, NVIDIA H200");
  RunDigest smaller = run;
  smaller.gpus = {{"NVIDIA H200", 1}};
  EXPECT_EQ(machines_text(smaller), machines_text(run));
}

TEST(RunMachines, SeveralModelsCountInTheirProportions) {
  RunDigest run = on_epyc(), twice = on_epyc(), other = on_epyc();
  run.gpus = {{"NVIDIA H200", 3}, {"NVIDIA A100", 1}};
  twice.gpus = {{"NVIDIA H200", 6}, {"NVIDIA A100", 2}};
  other.gpus = {{"NVIDIA H200", 2}, {"NVIDIA A100", 2}};
  EXPECT_EQ(machines_text(run), "2 x AMD EPYC 7763, 256 CPUs, 1 NVIDIA A100 to 3 NVIDIA H200");
  EXPECT_EQ(machines_text(twice), machines_text(run));
  EXPECT_NE(machines_text(other), machines_text(run));
}

TEST(RunMachines, AreTheHostWhereNoCpuIsTold) {
  RunDigest run = on_epyc();
  run.environment["/system/cpu/sockets"] = "unavailable";
  EXPECT_EQ(machines_text(run), "node7");
  run.environment.clear();
  run.gpus = {{"NVIDIA H200", 1}};
  EXPECT_EQ(machines_text(run), "node7, NVIDIA H200");
  EXPECT_EQ(machines_text(RunDigest()), "");
}

TEST(RunMachines, AnyRunsEmulatedDevices) {
  RunDigest run = on_epyc();
  EXPECT_EQ(scaled_machines(run), machines_text(run));
  run.emulated = true;
  EXPECT_EQ(scaled_machines(run), "");
}

TEST(RunMachines, GpusStandBesideClassesThatDoNotNameThem) {
  RunDigest run;
  run.devices = {{"gpu", 3}, {"cpu", 1}};
  EXPECT_EQ(gpus_beside_classes(run), "");
  run.gpus = {{"NVIDIA H200", 2}, {"NVIDIA A100", 1}};
  EXPECT_EQ(gpus_beside_classes(run), " (1 x NVIDIA A100 + 2 x NVIDIA H200)");
  run.devices = {{"NVIDIA A100", 1}, {"NVIDIA H200", 2}};
  EXPECT_EQ(gpus_beside_classes(run), "");
}

}  // namespace
}  // namespace heteroperf

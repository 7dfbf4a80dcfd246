#include <gtest/gtest.h>

#include <functional>

#include "runners/plan/rivals/sailor/sailor_plan.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string problem_after(const std::function<void(SmallSailor&)>& change) {
  SmallSailor small;
  change(small);
  return message_of([&] { small.read(); });
}

void expect_problem(const std::string& words, const std::function<void(SmallSailor&)>& change) {
  const std::string message = problem_after(change);
  EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
}

TEST(SailorInputs, ReadsItsFiles) {
  const SailorInputs inputs = SmallSailor().read();
  EXPECT_EQ(inputs.training.model, "tiny");
  EXPECT_EQ(inputs.training.global_batch, 48);
  EXPECT_EQ(inputs.model.size(), 4);
  EXPECT_EQ(inputs.model.layers.at(2)[3].parameters, 500'000);
  EXPECT_EQ(inputs.devices.at("slow"), (SailorDevice{2, Bytes(4'000'000'000)}));
  EXPECT_EQ(inputs.zone, "here");
  const auto& timing = inputs.model.profiles.at("slow").at({4, 2})[1];
  EXPECT_DOUBLE_EQ(timing.forward_s, 0.012);
  EXPECT_DOUBLE_EQ(timing.backward_s, 0.024);
  EXPECT_EQ(inputs.network.at({{"here", "fast", 1}, {"here", "slow", 2}}),
            (SailorCurve{0, 0.1, 2}));
}

TEST(SailorInputs, BadFilesAreNamed) {
  const auto tp1 = [](SmallSailor& s) -> Json& { return s.profiles["tiny"]["slow"]["2"]["1"]; };
  expect_problem("profiles.json: tiny.slow.2.1.3[0] is -1", [&](SmallSailor& s) {
    tp1(s)["3"] = {-1.0, 0.0, 0.0};
  });
  expect_problem("tiny.slow.2.1.3", [&](SmallSailor& s) { tp1(s)["3"] = {1.0, 2.0}; });
  expect_problem("tiny.slow.2.1.3[1]", [&](SmallSailor& s) { tp1(s)["3"] = {1.0, "2", 0.0}; });
  expect_problem("has no layer 2", [&](SmallSailor& s) { tp1(s).erase("2"); });
  expect_problem("tiny.slow.2.1 has 3 layers", [&](SmallSailor& s) { tp1(s).erase("3"); });
  expect_problem("a profile of another one", [&](SmallSailor& s) { tp1(s).erase("3"); });
  expect_problem("must be a whole number from 1",
                 [&](SmallSailor& s) { s.profiles["tiny"]["slow"]["two"] = Json::object(); });
  expect_problem("there is no model \"tiny\"", [](SmallSailor& s) {
    s.profiles["tinny"] = s.profiles["tiny"];
    s.profiles.erase("tiny");
  });
  expect_problem("Did you mean \"tinny\"", [](SmallSailor& s) {
    s.profiles["tinny"] = s.profiles["tiny"];
    s.profiles.erase("tiny");
  });
  expect_problem("a value has 4 bytes",
                 [](SmallSailor& s) { s.layers["tiny"]["1"]["2"]["params_bytes"] = 1000; });
  expect_problem("Is it in GB?", [](SmallSailor& s) { s.devices["fast"]["mem_per_gpu"] = 40; });
  expect_problem("the curve is in GB/s", [](SmallSailor& s) {
    s.network["here"]["fast"]["1"]["here"]["slow"]["1"] = {{0.0, 0.1, 2e9}, 2e9};
  });
  expect_problem("global_batch_size", [](SmallSailor& s) { s.training["global_batch_size"] = 0; });
  expect_problem("no tensor-parallel degree 1",
                 [](SmallSailor& s) { s.layers["tiny"].erase("1"); });
}

TEST(SailorInputs, NotFiniteTimesAndBrokenFilesAreRefused) {
  const SmallSailor small;
  for (const char* value : {"1e999", "Infinity", "NaN"}) {
    SailorFiles files = small.write();
    std::string text = small.profiles.dump();
    text.replace(text.find("0.0005"), 6, value);
    SmallSailor::write(small.folder / "profiles.json", text);
    EXPECT_NE(message_of([&] { read_sailor_inputs(files); }).find("profiles.json"),
              std::string::npos)
        << value;
  }
  SailorFiles files = small.write();
  SmallSailor::write(small.folder / "llm_info.json", "{\"tiny\":");
  EXPECT_NE(message_of([&] { read_sailor_inputs(files); }).find("llm_info.json"),
            std::string::npos);
}

TEST(SailorInputs, EveryBrokenFileIsReported) {
  const std::string message = problem_after([](SmallSailor& s) {
    s.training["model"] = "other";
    s.devices["fast"].erase("mem_per_gpu");
    s.network["here"]["fast"]["1"]["here"]["slow"]["1"] = {{0.0, 0.1}, 2e9};
  });
  for (const char* words : {"there is no model \"other\"", "mem_per_gpu", "a list of 3 numbers"}) {
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
}

TEST(SailorInputs, SeveralTrainingsAskForOne) {
  const SmallSailor small;
  SailorFiles files = small.write();
  SmallSailor::write(small.folder / "training_config_b.json", small.training.dump());
  EXPECT_NE(message_of([&] { read_sailor_inputs(files); }).find("2 training configurations"),
            std::string::npos);
  files.training = "training_config_b.json";
  EXPECT_EQ(read_sailor_inputs(files).training.model, "tiny");
  files.training = "training_config_c.json";
  EXPECT_NE(message_of([&] { read_sailor_inputs(files); }).find("training_config_c.json"),
            std::string::npos);
}

std::filesystem::path write_trace(const SmallSailor& small, const std::string& text) {
  std::filesystem::create_directories(small.folder);
  SmallSailor::write(small.folder / "trace.csv", text);
  return small.folder / "trace.csv";
}

TEST(SailorTrace, ReadsRows) {
  const SmallSailor small;
  const auto rows = read_sailor_trace(
      write_trace(small, ",Timestamp,fast_here,slow_there_2\r\n0,10.5,32,96\r\n1,11,8,0\r\n"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].time_s, 10.5);
  EXPECT_EQ(rows[0].devices.at({"fast", "here"}), 32);
  EXPECT_EQ(rows[1].devices.at({"slow", "there_2"}), 0);
}

TEST(SailorTrace, NamesWhatIsWrong) {
  const SmallSailor small;
  const std::string heading = "Timestamp,fast_here\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "names no device"},
      {heading, "has no rows"},
      {heading + "1,2,3\n", "line 2 has 3 cells"},
      {heading + "1,-2\n", "line 2: \"fast_here\" is -2"},
      {heading + "1,2\n1,1.5\n", "line 3: \"fast_here\" is 1.5"},
      {heading + "now,2\n", "\"Timestamp\" is now"},
      {"Timestamp,fast\n1,2\n", "is no device and zone"},
  };
  for (const auto& [text, words] : cases) {
    const std::string message =
        message_of([&, file = write_trace(small, text)] { read_sailor_trace(file); });
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
  EXPECT_NE(message_of([&] { read_sailor_trace(small.folder / "none.csv"); }).find("none.csv"),
            std::string::npos);
}

Json small_run() {
  return {{"pipeline_list",
           {{{"layers_per_stage", {{0, 1}, {2, 3}}},
             {"tmp_per_stage",
              {{Json::array({Json::array({{"fast", 1, "here"}}), 1}),
                Json::array({Json::array({{"slow", 2, "here"}}), 2})},
               {Json::array({Json::array({{"fast", 1, "here"}}), 1}),
                Json::array({Json::array({{"fast", 1, "here"}}), 1})}}},
             {"dp", {2, 2}}}}},
          {"mbs", 2},
          {"gbs", 48}};
}

TEST(SailorPlanFile, ReadsAPlan) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  SmallSailor::write(small.folder / "run.json", small_run().dump());
  const int fast = tables.place("fast"), slow = tables.place("slow");
  EXPECT_EQ(read_sailor_plan(small.folder / "run.json", tables),
            (SailorPlan{{{0, 2, {{1, fast, 1}, {1, slow, 2}}}, {2, 4, {{2, fast, 1}}}}, 2, {}}));
}

TEST(SailorPlanFile, ASlipBetweenFirstAndLastLayerIsRead) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  Json run = small_run();
  run["pipeline_list"][0]["layers_per_stage"] = {{0, 2, 2}, {3}};
  SmallSailor::write(small.folder / "run.json", run.dump());
  EXPECT_EQ(read_sailor_plan(small.folder / "run.json", tables).stages[0].layers.end, 3);
}

TEST(SailorPlanFile, NamesWhatIsWrong) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  const auto expect = [&](const std::string& words, const std::function<void(Json&)>& change) {
    Json run = small_run();
    change(run);
    SmallSailor::write(small.folder / "run.json", run.dump());
    const std::string message =
        message_of([&] { read_sailor_plan(small.folder / "run.json", tables); });
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  };
  expect("plans of one are read", [](Json& r) { r["pipeline_list"].push_back(1); });
  expect("skips a layer", [](Json& r) { r["pipeline_list"][0]["layers_per_stage"][0] = {0, 2}; });
  expect("no device \"quick\"",
         [](Json& r) { r["pipeline_list"][0]["tmp_per_stage"][0][0][0][0][0] = "quick"; });
  expect("dp says 3", [](Json& r) { r["pipeline_list"][0]["dp"] = {2, 3}; });
  expect("2 devices and degree 1",
         [](Json& r) { r["pipeline_list"][0]["tmp_per_stage"][0][0][0][0][1] = 2; });
  expect("mbs", [](Json& r) { r.erase("mbs"); });
}

TEST(SailorInputs, ReadsThePublishedFiles) {
  const auto folder = shared_data("sailor");
  if (!folder) GTEST_SKIP() << "no sailor among the shared data (HETEROPERF_SHARED)";
  const SailorInputs inputs =
      read_sailor_inputs({.folder = *folder, .training = "training_config_gpt_neo27.json"});
  EXPECT_EQ(inputs.model.size(), 34);
  EXPECT_EQ(inputs.training.global_batch, 2048);
  EXPECT_EQ(inputs.devices.at("V100-16").memory, Bytes(17179869184));
  const auto trace =
      read_sailor_trace(std::filesystem::path(*folder) / "gpu_trace_heterogeneous_imbalanced.csv");
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[2].devices.at({"V100-16", "us-central1-a"}), 384);
}

}  // namespace
}  // namespace heteroperf

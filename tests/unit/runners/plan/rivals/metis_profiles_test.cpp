#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "metrics/base/strict_json.hpp"
#include "runners/plan/rivals/metis/metis.hpp"

namespace heteroperf {
namespace {

/// A folder of profiles of three layers on two classes; a test changes them before it reads.
struct ProfileFolder {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heteroperf_metis_" + std::to_string(getpid()));
  std::map<std::string, Json> files;

  ProfileFolder() {
    for (const auto& [name, scale] : std::map<std::string, double>{
             {"A100_tp1_bs1", 1}, {"A100_tp2_bs1", 0.6}, {"V100_tp1_bs4", 8}}) {
      files["DeviceType." + name + ".json"] = {
          {"model",
           {{"model_name", "GPT"},
            {"num_layers", 3},
            {"parameters", {{"parameters_per_layer_bytes", {100, 200, 300}}}}}},
          {"execution_time",
           {{"forward_backward_time_ms", 6.5 * scale},
            {"optimizer_time_ms", 2.0},
            {"batch_generator_time_ms", 0.5},
            {"layer_compute_total_ms", {1.0 * scale, 2.0 * scale, 3.0 * scale}}}},
          {"execution_memory", {{"layer_memory_total_mb", {10, 20.5, 30}}}}};
    }
  }
  ~ProfileFolder() { std::filesystem::remove_all(folder); }

  MetisProfiles read() const {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (const auto& [name, json] : files) std::ofstream(folder / name) << json.dump();
    return read_metis_profiles(folder);
  }
  Json& of(const std::string& name) { return files["DeviceType." + name + ".json"]; }
};

std::string problem_after(const std::function<void(ProfileFolder&)>& change) {
  ProfileFolder folder;
  change(folder);
  try {
    folder.read();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MetisImport, ReadsAFolder) {
  const MetisProfiles profiles = ProfileFolder().read();
  EXPECT_EQ(profiles.model, "GPT");
  EXPECT_EQ(profiles.layers(), 3);
  EXPECT_EQ(profiles.parameters.at(1)[2], Bytes(300));
  const MetisProfile& one = profiles.classes.at("V100").at({1, 4});
  EXPECT_DOUBLE_EQ(one.compute_s[1], 0.016);
  EXPECT_EQ(one.memory[1], Bytes(21495808));
  EXPECT_DOUBLE_EQ(one.forward_backward_s, 0.052);
  EXPECT_DOUBLE_EQ(one.optimizer_s, 0.002);
  EXPECT_DOUBLE_EQ(one.batch_generation_s, 0.0005);
}

TEST(MetisImport, BadFoldersAreNamed) {
  const std::pair<const char*, std::function<void(ProfileFolder&)>> cases[] = {
      {"is no name of a profile", [](ProfileFolder& f) { f.files["A100.json"] = Json::object(); }},
      {"has no profiles", [](ProfileFolder& f) { f.files.clear(); }},
      {"layer_compute_total_ms[1] is -2",
       [](ProfileFolder& f) {
         f.of("A100_tp2_bs1")["execution_time"]["layer_compute_total_ms"] = {1, -2, 3};
       }},
      {"not in one unit",
       [](ProfileFolder& f) {
         f.of("A100_tp2_bs1")["execution_time"]["forward_backward_time_ms"] = 0.0039;
       }},
      {"layer_compute_total_ms has 2 layers",
       [](ProfileFolder& f) {
         f.of("V100_tp1_bs4")["execution_time"]["layer_compute_total_ms"] = {20, 20};
       }},
      {"the profile is of the model \"OPT\"",
       [](ProfileFolder& f) { f.of("V100_tp1_bs4")["model"]["model_name"] = "OPT"; }},
      {"a folder is of one model",
       [](ProfileFolder& f) {
         f.of("V100_tp1_bs4")["model"]["parameters"]["parameters_per_layer_bytes"] = {1, 2, 3};
       }},
      {"execution_memory",
       [](ProfileFolder& f) { f.of("V100_tp1_bs4").erase("execution_memory"); }},
  };
  for (const auto& [words, change] : cases) {
    const std::string message = problem_after(change);
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
  EXPECT_THROW(read_metis_profiles("/nowhere/profiles"), UserError);
}

TEST(MetisImport, EveryBrokenFileIsReported) {
  const std::string message = problem_after([](ProfileFolder& f) {
    f.of("A100_tp1_bs1")["execution_time"]["optimizer_time_ms"] = -1;
    f.of("V100_tp1_bs4")["execution_time"]["layer_compute_total_ms"] = "none";
  });
  for (const char* words : {"A100_tp1_bs1.json", "V100_tp1_bs4.json"}) {
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
}

}  // namespace
}  // namespace heteroperf

#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "metrics/base/strict_json.hpp"
#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// Sailor's files for a model of four layers on two devices, "fast" and "slow", in a folder of
/// their own; a test changes them before it writes.
struct SmallSailor {
  Json training, profiles, layers, network, devices;
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heteroperf_sailor_" + std::to_string(getpid()));

  SmallSailor() {
    training = {{"model", "tiny"}, {"global_batch_size", 48}, {"sequence_length", 16}};
    for (const int tensor : {1, 2}) {
      for (int layer = 0; layer < 4; ++layer) {
        const double parameters = 1'000'000.0 / tensor, output = 2'000'000,
                     kept = 3'000'000.0 / tensor;
        layers["tiny"][std::to_string(tensor)][std::to_string(layer)] = {
            {"params_floats", parameters},
            {"act_output_floats", output},
            {"act_mem_floats", kept},
            {"params_bytes", 4 * parameters}};
      }
    }
    for (const char* device : {"fast", "slow"}) {
      const double slow = std::string(device) == "slow" ? 3 : 1;
      for (const int size : {1, 2, 4}) {
        for (const int tensor : {1, 2}) {
          for (int layer = 0; layer < 4; ++layer) {
            const double forward_s = 0.001 * slow * size * (layer + 1) / tensor;
            profiles["tiny"][device][std::to_string(size)][std::to_string(tensor)]
                    [std::to_string(layer)] = {forward_s, 2 * forward_s, 0.0005 * slow};
          }
        }
      }
      devices[device] = {{"gpus_per_node", 2}, {"mem_per_gpu", 4'000'000'000}};
      for (const char* other : {"fast", "slow"}) {
        const double speed = std::string(other) == device ? 8 : 2;
        for (const char* n : {"1", "2"}) {
          for (const char* m : {"1", "2"}) {
            network["here"][device][n]["here"][other][m] = {{0.0, 0.1, speed}, speed * 1e9};
          }
        }
      }
    }
    devices["zone"] = "here";
  }
  ~SmallSailor() { std::filesystem::remove_all(folder); }

  static void write(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file) << text;
  }
  SailorFiles write() const {
    std::filesystem::create_directories(folder);
    write(folder / "training_config_tiny.json", training.dump());
    write(folder / "profiles.json", profiles.dump());
    write(folder / "llm_info.json", layers.dump());
    write(folder / "multizone_bandwidths_het.json", network.dump());
    write(folder / "basic_cluster_config.json", devices.dump());
    return {.folder = folder, .training = {}};
  }
  SailorInputs read() const { return read_sailor_inputs(write()); }
};

}  // namespace heteroperf

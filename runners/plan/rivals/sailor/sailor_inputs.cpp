// Reads the files that describe a training to Sailor. Every file is one JSON document of nested
// objects whose keys are data: models, devices, sizes of micro-batches, tensor-parallel degrees,
// layers. A problem is noted with file and path and reading goes on, so that one run names them
// all.
//
// Numbers are checked against each other wherever two files say the same in different units: bytes
// must be four times the values, a profile must have as many layers as the model, memory must be in
// bytes. A file in another unit would otherwise give plans that look plausible and are wrong by a
// factor.
#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runners/plan/rivals/sailor/sailor_table_json.hpp"

namespace heteroperf {
namespace {

/// Bounds that real files stay far below, and hostile ones meet early.
constexpr int most_tensor = 64, most_devices_of_node = 64;
constexpr std::int64_t most_micro_batch = 4096;
constexpr std::int64_t largest_size = std::int64_t{1} << 40;
constexpr double bytes_per_value = 4;
constexpr std::uint64_t least_device_bytes = 100'000'000;

/// Finds the object of `model` in a file of many models. Notes a model that is not there and
/// returns null.
const Json* find_model(SailorTableFile& file, const std::string& model) {
  std::vector<std::string> known;
  const Json* named = nullptr;
  file.for_each(file.document(), "",
                [&](const std::string& key, const Json& value, const std::string&) {
                  known.push_back(key);
                  if (key == model) named = &value;
                });
  if (named == nullptr) {
    file.problems().add(fmt::format("there is no model \"{}\"", model),
                        fmt::format("these are there: {}", fmt::join(known, ", ")),
                        did_you_mean(model, known));
  }
  return named;
}

/// Reads the training configuration, the only document whose keys are fixed.
SailorTraining read_training(const std::filesystem::path& file) {
  SailorTableFile table(file);
  ObjectReader reader(table.document(), "", table.problems());
  SailorTraining training;
  reader.require({"model", "global_batch_size"});
  reader.read("model", training.model);
  reader.read("global_batch_size", training.global_batch, 1, largest_size);
  // The other files say how much a layer computes and holds.
  for (const char* unused :
       {"sequence_length", "hidden_size", "heads", "vocab_size", "type", "num_layers",
        "num_all_layers", "optimizer", "head_dim", "max_position_embeddings"}) {
    reader.value(unused);
  }
  reader.finish();
  table.problems().throw_if_any();
  return training;
}

/// Numbers of values; where the bytes stand beside them they must be four times as many.
SailorLayer read_layer(const Json& value, const std::string& path, DocumentProblems& problems) {
  ObjectReader reader(value, path, problems);
  SailorLayer layer;
  const auto read = [&](const std::string& name, double& values) {
    const std::string key = name + "_floats", bytes_key = name + "_bytes";
    double bytes = -1;
    reader.read(key.c_str(), values);
    reader.read(bytes_key.c_str(), bytes);
    if (!(values >= 0)) problems.add(fmt::format("{} is {}", reader.path_of(key.c_str()), values));
    if (bytes >= 0 && bytes != bytes_per_value * values) {
      problems.add(fmt::format("{} is {} and {} is {}", reader.path_of(key.c_str()), values,
                               bytes_key, bytes),
                   "a value has 4 bytes");
    }
  };
  reader.require({"params_floats", "act_output_floats", "act_mem_floats"});
  read("params", layer.parameters);
  read("act_output", layer.output);
  read("act_mem", layer.kept);
  return layer;
}

/// Reads a model's layers for every degree. Degree 1 must be there, and all have as many layers.
void read_layers(const std::filesystem::path& path, SailorModel& model) {
  SailorTableFile file(path);
  const Json* degrees = find_model(file, model.name);
  file.problems().throw_if_any();
  const auto each = [&](const std::string& key, const Json& value, const std::string& at) {
    const auto tensor = file.number(key, at, 1, most_tensor);
    if (!tensor) return;
    model.layers[static_cast<int>(*tensor)] =
        file.layers<SailorLayer>(value, at, [&](const Json& layer, const std::string& where) {
          return read_layer(layer, where, file.problems());
        });
  };
  file.for_each(*degrees, model.name, each);
  if (model.layers.count(1) == 0) {
    file.problems().add(fmt::format("{} has no tensor-parallel degree 1", model.name),
                        "messages and sums are counted by it");
  }
  for (const auto& [tensor, layers] : model.layers) {
    if (layers.size() == model.layers.begin()->second.size()) continue;
    file.problems().add(fmt::format("{}.{} has {} layers", model.name, tensor, layers.size()),
                        fmt::format("degree {} has {}", model.layers.begin()->first,
                                    model.layers.begin()->second.size()));
  }
  file.problems().throw_if_any();
}

/// Reads the profiles of one device: size → degree → layer → three times.
void read_profile(SailorTableFile& file, const std::string& device, const Json& sizes,
                  const std::string& path, SailorModel& model) {
  const auto read_timing = [&](const Json& value, const std::string& at) {
    const std::vector<double> times = read_numbers(value, at, 3, 0, file.problems());
    return SailorTiming{times[0], times[1], times[2]};
  };
  file.for_each(
      sizes, path, [&](const std::string& size, const Json& degrees, const std::string& at) {
        const auto micro_batch = file.number(size, at, 1, most_micro_batch);
        file.for_each(
            degrees, at,
            [&](const std::string& degree, const Json& layers, const std::string& where) {
              const auto tensor = file.number(degree, where, 1, most_tensor);
              auto list = file.layers<SailorTiming>(layers, where, read_timing);
              if (!micro_batch || !tensor) return;
              if (static_cast<int>(list.size()) != model.size()) {
                file.problems().add(
                    fmt::format("{} has {} layers", where, list.size()),
                    fmt::format("the model has {}: a profile of another one?", model.size()));
                return;
              }
              model.profiles[device][{*micro_batch, static_cast<int>(*tensor)}] = std::move(list);
            });
      });
}

/// Reads the profiles of every device that was measured with the model.
void read_profiles(const std::filesystem::path& path, SailorModel& model) {
  SailorTableFile file(path);
  if (const Json* devices = find_model(file, model.name)) {
    file.for_each(*devices, model.name,
                  [&](const std::string& device, const Json& sizes, const std::string& at) {
                    read_profile(file, device, sizes, at, model);
                  });
  }
  file.problems().throw_if_any();
}

/// Reads devices per node and memory; the key "zone" among them names the machines' zone.
void read_devices(const std::filesystem::path& path, SailorInputs& inputs) {
  SailorTableFile file(path);
  file.for_each(file.document(), "",
                [&](const std::string& key, const Json& value, const std::string& at) {
                  if (key == "zone") {
                    read_value(value, at, inputs.zone, file.problems());
                    return;
                  }
                  ObjectReader reader(value, at, file.problems());
                  SailorDevice device;
                  std::uint64_t bytes = least_device_bytes;
                  reader.require({"gpus_per_node", "mem_per_gpu"});
                  reader.read("gpus_per_node", device.per_node, 1, most_devices_of_node);
                  reader.read("mem_per_gpu", bytes);
                  reader.finish();
                  if (bytes < least_device_bytes) {
                    file.problems().add(fmt::format("{}.mem_per_gpu is {} bytes", at, bytes),
                                        "less than any accelerator has", "Is it in GB?");
                  }
                  device.memory = Bytes(bytes);
                  inputs.devices.emplace(key, device);
                });
  file.problems().throw_if_any();
}

/// Names of the folder's training configurations, in order.
std::vector<std::string> training_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("training_config") && name.ends_with(".json")) names.push_back(name);
  }
  if (error) {
    throw UserError(fmt::format("the folder {} cannot be read", folder.string()), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The folder's training configuration where it has exactly one; else the names that there are.
std::filesystem::path only_training(const std::filesystem::path& folder) {
  const std::vector<std::string> names = training_files(folder);
  if (names.size() == 1) return names.front();
  throw UserError(fmt::format("{} training configurations in {}", names.size(), folder.string()),
                  names.empty() ? "a file training_config*.json is expected"
                                : fmt::format("{}", fmt::join(names, ", ")),
                  "Name the one to use, or its model.");
}

}  // namespace

// Layers and profiles need the model that the training names, so that chain ends at its first bad
// file; the other files are read in any case.
SailorInputs read_sailor_inputs(const SailorFiles& files) {
  const auto in_folder = [&](const std::filesystem::path& file) {
    return file.has_parent_path() ? file : files.folder / file;
  };
  ProblemList problems;
  const auto attempt = [&](auto&& read) {
    try {
      read();
    } catch (const UserError& error) {
      for (const Problem& p : error.problems()) problems.add(p.problem, p.why, p.suggestion);
    }
  };
  SailorInputs inputs;
  attempt([&] {
    const auto name = files.training.empty() ? only_training(files.folder) : files.training;
    inputs.training = read_training(in_folder(name));
    inputs.model.name = inputs.training.model;
    read_layers(in_folder(files.layers), inputs.model);
    read_profiles(in_folder(files.profiles), inputs.model);
  });
  attempt([&] { read_devices(in_folder(files.devices), inputs); });
  attempt([&] { read_sailor_network(in_folder(files.network), inputs); });
  problems.throw_if_any();
  return inputs;
}

std::filesystem::path sailor_training_of(const std::filesystem::path& folder,
                                         const std::string& model) {
  std::vector<std::string> models;
  for (const std::string& name : training_files(folder)) {
    models.push_back(read_training(folder / name).model);
    if (models.back() == model) return name;
  }
  throw UserError(
      fmt::format("no training configuration of model \"{}\" in {}", model, folder.string()),
      fmt::format("these are there: {}", fmt::join(models, ", ")), did_you_mean(model, models));
}

}  // namespace heteroperf

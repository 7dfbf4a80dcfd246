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
#include <functional>
#include <optional>
#include <span>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

/// Bounds that real files stay far below, and hostile ones meet early.
constexpr int most_tensor = 64, most_devices_of_node = 64, most_micro_batch = 4096;
constexpr int most_layer = 100000;
constexpr std::int64_t largest_size = std::int64_t{1} << 40;
constexpr double bytes_per_value = 4;
constexpr std::uint64_t least_device_bytes = 100'000'000;
/// A bandwidth curve and the peak beside it say the same within this factor, measured at 1 GB.
constexpr double same_unit = 5;

/// The keys of an object: names, or whole numbers within bounds.
struct KeyRange {
  int least = 0, most = 0;
  bool names() const { return most == 0; }
};
constexpr KeyRange name_keys{}, degree_keys{1, most_tensor}, size_keys{1, most_micro_batch},
    layer_keys{0, most_layer}, count_keys{1, most_devices_of_node};

struct Key {
  std::string name;
  int number = 0;
};
using Keys = std::vector<Key>;

/// One file of nested objects whose keys are data, so that objects are walked instead of being
/// asked for known keys.
class TableFile {
 public:
  explicit TableFile(const std::filesystem::path& file)
      : problems(file.string()),
        document(parse_strict_json(read_sailor_text(file), file.string())) {}

  /// Calls `visit(keys, value, path)` with each value that is as many objects down as there are
  /// ranges. Entries whose key is out of its range are noted and passed over.
  using Visit = std::function<void(const Keys& keys, const Json& value, const std::string& path)>;
  void for_each(const Json& object, const std::string& path, std::span<const KeyRange> ranges,
                const Visit& visit, Keys keys = {}) {
    if (!object.is_object()) {
      note_wrong(object, path.empty() ? "the document" : path, "an object", problems);
      return;
    }
    keys.emplace_back();
    for (const auto& [key, value] : object.items()) {
      if (problems.full()) return;
      const std::string at = path.empty() ? key : path + "." + key;
      const auto number = ranges[0].names() ? 0 : parse_integer(key);
      if (!number || *number < ranges[0].least || *number > ranges[0].most) {
        problems.add(
            fmt::format("{} is named {}", at, shown(Json(key))),
            fmt::format("must be a whole number from {} to {}", ranges[0].least, ranges[0].most));
        continue;
      }
      keys.back() = {key, static_cast<int>(*number)};
      if (ranges.size() == 1) {
        visit(keys, value, at);
      } else {
        for_each(value, at, ranges.subspan(1), visit, keys);
      }
    }
  }

  /// The object of `model` in a file of many models. Throws where the model is not there.
  const Json& model(const std::string& model) {
    std::vector<std::string> known;
    const Json* object = nullptr;
    for_each(document, "", {&name_keys, 1}, [&](const Keys& keys, const Json& value, const auto&) {
      known.push_back(keys[0].name);
      if (known.back() == model) object = &value;
    });
    if (object == nullptr) {
      problems.add(fmt::format("there is no model \"{}\"", model),
                   fmt::format("these are there: {}", fmt::join(known, ", ")),
                   did_you_mean(model, known));
    }
    problems.throw_if_any();
    return *object;
  }

  /// Reads an object whose keys are the layers 0 … n−1, each once; a layer left out is noted.
  template <class Element, class Read>
  std::vector<Element> layers(const Json& object, const std::string& path, Read read) {
    std::map<int, Element> by_layer;
    for_each(object, path, {&layer_keys, 1},
             [&](const Keys& keys, const Json& value, const std::string& at) {
               by_layer.emplace(keys[0].number, read(value, at));
             });
    std::vector<Element> list;
    for (const auto& [layer, element] : by_layer) {
      if (layer != std::ssize(list)) {
        problems.add(fmt::format("{} has no layer {}", path, list.size()));
        break;
      }
      list.push_back(element);
    }
    if (object.is_object() && by_layer.empty()) problems.add(path + " has no layers");
    return list;
  }

  DocumentProblems problems;
  const Json document;
};

/// Reads a list of three finite numbers, none below `least`. Anything else is noted and gives
/// zeros.
template <class Three>
Three read_three(const Json& value, const std::string& path, double least,
                 DocumentProblems& problems) {
  if (!value.is_array() || value.size() != 3) {
    note_wrong(value, path, "a list of 3 numbers", problems);
    return {};
  }
  std::vector<double> numbers;
  read_value(value, path, numbers, problems);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= least) continue;
    problems.add(fmt::format("{} is {}", element_path(path, i), numbers[i]),
                 fmt::format("must be {} or more", least));
  }
  return {numbers[0], numbers[1], numbers[2]};
}

/// Reads the training configuration, the only document whose keys are fixed.
SailorTraining read_training(const std::filesystem::path& file) {
  TableFile table(file);
  ObjectReader reader(table.document, "", table.problems);
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
  table.problems.throw_if_any();
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
  TableFile file(path);
  const auto read = [&](const Json& value, const std::string& at) {
    return read_layer(value, at, file.problems);
  };
  file.for_each(file.model(model.name), model.name, {&degree_keys, 1},
                [&](const Keys& keys, const Json& value, const std::string& at) {
                  model.layers[keys[0].number] = file.layers<SailorLayer>(value, at, read);
                });
  if (!model.layers.contains(1)) {
    file.problems.add(fmt::format("{} has no tensor-parallel degree 1", model.name),
                      "messages and sums are counted by it");
  }
  for (const auto& [tensor, layers] : model.layers) {
    const auto& [first, expected] = *model.layers.begin();
    if (layers.size() == expected.size()) continue;
    file.problems.add(fmt::format("{}.{} has {} layers", model.name, tensor, layers.size()),
                      fmt::format("degree {} has {}", first, expected.size()));
  }
  file.problems.throw_if_any();
}

/// Reads the profiles of every device that was measured with the model.
void read_profiles(const std::filesystem::path& path, SailorModel& model) {
  TableFile file(path);
  constexpr KeyRange levels[] = {name_keys, size_keys, degree_keys};
  const auto read = [&](const Json& value, const std::string& at) {
    return read_three<SailorTiming>(value, at, 0, file.problems);
  };
  file.for_each(
      file.model(model.name), model.name, levels,
      [&](const Keys& keys, const Json& value, const std::string& at) {
        auto list = file.layers<SailorTiming>(value, at, read);
        if (std::ssize(list) == model.size()) {
          model.profiles[keys[0].name][{keys[1].number, keys[2].number}] = std::move(list);
          return;
        }
        file.problems.add(fmt::format("{} has {} layers", at, list.size()),
                          fmt::format("the model has {}: a profile of another one?", model.size()));
      });
  file.problems.throw_if_any();
}

/// Reads devices per node and memory; the key "zone" among them names the machines' zone.
void read_devices(const std::filesystem::path& path, SailorInputs& inputs) {
  TableFile file(path);
  const auto read = [&](const Keys& keys, const Json& value, const std::string& at) {
    if (keys[0].name == "zone") {
      read_value(value, at, inputs.zone, file.problems);
      return;
    }
    ObjectReader reader(value, at, file.problems);
    SailorDevice device;
    std::uint64_t bytes = least_device_bytes;
    reader.require({"gpus_per_node", "mem_per_gpu"});
    reader.read("gpus_per_node", device.per_node, 1, most_devices_of_node);
    reader.read("mem_per_gpu", bytes);
    reader.finish();
    if (bytes < least_device_bytes) {
      file.problems.add(fmt::format("{}.mem_per_gpu is {} bytes", at, bytes),
                        "less than any accelerator has", "Is it in GB?");
    }
    device.memory = Bytes(bytes);
    inputs.devices.emplace(keys[0].name, device);
  };
  file.for_each(file.document, "", {&name_keys, 1}, read);
  file.problems.throw_if_any();
}

/// Reads [[a, b, c], peak]: the curve is in GB/s and the peak in bytes per second.
SailorCurve read_curve(const Json& value, const std::string& path, DocumentProblems& problems) {
  if (!value.is_array() || value.empty() || value.size() > 2) {
    note_wrong(value, path, "[[a, b, c], peak]", problems);
    return {};
  }
  const auto curve = read_three<SailorCurve>(value[0], path + "[0]", -1e300, problems);
  double peak = 0;
  if (value.size() < 2 || !read_value(value[1], path + "[1]", peak, problems)) return curve;
  const double rate = curve.bytes_per_second(1e9);
  if (!(rate > 0) || !(peak > 0) || rate > same_unit * peak || peak > same_unit * rate) {
    problems.add(fmt::format("{} gives {:.3g} bytes/s at 1 GB and a peak of {:.3g} bytes/s", path,
                             rate, peak),
                 "the curve is in GB/s, the peak in bytes/s");
  }
  return curve;
}

/// Reads the bandwidths between nodes. A link is described for each number of devices of a node
/// that send or receive together. Links have a direction; some pairs have one only, and stay so.
void read_network(const std::filesystem::path& path, SailorInputs& inputs) {
  TableFile file(path);
  constexpr KeyRange levels[] = {name_keys, name_keys, count_keys,
                                 name_keys, name_keys, count_keys};
  file.for_each(
      file.document, "", levels, [&](const Keys& keys, const Json& value, const std::string& at) {
        inputs.network.emplace(std::pair(SailorLinkEnd{keys[0].name, keys[1].name, keys[2].number},
                                         SailorLinkEnd{keys[3].name, keys[4].name, keys[5].number}),
                               read_curve(value, at, file.problems));
      });
  file.problems.throw_if_any();
}

/// The training configuration that is named, or the one of the model, or the only one.
std::filesystem::path training_of(const SailorFiles& files) {
  if (!files.training.empty()) return files.training;
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(files.folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("training_config") && name.ends_with(".json")) names.push_back(name);
  }
  const std::string folder = files.folder.string();
  if (error) throw UserError(fmt::format("the folder {} cannot be read", folder), error.message());
  std::ranges::sort(names);
  if (files.model.empty() && names.size() == 1) return names.front();
  if (files.model.empty()) {
    throw UserError(fmt::format("{} training configurations in {}", names.size(), folder),
                    names.empty() ? "a file training_config*.json is expected"
                                  : fmt::format("{}", fmt::join(names, ", ")),
                    "Name the one to use, or its model.");
  }
  std::vector<std::string> models;
  for (const std::string& name : names) {
    models.push_back(read_training(files.folder / name).model);
    if (models.back() == files.model) return name;
  }
  throw UserError(
      fmt::format("no training configuration of model \"{}\" in {}", files.model, folder),
      fmt::format("these are there: {}", fmt::join(models, ", ")),
      did_you_mean(files.model, models));
}

}  // namespace

std::string read_sailor_text(const std::filesystem::path& file) {
  std::string text = read_text_file(file);
  require_stated_format(text, file.string(), "file of Sailor's");
  return text;
}

// Layers and profiles need the model that the training names, so that chain ends at its first bad
// file; the other files are read in any case.
SailorInputs read_sailor_inputs(const SailorFiles& files) {
  const std::filesystem::path& folder = files.folder;
  SailorInputs inputs;
  ProblemList problems;
  collect_problems(problems, [&] {
    inputs.training = read_training(folder / training_of(files));
    inputs.model.name = inputs.training.model;
    read_layers(folder / "llm_info.json", inputs.model);
    read_profiles(folder / "profiles.json", inputs.model);
  });
  collect_problems(problems, [&] { read_devices(folder / "basic_cluster_config.json", inputs); });
  collect_problems(problems,
                   [&] { read_network(folder / "multizone_bandwidths_het.json", inputs); });
  problems.throw_if_any();
  return inputs;
}

}  // namespace heteroperf

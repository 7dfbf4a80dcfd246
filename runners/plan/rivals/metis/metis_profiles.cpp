// Reads a folder of Metis' profiles, one file for each (device class, degree, batch size).
//
// The file's name says what was measured, its content the times and the memory of every layer. All
// files of a folder must be of one model: the same number of layers and, for each degree, the same
// parameters. Times are milliseconds and memory mebibytes; where the layers' times and the whole
// differ by a factor of ten, one of the two is in another unit and the file is refused.
#include "runners/plan/rivals/metis/metis_profiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <regex>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace {

constexpr double milliseconds = 1e-3, mebibyte = 1048576;
/// Layers and whole are measured apart, and differ by little where the unit is the same.
constexpr double most_ratio = 10;
constexpr double most_amount = 1e15;

/// The parts of a file name, DeviceType.NAME_tpT_bsB.json.
struct FileName {
  std::string device_class;
  int tensor = 1;
  std::int64_t batch = 1;
};

std::optional<FileName> parse_name(const std::string& name) {
  static const std::regex pattern(R"(DeviceType\.(.+)_tp([0-9]{1,4})_bs([0-9]{1,6})\.json)");
  std::smatch match;
  if (!std::regex_match(name, match, pattern)) return std::nullopt;
  const FileName parsed{match[1], std::stoi(match[2]), std::stoll(match[3])};
  if (parsed.tensor < 1 || parsed.batch < 1) return std::nullopt;
  return parsed;
}

/// Reads file after file into one set of profiles. The first file says the model and its layers;
/// the others must agree.
class ProfileReader {
 public:
  explicit ProfileReader(MetisProfiles& profiles) : profiles_(profiles) {}

  void read(const std::filesystem::path& file, const FileName& name) {
    DocumentProblems problems(file.string());
    const Json document = parse_strict_json(read_text_file(file), file.string());
    MetisProfile profile;
    // Files have more keys than are needed: hosts, versions, warm-up.
    ObjectReader reader(document, "", problems);
    reader.require({"model", "execution_time", "execution_memory"});
    if (const Json* model = reader.value("model")) read_model(*model, name.tensor, problems);
    if (const Json* time = reader.value("execution_time")) read_times(*time, profile, problems);
    if (const Json* memory = reader.value("execution_memory")) {
      read_memory(*memory, profile, problems);
    }
    problems.throw_if_any();
    check_layers(profile, problems);
    problems.throw_if_any();
    profiles_.classes[name.device_class][{name.tensor, name.batch}] = std::move(profile);
  }

 private:
  /// A number from 0 to a bound that no time or size reaches.
  static double number(ObjectReader& reader, const char* key, DocumentProblems& problems) {
    double value = 0;
    reader.read(key, value);
    if (value < 0 || value > most_amount) {
      problems.add(fmt::format("{} is {}", reader.path_of(key), value), "must be 0 or more");
    }
    return value;
  }

  /// A list of such numbers.
  static std::vector<double> list(ObjectReader& reader, const char* key,
                                  DocumentProblems& problems) {
    std::vector<double> values;
    reader.read(key, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= 0 && values[i] <= most_amount) continue;
      problems.add(fmt::format("{} is {}", element_path(reader.path_of(key), i), values[i]),
                   "must be 0 or more");
    }
    return values;
  }

  void read_model(const Json& value, int tensor, DocumentProblems& problems) {
    ObjectReader reader(value, "model", problems);
    std::string name;
    reader.read("model_name", name);
    reader.read_object("parameters", [&](ObjectReader& inner) {
      inner.require({"parameters_per_layer_bytes"});
      const std::vector<double> bytes = list(inner, "parameters_per_layer_bytes", problems);
      inner.value("total_parameters_bytes");
      take_parameters(bytes, tensor, problems);
    });
    if (profiles_.model.empty()) profiles_.model = name;
    if (name == profiles_.model) return;
    problems.add(fmt::format("the profile is of the model \"{}\"", name),
                 fmt::format("others are of \"{}\"", profiles_.model));
  }

  /// Parameters depend on the degree alone, and their number on nothing.
  void take_parameters(const std::vector<double>& bytes, int tensor, DocumentProblems& problems) {
    std::vector<Bytes> parameters;
    for (const double layer : bytes) {
      parameters.emplace_back(static_cast<std::uint64_t>(std::clamp(layer, 0.0, most_amount)));
    }
    // The first file of a degree says the parameters, the others must agree.
    const auto [known, is_new] = profiles_.parameters.emplace(tensor, parameters);
    const bool same_layers = parameters.size() == profiles_.parameters.begin()->second.size();
    if (same_layers && (is_new || known->second == parameters)) return;
    problems.add("model.parameters.parameters_per_layer_bytes are not those of the other files",
                 "a folder is of one model");
  }

  /// Times are in milliseconds. The layers' sum and the whole differ little in one unit.
  static void read_times(const Json& value, MetisProfile& profile, DocumentProblems& problems) {
    ObjectReader reader(value, "execution_time", problems);
    reader.require({"layer_compute_total_ms", "forward_backward_time_ms"});
    profile.compute_s = list(reader, "layer_compute_total_ms", problems);
    for (double& layer : profile.compute_s) layer *= milliseconds;
    profile.forward_backward_s =
        number(reader, "forward_backward_time_ms", problems) * milliseconds;
    profile.optimizer_s = number(reader, "optimizer_time_ms", problems) * milliseconds;
    profile.batch_generation_s = number(reader, "batch_generator_time_ms", problems) * milliseconds;
    const double sum = std::accumulate(profile.compute_s.begin(), profile.compute_s.end(), 0.0);
    const double whole = profile.forward_backward_s;
    if (whole > 0 && sum > 0 && (sum > most_ratio * whole || whole > most_ratio * sum)) {
      problems.add(fmt::format("execution_time: layers take {:g} ms together and the whole {:g} ms",
                               sum / milliseconds, whole / milliseconds),
                   "these are not in one unit");
    }
  }

  /// Memory is in mebibytes.
  static void read_memory(const Json& value, MetisProfile& profile, DocumentProblems& problems) {
    ObjectReader reader(value, "execution_memory", problems);
    reader.require({"layer_memory_total_mb"});
    for (const double layer : list(reader, "layer_memory_total_mb", problems)) {
      profile.memory.emplace_back(
          static_cast<std::uint64_t>(std::clamp(layer * mebibyte, 0.0, most_amount)));
    }
  }

  /// Every list has an entry per layer.
  void check_layers(const MetisProfile& profile, DocumentProblems& problems) {
    const auto layers = static_cast<std::size_t>(profiles_.layers());
    const auto check = [&](const char* what, std::size_t count) {
      if (count == layers) return;
      problems.add(fmt::format("{} has {} layers", what, count),
                   fmt::format("the model has {}", layers));
    };
    check("execution_time.layer_compute_total_ms", profile.compute_s.size());
    check("execution_memory.layer_memory_total_mb", profile.memory.size());
  }

  MetisProfiles& profiles_;
};

}  // namespace

int MetisProfiles::layers() const {
  return parameters.empty() ? 0 : static_cast<int>(parameters.begin()->second.size());
}

MetisProfiles read_metis_profiles(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (error) {
    throw UserError(fmt::format("the folder {} cannot be read", folder.string()), error.message());
  }
  std::sort(files.begin(), files.end());
  ProblemList problems;
  MetisProfiles profiles;
  ProfileReader reader(profiles);
  for (const std::filesystem::path& file : files) {
    const auto name = parse_name(file.filename().string());
    if (!name) {
      problems.add(fmt::format("{} is no name of a profile", file.string()),
                   "as in DeviceType.A100_tp2_bs4.json");
      continue;
    }
    try {
      reader.read(file, *name);
    } catch (const UserError& wrong) {
      for (const Problem& p : wrong.problems()) problems.add(p.problem, p.why, p.suggestion);
    }
  }
  if (files.empty()) {
    problems.add(fmt::format("{} has no profiles", folder.string()),
                 "files DeviceType.NAME_tpT_bsB.json are expected");
  }
  problems.throw_if_any();
  return profiles;
}

}  // namespace heteroperf

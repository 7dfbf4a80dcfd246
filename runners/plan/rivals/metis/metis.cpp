// Profiles of Metis': a folder of them is read, and the rates of device classes
// are fitted to it.
//
// A file is of one (device class, degree, batch size). Its name says what was
// measured, its content the times and the memory of every layer. All files of a
// folder must be of one model: the same number of layers and, for each degree,
// the same parameters. Times are milliseconds and memory mebibytes; where the
// layers' times and the whole differ by a factor of ten, one of the two is in
// another unit and the file is refused.
//
// Every rate of a class is multiplied by predicted / profiled seconds of a pass
// over the whole model, so that the planner's own times add up to the measured
// ones. What remains between the two by batch size is the fit's error.
#include "runners/plan/rivals/metis/metis.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <regex>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_times.hpp"

namespace heteroperf {
namespace {

constexpr double milliseconds = 1e-3, mebibyte = 1048576;
/// Layers and whole are measured apart, and differ by little where the unit is
/// the same.
constexpr double most_ratio = 10;
constexpr double most_amount = 1e15;
/// Models are the same where their parameters differ by less: vocabularies may
/// be padded, biases left out.
constexpr double same_parameters = 0.05;
constexpr double most_factor = 100;

/// The parts of a file name, DeviceType.NAME_tpT_bsB.json.
struct FileName {
  std::string device_class;
  int tensor = 1;
  std::int64_t batch = 1;
};

std::optional<FileName> parse_name(const std::string &name) {
  static const std::regex pattern(R"(DeviceType\.(.+)_tp([0-9]{1,4})_bs([0-9]{1,6})\.json)");
  std::smatch match;
  if (!std::regex_match(name, match, pattern)) return std::nullopt;
  const FileName parsed{match[1], std::stoi(match[2]), std::stoll(match[3])};
  if (parsed.tensor < 1 || parsed.batch < 1) return std::nullopt;
  return parsed;
}

/// Reads one file into a folder's profiles. The first file says the model and
/// its layers; the others must agree.
class ProfileReader {
 public:
  ProfileReader(const std::filesystem::path &file, MetisProfiles &profiles)
      : profiles_(profiles),
        problems_(file.string()),
        document_(parse_strict_json(read_text_file(file), file.string())) {}

  void read(const FileName &name) {
    MetisProfile profile;
    // Files have more keys than are needed: hosts, versions, warm-up.
    ObjectReader reader(document_, "", problems_);
    reader.require({"model", "execution_time", "execution_memory"});
    if (const Json *model = reader.value("model")) read_model(*model, name.tensor);
    if (const Json *time = reader.value("execution_time")) read_times(*time, profile);
    if (const Json *memory = reader.value("execution_memory")) {
      ObjectReader sizes(*memory, "execution_memory", problems_);
      sizes.require({"layer_memory_total_mb"});
      profile.memory = bytes_of(list(sizes, "layer_memory_total_mb"), mebibyte);
    }
    problems_.throw_if_any();
    check_layers("execution_time.layer_compute_total_ms", profile.compute_s.size());
    check_layers("execution_memory.layer_memory_total_mb", profile.memory.size());
    problems_.throw_if_any();
    profiles_.classes[name.device_class][{name.tensor, name.batch}] = std::move(profile);
  }

 private:
  /// No time or size reaches the bound.
  double checked(double value, const std::string &path) {
    if (value < 0 || value > most_amount) {
      problems_.add(fmt::format("{} is {}", path, value), "must be 0 or more");
    }
    return value;
  }
  double seconds(ObjectReader &reader, const char *key) {
    double value = 0;
    reader.read(key, value);
    return checked(value, reader.path_of(key)) * milliseconds;
  }
  std::vector<double> list(ObjectReader &reader, const char *key) {
    std::vector<double> values;
    reader.read(key, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      checked(values[i], element_path(reader.path_of(key), i));
    }
    return values;
  }
  static std::vector<Bytes> bytes_of(const std::vector<double> &values, double unit) {
    std::vector<Bytes> result;
    for (const double value : values) {
      result.emplace_back(static_cast<std::uint64_t>(std::clamp(value * unit, 0.0, most_amount)));
    }
    return result;
  }

  void read_model(const Json &value, int tensor) {
    ObjectReader reader(value, "model", problems_);
    std::string name;
    reader.read("model_name", name);
    reader.read_object("parameters", [&](ObjectReader &inner) {
      inner.require({"parameters_per_layer_bytes"});
      take_parameters(bytes_of(list(inner, "parameters_per_layer_bytes"), 1), tensor);
      inner.value("total_parameters_bytes");
    });
    if (profiles_.model.empty()) profiles_.model = name;
    if (name == profiles_.model) return;
    problems_.add(fmt::format("the profile is of the model \"{}\"", name),
                  fmt::format("others are of \"{}\"", profiles_.model));
  }

  /// Parameters depend on the degree alone, and their number on nothing. The
  /// first file of a degree says them.
  void take_parameters(const std::vector<Bytes> &parameters, int tensor) {
    const auto [known, is_new] = profiles_.parameters.emplace(tensor, parameters);
    const bool same_layers = parameters.size() == profiles_.parameters.begin()->second.size();
    if (same_layers && (is_new || known->second == parameters)) return;
    problems_.add(
        "model.parameters.parameters_per_layer_bytes are not those "
        "of the other files",
        "a folder is of one model");
  }

  /// The layers' sum and the whole differ little in one unit.
  void read_times(const Json &value, MetisProfile &profile) {
    ObjectReader reader(value, "execution_time", problems_);
    reader.require({"layer_compute_total_ms", "forward_backward_time_ms"});
    profile.compute_s = list(reader, "layer_compute_total_ms");
    for (double &layer : profile.compute_s) layer *= milliseconds;
    profile.forward_backward_s = seconds(reader, "forward_backward_time_ms");
    profile.optimizer_s = seconds(reader, "optimizer_time_ms");
    profile.batch_generation_s = seconds(reader, "batch_generator_time_ms");
    const double sum = std::accumulate(profile.compute_s.begin(), profile.compute_s.end(), 0.0);
    const double whole = profile.forward_backward_s;
    if (whole > 0 && sum > 0 && (sum > most_ratio * whole || whole > most_ratio * sum)) {
      problems_.add(fmt::format("execution_time: layers take {:g} ms together "
                                "and the whole {:g} ms",
                                sum / milliseconds, whole / milliseconds),
                    "these are not in one unit");
    }
  }

  /// Every list has an entry per layer.
  void check_layers(const char *what, std::size_t count) {
    if (count == static_cast<std::size_t>(profiles_.layers())) return;
    problems_.add(fmt::format("{} has {} layers", what, count),
                  fmt::format("the model has {}", profiles_.layers()));
  }

  MetisProfiles &profiles_;
  DocumentProblems problems_;
  const Json document_;
};

/// Refuses the profile of another model, by its parameters: of single or of
/// half precision.
void check_parameters(const MetisProfiles &profiles, const ModelGraph &graph) {
  const auto whole = profiles.parameters.find(1);
  if (whole == profiles.parameters.end()) return;
  double bytes = 0;
  for (const Bytes &layer : whole->second) bytes += static_cast<double>(layer.value());
  const auto parameters = static_cast<double>(graph.parameter_count());
  for (const double width : {2.0, 4.0}) {
    if (std::abs(bytes / (parameters * width) - 1) <= same_parameters) return;
  }
  throw UserError(
      fmt::format("the profile of {} is of {:.4g} bytes of parameters",
                  profiles.model.empty() ? "a model without a name" : profiles.model, bytes),
      fmt::format("the workload has {:.4g} parameters of 2 or 4 bytes", parameters),
      "Plan for the profiled model: --model, --size and the workload's keys "
      "choose it.");
}

/// Profiled seconds of the whole model by batch size, of degree 1; entries of
/// larger degrees hold their ranks' sums.
std::map<std::int64_t, double> profiled_passes(const MetisProfiles &profiles,
                                               const std::string &device_class) {
  std::map<std::int64_t, double> passes;
  const auto profiled = profiles.classes.find(device_class);
  if (profiled == profiles.classes.end()) return passes;
  for (const auto &[key, profile] : profiled->second) {
    const double seconds = std::accumulate(profile.compute_s.begin(), profile.compute_s.end(), 0.0);
    if (key.first == 1 && seconds > 0) passes[key.second] = seconds;
  }
  return passes;
}

/// Any rank of the class, for all of them are alike.
std::optional<RankId> any_of_class(const Cluster &cluster, const std::string &name) {
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    if (cluster.ranks[r].device_class == name) return RankId(static_cast<std::int32_t>(r));
  }
  return std::nullopt;
}

/// Predicts the seconds of forward and backward of `batch` samples on one
/// device.
double pass_s(const ModelGraph &graph, const Cluster &device, Precision precision,
              std::int64_t batch) {
  EvenPlanRequest request;
  request.micro_batch = batch;
  const Plan plan = even_plan(graph, request);
  const StageTimes times = stage_times({graph, precision}, cut_graph(graph, plan), plan, device);
  const StageTimes::Compute &pass = times.compute.front().front();
  return pass.forward_s + pass.input_gradient_s + pass.weight_gradient_s;
}

}  // namespace

int MetisProfiles::layers() const {
  return parameters.empty() ? 0 : static_cast<int>(parameters.begin()->second.size());
}

MetisProfiles read_metis_profiles(const std::filesystem::path &folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (error) {
    throw UserError(fmt::format("the folder {} cannot be read", folder.string()), error.message());
  }
  std::ranges::sort(files);
  ProblemList problems;
  MetisProfiles profiles;
  for (const std::filesystem::path &file : files) {
    const auto name = parse_name(file.filename().string());
    if (!name) {
      problems.add(fmt::format("{} is no name of a profile", file.string()),
                   "as in DeviceType.A100_tp2_bs4.json");
      continue;
    }
    collect_problems(problems, [&] { ProfileReader(file, profiles).read(*name); });
  }
  if (files.empty()) {
    problems.add(fmt::format("{} has no profiles", folder.string()),
                 "files DeviceType.NAME_tpT_bsB.json are expected");
  }
  problems.throw_if_any();
  return profiles;
}

// Every class of the cluster that the profile has is fitted by itself: one
// factor for all of its rates, from the sum over the batch sizes.
ProfiledRates metis_rates(const MetisProfiles &profiles, const ModelGraph &graph,
                          const Cluster &cluster, Precision precision) {
  check_parameters(profiles, graph);
  ProfiledRates result;
  const EfficiencyMatrix known = matrix_of(cluster);
  const std::string source = "Metis' profile of " + profiles.model;
  std::vector<std::string> here;
  for (const DeviceClass &device_class : cluster.classes) {
    here.push_back(device_class.name);
    const auto passes = profiled_passes(profiles, device_class.name);
    const std::optional<RankId> rank = any_of_class(cluster, device_class.name);
    if (passes.empty() || !rank) continue;
    const Cluster device = part_of_cluster(cluster, {*rank});
    ProfiledRates::ClassFit &fit = result.classes.emplace_back();
    fit.device_class = device_class.name;
    fit.entries = static_cast<int>(passes.size());
    std::vector<double> predicted_s;
    for (const auto &[batch, profiled_s] : passes) {
      predicted_s.push_back(pass_s(graph, device, precision, batch));
      fit.predicted_s += predicted_s.back();
      fit.profiled_s += profiled_s;
    }
    // Above 1 the device is faster than its description says.
    const double factor = fit.predicted_s / fit.profiled_s;
    if (!(factor >= 1 / most_factor && factor <= most_factor)) {
      throw UserError(
          fmt::format("{} takes {:.3g} s in the profile", device_class.name, fit.profiled_s),
          fmt::format("{:.3g} s are predicted from its rates", fit.predicted_s),
          "Is it the same device, precision and sequence length?");
    }
    for (std::size_t e = 0; const auto &[batch, profiled_s] : passes) {
      fit.error +=
          std::abs(predicted_s[e++] / factor / profiled_s - 1) / static_cast<double>(passes.size());
    }
    for (const auto &[key, rate] : known.rates()) {
      if (key.device_class != device_class.name || key.precision != to_string(precision)) continue;
      result.matrix.add(key,
                        {OpsPerSecond(rate.rate.value() * factor), {Provenance::file, source}});
    }
  }
  if (result.classes.empty()) {
    std::vector<std::string> there;
    for (const auto &[name, entries] : profiles.classes) there.push_back(name);
    throw UserError(
        fmt::format("the profile has nothing of this cluster: it is of {}", fmt::join(there, ", ")),
        fmt::format("the cluster has {}", fmt::join(here, ", ")),
        "Name the classes alike; entries of degree 1 are needed.");
  }
  return result;
}

}  // namespace heteroperf

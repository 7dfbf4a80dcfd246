#include "runners/plan/sailor/sailor_plan_json.hpp"

#include <fmt/format.h>

#include <cmath>

#include "runners/plan/sailor/sailor_table_json.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_samples = std::int64_t{1} << 40;

class RunReader {
 public:
  RunReader(const std::filesystem::path& file, const SailorTables& tables)
      : tables_(tables), file_(file) {}

  SailorRun read() {
    ObjectReader reader(file_.document(), "", problems());
    reader.require({"pipeline_list", "mbs"});
    reader.read("mbs", run_.plan.micro_batch, 1, most_samples);
    reader.read("gbs", run_.global_batch, 1, most_samples);
    reader.read("zone", zone_);
    const Json* pipelines = reader.list("pipeline_list");
    if (pipelines != nullptr && pipelines->size() == 1) {
      read_pipeline(pipelines->front(), "pipeline_list[0]");
    } else if (pipelines != nullptr) {
      problems().add(fmt::format("pipeline_list has {} pipelines", pipelines->size()),
                     "plans of one are read");
    }
    read_measured(reader);
    problems().throw_if_any();
    return std::move(run_);
  }

 private:
  DocumentProblems& problems() { return file_.problems(); }

  void read_measured(ObjectReader& reader) {
    const auto seconds = [&](const char* key, std::optional<double>& out) {
      double value = 0;
      if (!reader.has(key)) return;
      reader.read(key, value);
      if (!(value > 0)) problems().add(fmt::format("{} is {} s", key, value), "must be positive");
      out = value;
    };
    seconds("real", run_.step_time_s);
    seconds("red_grads", run_.reduction_s);
    std::uint64_t bytes = 0;
    reader.read("max_mem", bytes);
    if (bytes > 0) run_.peak_memory = Bytes(bytes);
  }

  void read_pipeline(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems());
    reader.require({"layers_per_stage", "tmp_per_stage"});
    reader.for_each("layers_per_stage",
                    [&](const Json& layers, const std::string& at) { read_layers(layers, at); });
    std::size_t stage = 0;
    reader.for_each("tmp_per_stage", [&](const Json& replicas, const std::string& at) {
      if (stage < run_.plan.stages.size()) read_replicas(replicas, at, run_.plan.stages[stage]);
      ++stage;
    });
    std::vector<int> widths;
    reader.read("dp", widths, std::int64_t{1}, most_samples >> 16);
    for (std::size_t s = 0; s < run_.plan.stages.size(); ++s) {
      const int width = run_.plan.stages[s].width();
      if (s < widths.size() && widths[s] == width) continue;
      problems().add(fmt::format("{}.tmp_per_stage[{}] has {} replicas", path, s, width),
                     s < widths.size() ? fmt::format("dp says {}", widths[s]) : "dp says nothing");
    }
  }

  void read_layers(const Json& value, const std::string& path) {
    std::vector<int> layers;
    read_value(value, path, layers, problems(), std::int64_t{0}, std::int64_t{1} << 20);
    SailorStage& stage = run_.plan.stages.emplace_back();
    stage.begin = layers.empty() ? 0 : layers.front();
    stage.end = stage.begin + static_cast<int>(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const int expected = stage.begin + static_cast<int>(i);
      if (layers[i] == expected) continue;
      // Published files have such slips; first layer, last layer and count agree all the same.
      if (layers.back() == stage.end - 1) {
        run_.notes.push_back(fmt::format("{} has {} for {}", path, layers[i], expected));
        continue;
      }
      problems().add(path + " skips a layer",
                     fmt::format("{} comes after {}", layers[i], expected - 1));
      return;
    }
  }

  /// [[[[device, how many, zone]], degree], …], one per replica.
  void read_replicas(const Json& value, const std::string& path, SailorStage& stage) {
    if (!value.is_array()) {
      note_wrong(value, path, "a list of replicas", problems());
      return;
    }
    for (std::size_t i = 0; i < value.size() && !problems().full(); ++i) {
      read_replica(value[i], element_path(path, i), stage);
    }
  }

  void read_replica(const Json& value, const std::string& path, SailorStage& stage) {
    const bool pair = value.is_array() && value.size() == 2 && value[0].is_array();
    if (!pair || value[0].size() != 1 || !value[0][0].is_array() || value[0][0].size() != 3) {
      note_wrong(value, path, "[[[device, how many, zone]], degree]", problems());
      return;
    }
    const Json& devices = value[0][0];
    std::string device, zone = zone_;
    int count = 0;
    SailorReplicas one;
    const bool fits = read_value(devices[0], path + "[0][0][0]", device, problems()) &&
                      read_value(devices[1], path + "[0][0][1]", count, problems(), 1, 1 << 20) &&
                      read_value(devices[2], path + "[0][0][2]", zone, problems()) &&
                      read_value(value[1], path + "[1]", one.tensor, problems(), 1, 1 << 10);
    if (!fits) return;
    if (count != one.tensor) {
      problems().add(fmt::format("{} has {} devices and degree {}", path, count, one.tensor));
    }
    try {
      one.place = tables_.place(device, zone);
    } catch (const UserError& error) {
      problems().add(fmt::format("{}: {}", path, error.problems()[0].problem),
                     error.problems()[0].why, error.problems()[0].suggestion);
      return;
    }
    const bool same = !stage.replicas.empty() && stage.replicas.back().place == one.place &&
                      stage.replicas.back().tensor == one.tensor;
    if (same) {
      ++stage.replicas.back().count;
    } else {
      stage.replicas.push_back(one);
    }
  }

  const SailorTables& tables_;
  SailorTableFile file_;
  SailorRun run_;
  std::string zone_;
};

}  // namespace

SailorRun read_sailor_run(const std::filesystem::path& file, const SailorTables& tables) {
  return RunReader(file, tables).read();
}

}  // namespace heteroperf

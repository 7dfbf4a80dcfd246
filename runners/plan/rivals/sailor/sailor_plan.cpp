// Sailor's plans: what they are made of, how they print, and how its plan files are read. Such a
// file names layers and replicas of every stage one by one; here neighbours that are alike become a
// group, so that a plan of thousands of devices stays a few numbers.
#include "runners/plan/rivals/sailor/sailor_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "metrics/base/strict_json.hpp"

namespace heteroperf {

int SailorStage::width() const {
  int sum = 0;
  for (const SailorReplicas& group : replicas) sum += group.count;
  return sum;
}

void SailorStage::append(const SailorReplicas& group) {
  if (!replicas.empty() && replicas.back().seat == group.seat) {
    replicas.back().count += group.count;
  } else {
    replicas.push_back(group);
  }
}

std::int64_t SailorShare::samples() const {
  return std::accumulate(tails.begin(), tails.end(), micro_batch * micro_batches);
}

SailorDevices SailorPlan::devices(std::size_t places) const {
  SailorDevices taken(places, 0);
  for (const SailorStage& stage : stages) {
    for (const SailorReplicas& group : stage.replicas) {
      taken[group.seat.place] += group.count * group.seat.tensor;
    }
  }
  return taken;
}

namespace {

constexpr std::int64_t most_samples = std::int64_t{1} << 40;

/// Reads Sailor's plan file: a list of pipelines, of which only one may be there.
class PlanReader {
 public:
  PlanReader(const std::string& file, const SailorTables& tables)
      : tables_(tables),
        document_(parse_strict_json(read_sailor_text(file), file)),
        problems_(file) {}

  SailorPlan read() {
    ObjectReader reader(document_, "", problems_);
    reader.require({"pipeline_list", "mbs"});
    reader.read("mbs", plan_.micro_batch, 1, most_samples);
    reader.read("zone", zone_);
    const Json* pipelines = reader.list("pipeline_list");
    if (pipelines != nullptr && pipelines->size() == 1) {
      read_pipeline(pipelines->front(), "pipeline_list[0]");
    } else if (pipelines != nullptr) {
      problems_.add(fmt::format("pipeline_list has {} pipelines", pipelines->size()),
                    "plans of one are read");
    }
    problems_.throw_if_any();
    return std::move(plan_);
  }

 private:
  /// Reads stages from two lists of the same length, layers and replicas; `dp` repeats the number
  /// of replicas and must agree.
  void read_pipeline(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    reader.require({"layers_per_stage", "tmp_per_stage"});
    reader.for_each("layers_per_stage",
                    [&](const Json& layers, const std::string& at) { read_layers(layers, at); });
    std::size_t stage = 0;
    reader.for_each("tmp_per_stage", [&](const Json& replicas, const std::string& at) {
      if (stage < plan_.stages.size()) read_replicas(replicas, at, plan_.stages[stage]);
      ++stage;
    });
    std::vector<int> widths;
    reader.read("dp", widths, std::int64_t{1}, most_samples >> 16);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const int width = plan_.stages[s].width();
      if (s < widths.size() && widths[s] == width) continue;
      problems_.add(fmt::format("{}.tmp_per_stage[{}] has {} replicas", path, s, width),
                    s < widths.size() ? fmt::format("dp says {}", widths[s]) : "dp says nothing");
    }
  }

  /// Begins a stage with a list of layer numbers, which must follow each other. Published files
  /// have slips between; first layer, last layer and count agree all the same.
  void read_layers(const Json& value, const std::string& path) {
    std::vector<int> layers;
    read_value(value, path, layers, problems_, std::int64_t{0}, std::int64_t{1} << 20);
    const int begin = layers.empty() ? 0 : layers.front();
    const int end = begin + static_cast<int>(layers.size());
    plan_.stages.push_back({{begin, end}, {}});
    if (layers.empty() || layers.back() == end - 1) return;
    int expected = begin;
    while (layers[expected - begin] == expected) ++expected;
    problems_.add(path + " skips a layer",
                  fmt::format("{} comes after {}", layers[expected - begin], expected - 1));
  }

  /// Reads [[[[device, how many, zone]], degree], …], an entry per replica.
  void read_replicas(const Json& value, const std::string& path, SailorStage& stage) {
    if (!value.is_array()) {
      note_wrong(value, path, "a list of replicas", problems_);
      return;
    }
    for (std::size_t i = 0; i < value.size() && !problems_.full(); ++i) {
      read_replica(value[i], element_path(path, i), stage);
    }
  }

  /// Adds one replica to its stage: a device, how many of them, and the degree, which is the same
  /// number.
  void read_replica(const Json& value, const std::string& path, SailorStage& stage) {
    const bool pair = value.is_array() && value.size() == 2 && value[0].is_array();
    if (!pair || value[0].size() != 1 || !value[0][0].is_array() || value[0][0].size() != 3) {
      note_wrong(value, path, "[[[device, how many, zone]], degree]", problems_);
      return;
    }
    const Json& devices = value[0][0];
    std::string device, zone = zone_;
    int count = 0;
    SailorReplicas replica;
    const bool fits =
        read_value(devices[0], path + "[0][0][0]", device, problems_) &&
        read_value(devices[1], path + "[0][0][1]", count, problems_, 1, 1 << 20) &&
        read_value(devices[2], path + "[0][0][2]", zone, problems_) &&
        read_value(value[1], path + "[1]", replica.seat.tensor, problems_, 1, 1 << 10);
    if (!fits) return;
    if (count != replica.seat.tensor) {
      problems_.add(
          fmt::format("{} has {} devices and degree {}", path, count, replica.seat.tensor));
    }
    try {
      replica.seat.place = tables_.place(device, zone);
      stage.append(replica);
    } catch (const UserError& error) {
      problems_.add_all(error, path + ": ");
    }
  }

  const SailorTables& tables_;
  const Json document_;
  DocumentProblems problems_;
  SailorPlan plan_;
  std::string zone_;
};

/// "2x(9x4 + 2 + 1)": two pipelines take nine micro-batches of 4 and tails of 2 and 1.
std::string text_of(const SailorShare& share) {
  const std::string tail =
      share.tails.empty() ? "" : fmt::format(" + {}", fmt::join(share.tails, " + "));
  return fmt::format("{}x({}x{}{})", share.count, share.micro_batches, share.micro_batch, tail);
}

}  // namespace

std::string replicas_text(const SailorStage& stage, const std::vector<std::string>& places) {
  std::vector<std::string> groups;
  for (const SailorReplicas& group : stage.replicas) {
    groups.push_back(
        fmt::format("{}x{} tp{}", group.count, places.at(group.seat.place), group.seat.tensor));
  }
  return fmt::format("{}", fmt::join(groups, ", "));
}

std::string shares_text(const SailorPlan& plan) {
  if (plan.shares.empty()) return fmt::format("micro-batch {}", plan.micro_batch);
  std::vector<std::string> shares;
  for (const SailorShare& share : plan.shares) shares.push_back(text_of(share));
  return fmt::format("{}", fmt::join(shares, ", "));
}

std::string to_string(const SailorPlan& plan, const std::vector<std::string>& places) {
  std::vector<std::string> stages;
  for (const SailorStage& stage : plan.stages) {
    stages.push_back(fmt::format("[{},{}) {}", stage.layers.begin, stage.layers.end,
                                 replicas_text(stage, places)));
  }
  return fmt::format("{}; {}", fmt::join(stages, " | "), shares_text(plan));
}

SailorPlan read_sailor_plan(const std::filesystem::path& file, const SailorTables& tables) {
  return PlanReader(file.string(), tables).read();
}

}  // namespace heteroperf

// Sailor's plans: what they are made of, how they print, and how its plan files are read. Such a
// file names layers and replicas of every stage one by one; here neighbours that are alike become a
// group, so that a plan of thousands of devices stays a few numbers.
#include "runners/plan/rivals/sailor/sailor_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "metrics/base/strict_json.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {

int SailorStage::width() const {
  int sum = 0;
  for (const SailorReplicas& group : replicas) sum += group.count;
  return sum;
}

std::vector<SailorSeat> SailorStage::seats() const {
  std::vector<SailorSeat> seats;
  for (const auto& [count, seat] : replicas) seats.insert(seats.end(), count, seat);
  return seats;
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

/// Reads the pipeline of Sailor's plan file, stage by stage.
class PipelineReader {
 public:
  PipelineReader(const SailorTables& tables, const std::string& zone, DocumentProblems& problems)
      : tables_(tables), zone_(zone), problems_(problems) {}

  /// Reads stages from two lists of the same length, layers and replicas; `dp` repeats the number
  /// of replicas and must agree.
  std::vector<SailorStage> read(const Json& value, const std::string& path) {
    std::vector<SailorStage> stages;
    ObjectReader reader(value, path, problems_);
    reader.require({"layers_per_stage", "tmp_per_stage"});
    reader.for_each("layers_per_stage", [&](const Json& layers, const std::string& at) {
      stages.push_back({read_layers(layers, at), {}});
    });
    std::size_t stage = 0;
    reader.for_each("tmp_per_stage", [&](const Json& replicas, const std::string& at) {
      if (stage < stages.size()) read_replicas(replicas, at, stages[stage]);
      ++stage;
    });
    std::vector<int> widths;
    reader.read("dp", widths, std::int64_t{1}, most_samples >> 16);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const int width = stages[s].width();
      if (s < widths.size() && widths[s] == width) continue;
      problems_.add(fmt::format("{}.tmp_per_stage[{}] has {} replicas", path, s, width),
                    s < widths.size() ? fmt::format("dp says {}", widths[s]) : "dp says nothing");
    }
    return stages;
  }

 private:
  /// Reads a list of layer numbers, which must follow each other. Published files have slips
  /// between; first layer, last layer and count agree all the same.
  SailorLayers read_layers(const Json& value, const std::string& path) {
    std::vector<int> layers;
    read_value(value, path, layers, problems_, std::int64_t{0}, std::int64_t{1} << 20);
    const int begin = layers.empty() ? 0 : layers.front();
    const int end = begin + static_cast<int>(layers.size());
    if (layers.empty() || layers.back() == end - 1) return {begin, end};
    int expected = begin;
    while (layers[expected - begin] == expected) ++expected;
    problems_.add(path + " skips a layer",
                  fmt::format("{} comes after {}", layers[expected - begin], expected - 1));
    return {begin, end};
  }

  /// Reads [[[[device, how many, zone]], degree], …], an entry per replica: a device, how many of
  /// them, and the degree, which is the same number.
  void read_replicas(const Json& list, const std::string& list_path, SailorStage& stage) {
    if (!list.is_array()) note_wrong(list, list_path, "a list of replicas", problems_);
    for (std::size_t i = 0; list.is_array() && i < list.size() && !problems_.full(); ++i) {
      const Json& value = list[i];
      const std::string path = element_path(list_path, i);
      const bool pair = value.is_array() && value.size() == 2 && value[0].is_array();
      if (!pair || value[0].size() != 1 || !value[0][0].is_array() || value[0][0].size() != 3) {
        note_wrong(value, path, "[[[device, how many, zone]], degree]", problems_);
        continue;
      }
      const Json& devices = value[0][0];
      std::string device, zone = zone_;
      int count = 0;
      SailorReplicas replica;
      int& tensor = replica.seat.tensor;
      const bool fits = read_value(devices[0], path + "[0][0][0]", device, problems_) &&
                        read_value(devices[1], path + "[0][0][1]", count, problems_, 1, 1 << 20) &&
                        read_value(devices[2], path + "[0][0][2]", zone, problems_) &&
                        read_value(value[1], path + "[1]", tensor, problems_, 1, 1 << 10);
      if (!fits) continue;
      if (count != tensor) {
        problems_.add(fmt::format("{} has {} devices and degree {}", path, count, tensor));
      }
      try {
        replica.seat.place = tables_.place(device, zone);
        stage.append(replica);
      } catch (const UserError& error) {
        problems_.add_all(error, path + ": ");
      }
    }
  }

  const SailorTables& tables_;
  const std::string& zone_;
  DocumentProblems& problems_;
};

}  // namespace

std::string replicas_text(const SailorStage& stage, const std::vector<std::string>& places) {
  return joined(stage.replicas, ", ", [&](const SailorReplicas& group) {
    return fmt::format("{}x{} tp{}", group.count, places.at(group.seat.place), group.seat.tensor);
  });
}

std::string shares_text(const SailorPlan& plan) {
  if (plan.shares.empty()) return fmt::format("micro-batch {}", plan.micro_batch);
  return joined(plan.shares, ", ", [](const SailorShare& share) {
    const char* more = share.tails.empty() ? "" : " + ";
    return fmt::format("{}x({}x{}{}{})", share.count, share.micro_batches, share.micro_batch, more,
                       fmt::join(share.tails, " + "));
  });
}

std::string to_string(const SailorPlan& plan, const std::vector<std::string>& places) {
  const std::string stages = joined(plan.stages, " | ", [&](const SailorStage& stage) {
    return fmt::format("[{},{}) {}", stage.layers.begin, stage.layers.end,
                       replicas_text(stage, places));
  });
  return fmt::format("{}; {}", stages, shares_text(plan));
}

// The file is a list of pipelines, of which only one may be there.
SailorPlan read_sailor_plan(const std::filesystem::path& file, const SailorTables& tables) {
  const Json document = parse_strict_json(read_sailor_text(file), file.string());
  DocumentProblems problems(file.string());
  SailorPlan plan;
  std::string zone;
  ObjectReader reader(document, "", problems);
  reader.require({"pipeline_list", "mbs"});
  reader.read("mbs", plan.micro_batch, 1, most_samples);
  reader.read("zone", zone);
  const Json* pipelines = reader.list("pipeline_list");
  if (pipelines != nullptr && pipelines->size() == 1) {
    plan.stages = PipelineReader(tables, zone, problems).read((*pipelines)[0], "pipeline_list[0]");
  } else if (pipelines != nullptr) {
    problems.add(fmt::format("pipeline_list has {} pipelines", pipelines->size()),
                 "plans of one are read");
  }
  problems.throw_if_any();
  return plan;
}

}  // namespace heteroperf

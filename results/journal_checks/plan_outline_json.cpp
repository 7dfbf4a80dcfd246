#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/strict_json.hpp"
#include "results/journal_checks/plan_outline.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_outlined = std::int64_t{1} << 40;
constexpr std::int64_t most_outlined_ranks = std::int64_t{1} << 24;
constexpr const char* search_plan_format = "heteroperf-search-plan";
constexpr const char* fixed_plan_format = "heteroperf-plan";

/// Smallest to largest, or the one there is.
template <class Value>
std::string extent_text(const std::set<Value>& values) {
  if (values.empty()) return "none";
  if (values.size() == 1) return fmt::format("{}", *values.begin());
  return fmt::format("{}..{}", *values.begin(), *values.rbegin());
}

void read_ranks(ObjectReader& reader, std::vector<std::int32_t>& ranks) {
  reader.require({"ranks"});
  reader.read("ranks", ranks, std::int64_t{0}, most_outlined_ranks);
}

OutlinedReplica outlined_replica(const Json& json, const std::string& path,
                                 DocumentProblems& problems) {
  ObjectReader reader(json, path, problems);
  OutlinedReplica replica;
  reader.require({"micro_batch"});
  read_ranks(reader, replica.ranks);
  reader.read("micro_batch", replica.micro_batch, std::int64_t{1}, most_outlined);
  reader.read("device_class", replica.device_class);
  reader.read("direction", replica.direction, 0, 1);
  return replica;
}

void read_workload_of_plan(ObjectReader& reader, PlanOutline& plan, DocumentProblems& problems) {
  const Json* json = reader.value("workload");
  if (json == nullptr) return;
  ObjectReader inner(*json, reader.path_of("workload"), problems);
  inner.read("name", plan.workload);
  inner.read("size", plan.size);
  inner.read("model", plan.size);
  inner.read("precision", plan.precision);
  inner.read("optimizer", plan.optimizer);
  inner.read("sequence_length", plan.sequence_length);
}

/// Stages on the same ranks are on one position; positions are numbered as stages first name them.
void number_positions(PlanOutline& plan) {
  std::map<std::set<std::int32_t>, std::int32_t> positions;
  for (const OutlinedStage& stage : plan.stages) {
    std::set<std::int32_t> ranks;
    for (const OutlinedReplica& replica : stage) {
      if (replica.direction == 0) ranks.insert(replica.ranks.begin(), replica.ranks.end());
    }
    const auto next = static_cast<std::int32_t>(positions.size());
    const std::int32_t position = positions.emplace(ranks, next).first->second;
    for (const std::int32_t rank : ranks) plan.positions.emplace(rank, position);
  }
}

void read_stages(ObjectReader& reader, PlanOutline& plan, DocumentProblems& problems) {
  reader.require({"schedule", "micro_batches", "stages", "workload"});
  reader.read("graph_hash", plan.graph_hash);
  read_workload_of_plan(reader, plan, problems);
  reader.read("schedule", plan.schedule);
  reader.read("chunks", plan.chunks, std::int64_t{1}, most_outlined);
  reader.read("micro_batches", plan.micro_batches, std::int64_t{1}, most_outlined);
  std::set<std::int32_t> ranks;
  reader.for_each("stages", [&](const Json& json, const std::string& path) {
    ObjectReader stage(json, path, problems);
    OutlinedStage& replicas = plan.stages.emplace_back();
    stage.for_each("replicas", [&](const Json& replica, const std::string& where) {
      replicas.push_back(outlined_replica(replica, where, problems));
      ranks.insert(replicas.back().ranks.begin(), replicas.back().ranks.end());
    });
    if (replicas.empty()) problems.add(path + " has no replicas");
  });
  if (plan.stages.empty()) problems.add("it has no stages");
  plan.groups.emplace_back(ranks.begin(), ranks.end());
  number_positions(plan);
}

}  // namespace

std::string PlanShape::line() const {
  return fmt::format("pp {} x tp {} x dp {}, {}{}, {} micro-batch{} of {}", positions,
                     extent_text(tensor), extent_text(data), schedule,
                     chunks > 1 ? fmt::format(" with {} chunks", chunks) : "", micro_batches,
                     micro_batches == 1 ? "" : "es", extent_text(batches));
}

std::string share_text(const std::vector<HeldStage>& held, std::size_t stages_of_plan) {
  std::vector<std::int32_t> stages;
  std::set<std::string> tensor;
  for (const HeldStage& part : held) {
    stages.push_back(part.stage);
    tensor.insert(part.tensor_degree == 1
                      ? ""
                      : fmt::format("; tensor {} of {}", part.tensor_index, part.tensor_degree));
  }
  if (stages_of_plan == 1 && tensor.contains("")) return "";
  return fmt::format("stages {}{}", fmt::join(stages, ","), fmt::join(tensor, ""));
}

PlanShape PlanOutline::shape() const {
  PlanShape shape;
  shape.positions = stages.size() / static_cast<std::size_t>(chunks);
  shape.schedule = schedule;
  shape.chunks = chunks;
  shape.micro_batches = micro_batches;
  for (const OutlinedStage& stage : stages) {
    std::size_t copies = 0;
    for (const OutlinedReplica& replica : stage) {
      copies += replica.direction == 0 ? 1 : 0;
      shape.tensor.insert(replica.ranks.size());
      shape.batches.insert(replica.micro_batch);
    }
    shape.data.insert(copies);
  }
  return shape;
}

std::int64_t PlanOutline::micro_batch_samples(std::size_t stage, std::int32_t direction) const {
  std::int64_t samples = 0;
  for (const OutlinedReplica& replica : stages.at(stage)) {
    if (replica.direction == direction) samples += replica.micro_batch;
  }
  return samples;
}

std::uint64_t PlanOutline::samples_per_step() const {
  return static_cast<std::uint64_t>(micro_batch_samples(0, 0)) *
         static_cast<std::uint64_t>(micro_batches);
}

std::int32_t PlanOutline::group_of(std::int32_t rank) const {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (std::find(groups[group].begin(), groups[group].end(), rank) != groups[group].end()) {
      return static_cast<std::int32_t>(group);
    }
  }
  return -1;
}

std::vector<HeldStage> PlanOutline::stages_of(std::int32_t rank) const {
  std::vector<HeldStage> held;
  for (const std::int32_t direction : {0, 1}) {
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      for (const OutlinedReplica& replica : stages[stage]) {
        const auto found = std::find(replica.ranks.begin(), replica.ranks.end(), rank);
        if (replica.direction != direction || found == replica.ranks.end()) continue;
        held.push_back({static_cast<std::int32_t>(stage),
                        static_cast<std::int32_t>(found - replica.ranks.begin()),
                        static_cast<std::int32_t>(replica.ranks.size())});
      }
    }
  }
  return held;
}

const OutlinedReplica* PlanOutline::replica_of(std::int32_t rank) const {
  for (const OutlinedStage& stage : stages) {
    for (const OutlinedReplica& replica : stage) {
      if (std::find(replica.ranks.begin(), replica.ranks.end(), rank) != replica.ranks.end()) {
        return &replica;
      }
    }
  }
  return nullptr;
}

PlanOutline read_plan_outline(const std::string& text) {
  DocumentProblems problems("the plan");
  const Json json = text.empty() ? Json::object() : Json::parse(text);
  ObjectReader reader(json, "", problems);
  PlanOutline plan;
  std::string format;
  reader.read("_format", format);
  plan.of_search = format == search_plan_format;
  if (plan.of_search) {
    reader.for_each("groups", [&](const Json& group, const std::string& path) {
      ObjectReader inner(group, path, problems);
      read_ranks(inner, plan.groups.emplace_back());
    });
    if (plan.groups.empty()) problems.add("it has no groups");
  } else if (format == fixed_plan_format) {
    read_stages(reader, plan, problems);
  } else {
    problems.add("it is of no format that this program knows");
  }
  problems.throw_if_any();
  return plan;
}

}  // namespace heteroperf

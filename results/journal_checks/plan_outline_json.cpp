// The outline of a plan: as much of a `plan` line as other lines can be held to. The plan of a
// fixed model is a list of *stages* (consecutive layers). A stage has one or more *replicas*,
// copies that share the samples of every *micro-batch*, and a replica one or more ranks, which
// share its layers (tensor parallelism). Stages on the same ranks make a *position* of the
// pipeline; with several *chunks* each position has as many stages. In a two-way schedule a second
// set of replicas, the upward one, runs through the ranks in the opposite order. The plan of a
// search only lists the groups of ranks that train one trial together. A stranger may have written
// the text, so every number has a bound, and a faulty document is one UserError with all of its
// faults.
#include <fmt/format.h>

#include <utility>

#include "metrics/base/strict_json.hpp"
#include "results/journal_checks/plan_outline.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_outlined = std::int64_t{1} << 40;
constexpr std::int64_t most_outlined_ranks = std::int64_t{1} << 24;
/// Every line of a rank is held to all of its stages, of which a model has one per layer at most.
constexpr std::size_t most_stages_of_rank = 4096;
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
  if (const Json* json_part = reader.value("sequence_part")) {
    ObjectReader inner(*json_part, reader.path_of("sequence_part"), problems);
    inner.require({"index", "parts"});
    inner.read("index", replica.part, 0, most_outlined_ranks);
    inner.read("parts", replica.parts, 1, most_outlined_ranks);
  }
  reader.read("sequence_order", replica.order);
  return replica;
}

/// Either key, `size` or `model`, names the model that is trained.
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
  inner.read("images", plan.images);
  inner.read("freeze", plan.freeze);
}

/// Stages that share ranks, directly or over others, are on one position; positions are numbered as
/// stages first name them. Upward replicas stand on the positions of downward ones, so they are
/// left out.
void number_positions(PlanOutline& plan) {
  std::map<std::int32_t, std::int32_t> leaders;  // by rank: one of its position, at last itself
  const auto leader_of = [&](std::int32_t rank) {
    while (leaders[rank] != rank) rank = leaders[rank] = leaders[leaders[rank]];
    return rank;
  };
  std::vector<std::vector<std::int32_t>> ranks_of_stages;
  for (const OutlinedStage& stage : plan.stages) {
    std::vector<std::int32_t>& ranks = ranks_of_stages.emplace_back();
    for (const OutlinedReplica& replica : stage) {
      if (replica.direction != 0) continue;
      ranks.insert(ranks.end(), replica.ranks.begin(), replica.ranks.end());
    }
    for (const std::int32_t rank : ranks) {
      leaders.try_emplace(rank, rank);
      leaders[leader_of(rank)] = leader_of(ranks.front());
    }
  }
  std::map<std::int32_t, std::int32_t> numbers;  // by leader
  for (const std::vector<std::int32_t>& ranks : ranks_of_stages) {
    for (const std::int32_t rank : ranks) {
      const auto next = static_cast<std::int32_t>(numbers.size());
      plan.places[rank].position = numbers.emplace(leader_of(rank), next).first->second;
    }
  }
}

/// Notes where the ranks compute in one direction, behind what is noted of them already. A rank
/// that holds several stages has its place at the first of them.
void place_stages(PlanOutline& plan, std::int32_t direction) {
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (std::size_t replica = 0; replica < plan.stages[stage].size(); ++replica) {
      const OutlinedReplica& copy = plan.stages[stage][replica];
      if (copy.direction != direction) continue;
      for (std::size_t i = 0; i < copy.ranks.size(); ++i) {
        OutlinedRank& place = plan.places[copy.ranks[i]];
        if (place.held.empty() ||
            std::pair(stage, replica) < std::pair(place.stage, place.replica)) {
          place.stage = stage;
          place.replica = replica;
        }
        place.held.push_back({static_cast<std::int32_t>(stage), static_cast<std::int32_t>(i),
                              static_cast<std::int32_t>(copy.ranks.size())});
      }
    }
  }
}

/// Notes the group and the stages of every rank. A rank may be in one group only, and hold no more
/// stages than a model could have layers.
void place_ranks(PlanOutline& plan, DocumentProblems& problems) {
  bool twice = false;
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    for (const std::int32_t rank : plan.groups[group]) {
      OutlinedRank& place = plan.places[rank];
      twice = twice || place.group >= 0;
      if (place.group < 0) place.group = static_cast<std::int32_t>(group);
    }
  }
  if (twice) problems.add("a rank is in its groups twice");
  for (const std::int32_t direction : {0, 1}) place_stages(plan, direction);
  for (const auto& [rank, place] : plan.places) {
    if (place.held.size() > most_stages_of_rank) {
      problems.add(fmt::format("rank {} holds {} stages", rank, place.held.size()),
                   fmt::format("at most {} are possible", most_stages_of_rank));
    }
  }
}

/// Reads the plan of a fixed model, all of whose ranks make one group.
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
    std::set<std::pair<std::int32_t, std::int32_t>> seen;  // a direction's ranks
    bool twice = false;
    stage.for_each("replicas", [&](const Json& replica, const std::string& where) {
      replicas.push_back(outlined_replica(replica, where, problems));
      const OutlinedReplica& copy = replicas.back();
      for (const std::int32_t rank : copy.ranks) {
        twice = !seen.emplace(copy.direction, rank).second || twice;
        ranks.insert(rank);
      }
    });
    if (replicas.empty()) problems.add(path + " has no replicas");
    if (twice) problems.add(path + " has a rank twice in one direction");
  });
  if (plan.stages.empty()) problems.add("it has no stages");
  plan.groups.emplace_back(ranks.begin(), ranks.end());
  number_positions(plan);
}

}  // namespace

/// Degrees that differ between stages are written as a range, "2..4".
std::string PlanShape::line() const {
  const bool parts = !context.empty() && *context.rbegin() > 1;
  return fmt::format("pp {} x tp {}{} x dp {}, {}{}, {} micro-batch{} of {}", positions,
                     extent_text(tensor), parts ? " x cp " + extent_text(context) : "",
                     extent_text(data), schedule,
                     chunks > 1 ? fmt::format(" with {} chunks", chunks) : "", micro_batches,
                     micro_batches == 1 ? "" : "es", extent_text(batches));
}

/// Ranks with equal texts hold equal parameters, which is what their checksums are compared by. The
/// whole model has an empty text.
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

/// A position has as many stages as there are chunks. Only downward replicas are counted.
PlanShape PlanOutline::shape() const {
  PlanShape shape;
  shape.positions = stages.size() / static_cast<std::size_t>(chunks);
  shape.schedule = schedule;
  shape.chunks = chunks;
  shape.micro_batches = micro_batches;
  for (const OutlinedStage& stage : stages) {
    std::size_t copies = 0;
    for (const OutlinedReplica& replica : stage) {
      copies += replica.direction == 0 && replica.ends_samples() ? 1 : 0;
      shape.tensor.insert(replica.ranks.size());
      shape.context.insert(replica.parts);
      shape.batches.insert(replica.micro_batch);
    }
    shape.data.insert(copies);
  }
  return shape;
}

std::int64_t PlanOutline::micro_batch_samples(std::size_t stage, std::int32_t direction) const {
  std::int64_t samples = 0;
  for (const OutlinedReplica& replica : stages.at(stage)) {
    if (replica.direction == direction && replica.ends_samples()) samples += replica.micro_batch;
  }
  return samples;
}

std::uint64_t PlanOutline::samples_per_step() const {
  return static_cast<std::uint64_t>(micro_batch_samples(0, 0)) *
         static_cast<std::uint64_t>(micro_batches);
}

const OutlinedRank& PlanOutline::place_of(std::int32_t rank) const {
  static const OutlinedRank nowhere;
  const auto place = places.find(rank);
  return place == places.end() ? nowhere : place->second;
}

const OutlinedReplica* PlanOutline::replica_of(std::int32_t rank) const {
  const OutlinedRank& place = place_of(rank);
  return place.held.empty() ? nullptr : &stages[place.stage][place.replica];
}

/// A document without a known format is refused; an empty text is one.
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
  place_ranks(plan, problems);
  problems.throw_if_any();
  return plan;
}

}  // namespace heteroperf

// The lowered schedule of a plan.
//
// A schedule's generator knows chains of stages with costs and gives an order of passes. A plan has
// stages with edges that may skip others, tied weights, replicas, two directions, and perhaps a
// loss over the samples of several micro-batches. So the pipeline is described twice: to the
// generator as a chain (as it is where the plan's stages are one), and with its true edges and
// costs as the graph of the result. The generator's order is then completed (recomputation before
// the first gradient, fused pairs taken apart), lowered to sends, receives and sums, and checked.
//
// A *position* is a place of the pipeline: its ranks run one program. Where the schedule does not
// place the stages (`auto`), those that share ranks, directly or over other stages, are on one
// position, and each rank of it runs the passes of its own stages. A *segment* is a stage in one
// direction; segments of the upward direction follow those of the downward one.
#include "runners/plan/ready/plan_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/generators/makers.hpp"
#include "runners/schedule/ir/grouped_lists.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

int stage_count(const Plan& plan) { return static_cast<int>(plan.stages.size()); }

/// Ascending ranks of the replicas that run a stage in a direction.
std::vector<int> ranks_of(const PlanStage& stage, int direction) {
  std::vector<int> ranks;
  for (const StageReplica& replica : stage.replicas) {
    if (replica.direction != direction) continue;
    for (const RankId rank : replica.ranks) ranks.push_back(rank.value());
  }
  std::ranges::sort(ranks);
  return ranks;
}

/// Names the ranks in a message.
std::string text_of(const std::vector<int>& ranks) {
  return ranks.empty() ? "no ranks" : fmt::format("ranks {}", fmt::join(ranks, ", "));
}

/// A stage in a direction, as segment of the schedule.
struct StageCopy {
  StageId stage;
  int direction;
  PositionId position;
};

/// The positions of the pipeline, and the copies of the stages by segment. Downward copies come
/// first, so that segment and stage agree for them.
struct StagePlaces {
  int positions = 1;
  bool two_way = false;
  std::vector<StageCopy> copies;
};

StagePlaces stage_places(const Plan& plan, StageOrder order) {
  StagePlaces places{stage_count(plan) / plan.chunks, order == StageOrder::two_way, {}};
  const auto placement =
      order == StageOrder::zig_zag ? ChainPlacement::zig_zag : ChainPlacement::looped;
  UnionFind connected(plan.ranks());
  for (const PlanStage& stage : plan.stages) {
    const std::vector<int> ranks = ranks_of(stage, 0);
    for (const int rank : ranks) connected.unite(ranks.front(), rank);
  }
  std::map<std::int32_t, PositionId> by_ranks;
  for (const StageId stage : plan.stages.ids()) {
    PositionId position(rank_on_chain(SegmentId(stage.value()), places.positions, placement));
    if (order == StageOrder::any) {
      const PositionId next(by_ranks.size());
      const std::int32_t set = connected.find(ranks_of(plan.stages[stage], 0).front());
      position = by_ranks.emplace(set, next).first->second;
    }
    places.copies.push_back({stage, 0, position});
  }
  for (StageId stage(0); places.two_way && plan.stages.contains(stage); ++stage) {
    places.copies.push_back({stage, 1, PositionId(places.positions - 1 - stage.value())});
  }
  return places;
}

/// Complains of numbers that no schedule could take, and of directions that this one does not have.
void check_counts(const Plan& plan, const Generator& generator) {
  ProblemList problems;
  if (plan.stages.empty()) problems.add("a plan without stages", "", "Add at least one.");
  if (plan.micro_batches < 1) {
    problems.add(fmt::format("a plan of {} micro-batches", plan.micro_batches), "",
                 "Give at least 1.");
  }
  if (plan.chunks < 1 || (!plan.stages.empty() && stage_count(plan) % plan.chunks != 0)) {
    problems.add(
        fmt::format("{} stages with {} chunks per position", stage_count(plan), plan.chunks),
        "every position has as many stages as there are chunks",
        "Give a number of chunks that divides the stages.");
  }
  for (const StageId stage : plan.stages.ids()) {
    const bool two_way = generator.order == StageOrder::two_way;
    const PlanStage& s = plan.stages[stage];
    if (ranks_of(s, 0).empty() || (two_way && ranks_of(s, 1).empty())) {
      problems.add(fmt::format("stage {} has no replica{}", stage.value(),
                               two_way ? " in one of the two directions" : ""),
                   fmt::format("{} needs one", generator.name), "Add one.");
    }
    for (const StageReplica& replica : s.replicas) {
      if (replica.direction == 0 || (replica.direction == 1 && two_way)) continue;
      problems.add(
          fmt::format("stage {} has a replica of direction {}", stage.value(), replica.direction),
          two_way ? "directions are 0 (down) and 1 (up)"
                  : fmt::format("{} has one direction", generator.name),
          two_way ? "Give 0 or 1." : "Give 0, or use chimera or dualpipe.");
    }
  }
  problems.throw_if_any();
}

/// Copies on two positions name different ranks; where the schedule places them, those on one
/// position name the same.
void check_positions(const Plan& plan, const StagePlaces& places, StageOrder order) {
  ProblemList problems;
  const PositionId end(places.positions);
  if (std::ranges::any_of(places.copies, [&](const StageCopy& c) { return c.position >= end; })) {
    problems.add(fmt::format("{} stages with {} chunks lie on more than {} sets of ranks",
                             stage_count(plan), plan.chunks, places.positions),
                 "stages share a position only where they share ranks",
                 "Give the stages of one position common ranks.");
  }
  problems.throw_if_any();
  IdVector<PositionId, std::optional<StageCopy>> first(places.positions);
  std::map<int, PositionId> position_of;  // by rank
  for (const StageCopy& copy : places.copies) {
    const auto ranks = [&](const StageCopy& c) {
      return ranks_of(plan.stages[c.stage], c.direction);
    };
    for (const int rank : ranks(copy)) {
      const PositionId position_id = position_of.emplace(rank, copy.position).first->second;
      if (position_id == copy.position) continue;
      problems.add(
          fmt::format("rank {} of stage {} is on positions {} and {}", rank, copy.stage.value(),
                      position_id.value(), copy.position.value()),
          fmt::format("{} puts that stage on position {}", plan.schedule, copy.position.value()),
          "Give every rank one position.");
    }
    auto& holder = first[copy.position];
    if (!holder) holder = copy;
    if (order == StageOrder::any || ranks(*holder) == ranks(copy)) continue;
    problems.add(fmt::format("stages {} and {} lie on {} and on {}", holder->stage.value(),
                             copy.stage.value(), text_of(ranks(*holder)), text_of(ranks(copy))),
                 fmt::format("{} puts both on position {}, whose ranks run one program",
                             plan.schedule, copy.position.value()),
                 "Give both the same ranks, or use auto.");
  }
  problems.throw_if_any();
}

/// The stages of a tied weight sum its copies, of which a rank has one: two replicas have the same
/// ranks or none in common.
void check_tied(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan) {
  ProblemList problems;
  for (const StagedGraph::Tied& tied : staged.tied) {
    std::map<int, std::set<int>> ranks_with;  // by rank: those of the replica that it is in
    for (const StageId stage : tied.stages) {
      for (const StageReplica& replica : plan.stages[stage].replicas) {
        std::set<int> ranks;
        for (const RankId rank : replica.ranks) ranks.insert(rank.value());
        const bool fits = std::ranges::all_of(ranks, [&](int rank) {
          return ranks_with.emplace(rank, ranks).first->second == ranks;
        });
        if (fits) continue;
        problems.add(
            fmt::format("a replica of stage {} on ranks {} shares some of them with one of "
                        "another stage",
                        stage.value(), fmt::join(ranks, ", ")),
            fmt::format("both hold the weight of '{}', each rank one part of it",
                        graph.node(tied.owner).name),
            "Give the two replicas the same ranks, or others.");
        problems.throw_if_any();
      }
    }
  }
}

/// A position runs at the speed of its slowest replica, pass by pass.
StageTimes::Compute slowest_of(const Plan& plan, const StageTimes& times, const StageCopy& copy) {
  StageTimes::Compute most;
  const auto& replicas = plan.stages[copy.stage].replicas;
  for (const ReplicaId i : replicas.ids()) {
    if (replicas[i].direction != copy.direction) continue;
    most.raise_to(times.compute[copy.stage][i]);
  }
  return most;
}

double bytes_per_element(WireFormat format) {
  return format == WireFormat::fp32 ? 4 : format == WireFormat::bf16 ? 2 : 1;
}

/// The bytes that an edge of a staged graph usually carries per micro-batch.
double edge_bytes(const ModelGraph& graph, const Plan& plan, const StageEdge& edge) {
  double elements = 0;
  for (const NodeId id : edge.nodes) {
    const Node& node = graph.node(id);
    elements += static_cast<double>(element_count(node.output)) * usual_items(graph, node);
  }
  return elements * static_cast<double>(plan.micro_batch_samples()) *
         bytes_per_element(plan.wire(edge.from, edge.to));
}

/// In a two-way schedule each direction takes half of the micro-batches, the downward one the odd
/// one more.
Segment segment_of(const Plan& plan, const StageTimes* times, const StageCopy& copy, bool two_way) {
  Segment segment;
  segment.name = std::to_string(copy.stage.value());
  if (two_way) {
    const int down = (plan.micro_batches + 1) / 2;
    segment.branch = copy.direction == 0 ? "down" : "up";
    segment.name = fmt::format("{} {}", segment.branch, copy.stage.value());
    segment.first_micro_batch = MicroBatchId(copy.direction == 0 ? 0 : down);
    segment.micro_batches = copy.direction == 0 ? down : plan.micro_batches - down;
  }
  segment.rank = copy.position.value();
  // A segment's activations are counted in those of a position's whole share.
  segment.activation = 1.0 / plan.chunks;
  segment.weights = copy.stage.value();
  if (times != nullptr) {
    const StageTimes::Compute compute = slowest_of(plan, *times, copy);
    segment.forward = compute.forward_s;
    segment.input_gradient = compute.input_gradient_s;
    segment.weight_gradient = compute.weight_gradient_s;
  }
  return segment;
}

/// A loss over the samples of several micro-batches is an interaction of its stage with itself.
void add_set_loss(const ModelGraph& graph, const Plan& plan, const StagePlaces& places,
                  PipelineGraph& pipeline) {
  const std::string& loss = graph.node(graph.loss()).name;
  const auto contrast = contrast_of(graph);
  if (!contrast) return;
  if (places.two_way) {
    throw UserError(fmt::format("{} with the loss '{}' over a step's samples", plan.schedule, loss),
                    "interactions are between micro-batches of one direction",
                    "Use 1f1b, gpipe or auto.");
  }
  Interaction& together = pipeline.interactions.emplace_back();
  together.name = loss;
  together.members = {SegmentId(stage_count(plan) - 1)};
  together.every = *contrast == ContrastOver::step ? plan.micro_batches : 1;
}

/// The pipeline that a plan says, with its true edges and costs.
PipelineGraph plan_pipeline(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                            const StageTimes* times, const StagePlaces& places) {
  PipelineGraph result;
  result.ranks = places.positions;
  result.micro_batches = plan.micro_batches;
  result.tied.resize(staged.tied.size());
  for (const StageCopy& copy : places.copies) {
    result.segments.push_back(segment_of(plan, times, copy, places.two_way));
  }
  for (int shift = 0; shift < std::ssize(places.copies); shift += staged.stages()) {
    for (std::size_t e = 0; e < staged.edges.size(); ++e) {
      const StageEdge& from = staged.edges[e];
      Edge edge{SegmentId(from.from.value() + shift), SegmentId(from.to.value() + shift),
                edge_bytes(graph, plan, from), !from.with_gradient.empty()};
      if (times != nullptr) {
        edge.activation_time = times->activation_s[e];
        edge.gradient_time = times->gradient_s[e];
      }
      result.edges.push_back(edge);
    }
    for (std::size_t i = 0; i < staged.tied.size(); ++i) {
      for (const StageId s : staged.tied[i].stages) result.tied[i].emplace_back(s.value() + shift);
    }
  }
  add_set_loss(graph, plan, places, result);
  normalise(result);
  return result;
}

/// True where every stage feeds the next one alone: one edge less than segments in each direction.
bool is_chain(const PipelineGraph& graph, const StagePlaces& places) {
  const std::size_t chains = places.two_way ? 2 : 1;
  if (graph.edges.size() != graph.segments.size() - chains) return false;
  return std::ranges::all_of(graph.edges,
                             [](const Edge& edge) { return edge.to == edge.from + 1; });
}

/// Gives an order that is searched the room of the ranks, and the costs of recomputation.
void limit_memory(const Plan& plan, const StagePlaces& places, const StageTimes* times,
                  const StageShares& shares, ScheduleRequest& request) {
  PipelineGraph& graph = *request.graph;
  for (const StageId stage : plan.stages.ids()) {
    Segment& segment = graph.segments[SegmentId(stage.value())];
    // A stage of data alone keeps nothing, and what it makes again for W is a part of something.
    constexpr double least_part = 1e-9;
    segment.activation = std::max(shares[stage].kept, least_part * shares[stage].split);
    if (segment.activation > 0) segment.weight_part = shares[stage].split / segment.activation;
    if (times == nullptr) continue;
    segment.input_gradient += slowest_of(plan, *times, places.copies[stage.index()]).recompute_s;
  }
  request.memory_limit = limit_to_room(graph);
}

/// The generator's order, for the chain of the plan's stages: as it is where its stages are one.
Schedule generate(const Plan& plan, const Generator& generator, const PipelineGraph& graph,
                  const StagePlaces& places, const StageTimes* times, const StageShares& shares) {
  ScheduleRequest request;
  request.ranks = places.positions;
  request.micro_batches = plan.micro_batches;
  PipelineGraph wanted = graph;
  if (generator.order != StageOrder::any && !is_chain(graph, places)) {
    wanted.edges.clear();
    for (SegmentId s; graph.segments.contains(s + 1); ++s) {
      if (s.value() + 1 != stage_count(plan)) wanted.edges.push_back({s, s + 1, 0, true});
    }
  }
  request.graph = std::move(wanted);
  request.chunks = plan.chunks;
  if (!shares.empty()) limit_memory(plan, places, times, shares, request);
  // Planners make many plans ready, and every rank of a run does its own.
  request.most_evaluations = 2000;
  return generator.make(request);
}

/// The order of `1f1b` with the plan's own warm-ups.
Schedule generate_warm_ups(const Plan& plan, const PipelineGraph& graph) {
  const int positions = stage_count(plan), micro_batches = plan.micro_batches;
  ProblemList problems;
  if (plan.schedule != "1f1b" || plan.chunks != 1) {
    problems.add(fmt::format("warm-ups for {} with {} chunks", plan.schedule, plan.chunks), "",
                 "Leave warm_up out, or use 1f1b with one chunk.");
  }
  if (static_cast<int>(plan.warm_up.size()) != positions) {
    problems.add(fmt::format("{} warm-ups for {} positions", plan.warm_up.size(), positions), "",
                 "Give one for each.");
  }
  problems.throw_if_any();
  for (const PositionId q : plan.warm_up.ids()) {
    const int forwards = plan.warm_up[q], follow = positions - 1 - q.value();
    const int next = follow > 0 ? plan.warm_up[q + 1] : -1;
    // Fewer forwards than positions follow, or than the next position does, would stall the
    // pipeline.
    if (forwards >= std::min(micro_batches, follow) && forwards >= next) continue;
    problems.add(
        fmt::format("position {} does {} forwards before its first backward", q.value(), forwards),
        fmt::format("{} positions follow, the next one does {}", follow, next),
        "Give as many as positions follow, and as many as the next one.");
  }
  problems.throw_if_any();
  Schedule schedule;
  schedule.graph = graph;
  for (const PositionId q : plan.warm_up.ids()) {
    std::vector<Instruction>& program = schedule.programs.emplace_back();
    const SegmentId segment(q.value());
    one_forward_one_backward(
        micro_batches, plan.warm_up[q],
        [&](int k) { program.push_back(compute(Op::forward, segment, MicroBatchId(k))); },
        [&](int k) { program.push_back(compute(Op::backward, segment, MicroBatchId(k))); });
  }
  return schedule;
}

/// A rank runs one computation at a time: what the schedule pairs runs one after the other, each as
/// soon as it can. A stage that keeps nothing recomputes before the first gradient of every
/// micro-batch.
void complete(const Plan& plan, Schedule& schedule) {
  std::set<std::pair<SegmentId, MicroBatchId>> done;
  for (std::vector<Instruction>& program : schedule.programs) {
    for (Instruction i : std::exchange(program, {})) {
      const StageId stage(i.segment.value() % stage_count(plan));
      i.fused_with_next = false;
      if (is_gradient(i.op) && plan.stages[stage].recomputation == Recomputation::full &&
          done.emplace(i.segment, i.micro_batch).second) {
        program.push_back(compute(Op::recompute, i.segment, i.micro_batch, i.part));
      }
      program.push_back(i);
    }
  }
}

}  // namespace

Schedule plan_schedule(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                       const StageTimes* times, const StageShares& shares) {
  const Generator& generator = find_generator(plan.schedule);
  check_counts(plan, generator);
  const StagePlaces places = stage_places(plan, generator.order);
  check_positions(plan, places, generator.order);
  check_tied(graph, staged, plan);
  PipelineGraph pipeline = plan_pipeline(graph, staged, plan, times, places);
  Schedule schedule = plan.warm_up.empty()
                          ? generate(plan, generator, pipeline, places, times, shares)
                          : generate_warm_ups(plan, pipeline);
  schedule.graph = std::move(pipeline);
  schedule.name = plan.schedule;
  schedule.chunks = plan.chunks;
  complete(plan, schedule);
  schedule = lower(schedule);
  // A schedule that breaks a rule is an error here, before anything runs.
  const ScheduleChecks checks = check_schedule(schedule);
  if (!checks.ok()) throw UserError(checks.problems);
  return schedule;
}

std::vector<std::vector<RankRole::Part>> rank_parts(const Plan& plan) {
  const int stages = stage_count(plan);
  std::vector<std::vector<RankRole::Part>> parts(plan.ranks());
  for (const int direction : {0, 1}) {
    for (const StageId stage : plan.stages.ids()) {
      const auto& replicas = plan.stages[stage].replicas;
      for (const ReplicaId r : replicas.ids()) {
        if (replicas[r].direction != direction) continue;
        for (std::size_t t = 0; t < replicas[r].ranks.size(); ++t) {
          parts[replicas[r].ranks[t].index()].push_back(
              {SegmentId(direction * stages + stage.value()), stage, r, static_cast<int>(t)});
        }
      }
    }
  }
  return parts;
}

std::vector<RankRole> rank_roles(const Plan& plan, const Schedule& schedule) {
  std::vector<RankRole> roles;
  for (std::vector<RankRole::Part>& parts : rank_parts(plan)) {
    RankRole& role = roles.emplace_back();
    role.parts = std::move(parts);
    if (role.parts.empty()) continue;
    role.position = PositionId(schedule.graph.segments[role.parts.back().segment].rank);
  }
  return roles;
}

}  // namespace heteroperf

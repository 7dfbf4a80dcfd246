// A plan made ready to run, and all the checks on the way.
//
// The steps depend on each other: a plan that is wrong by itself cannot be scheduled, and without a
// schedule there is no memory to check. Still as many problems as possible are named at once. So
// each step that may refuse is run inside collect_problems(), and steps that need a sound plan are
// left out where there is none. What a cluster lacks for times (a rate, say) is no problem of the
// plan: such a plan runs, only its prediction is missing, and the reason is kept in `unpredicted`.
#include "runners/plan/ready/ready_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/ready/rank_bytes.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// The bytes of a ledger beyond the memory of its device; a limit of 0 is none.
Bytes lacking_on(const DeviceClass& device, const MemoryLedger& ledger) {
  const Bytes needed = ledger.total();
  if (device.memory == Bytes(0) || needed <= device.memory) return Bytes(0);
  return needed - device.memory;
}

/// Collects everything that is wrong with a plan, before and after it is cut and scheduled.
class PlanCheck {
 public:
  PlanCheck(const Plan& plan, const ModelGraph& graph) : plan_(plan), graph_(graph) {}

  ProblemList& problems() { return problems_; }

  /// Tells per stage what context-parallel ranks cannot share.
  void check_sequences(const StagedGraph& staged) {
    for (const StageId stage : plan_.stages.ids()) {
      const auto& replicas = plan_.stages[stage].replicas;
      if (replicas.empty() || replicas[ReplicaId(0)].part.whole()) continue;
      check_sequence_parts(graph_, staged.nodes[stage], replicas[ReplicaId(0)].part, problems_);
    }
  }

  /// Everything that needs neither a cluster nor a schedule.
  void check_alone() {
    check_hash();
    check_numbers();
    for (const StageId stage : plan_.stages.ids()) check_replicas(stage);
    check_ranks();
    check_degrees();
  }

  void check_on(const Cluster& cluster) {
    const auto ranks = static_cast<int>(cluster.ranks.size());
    if (plan_.ranks() > ranks) {
      problems_.add(
          fmt::format("a plan of {} ranks on the cluster '{}'", plan_.ranks(), cluster.name),
          fmt::format("it has {}", ranks), "Use a larger cluster or fewer ranks.");
    }
    for (const StageId stage : plan_.stages.ids()) check_classes(stage, cluster);
  }

  /// A wire's format is for tensors that travel: there must be an edge, and one format for it.
  void check_wires(const StagedGraph& staged) {
    std::set<std::pair<StageId, StageId>> seen;
    for (const StageWire& wire : plan_.wires) {
      const bool edge = std::ranges::any_of(
          staged.edges, [&](const StageEdge& e) { return e.from == wire.from && e.to == wire.to; });
      if (!edge) {
        problems_.add(fmt::format("a wire format between stages {} and {}", wire.from.value(),
                                  wire.to.value()),
                      "nothing goes from the one to the other", "Remove it.");
      }
      if (!seen.emplace(wire.from, wire.to).second) {
        problems_.add(fmt::format("two wire formats between stages {} and {}", wire.from.value(),
                                  wire.to.value()),
                      "", "Give one.");
      }
    }
  }

  /// Names every rank whose ledger exceeds its device's memory, and gives the most that one lacks;
  /// a limit of 0 is none.
  Bytes check_memory(const Cluster& cluster, const std::vector<MemoryLedger>& ledgers,
                     const std::vector<RankRole>& roles) {
    Bytes lacking;
    for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
      const DeviceClass& device = class_of(cluster, RankId(rank));
      const Bytes lacks = lacking_on(device, ledgers[rank]);
      if (lacks == Bytes(0)) continue;
      lacking = std::max(lacking, lacks);
      problems_.add(fmt::format("{} {} on rank {}, {} ({} available)", stages_text(roles[rank]),
                                rounded_byte_size(ledgers[rank].total()), rank, device.name,
                                rounded_byte_size(device.memory)),
                    "", "Try a smaller micro-batch, more stages or recomputation full.");
    }
    return lacking;
  }

 private:
  void check_hash() {
    if (plan_.graph_hash.empty()) return;
    const std::string hash = graph_.hash();
    if (plan_.graph_hash == hash) return;
    problems_.add(fmt::format("the plan is for the graph {}", plan_.graph_hash),
                  fmt::format("the model '{}' is {}", graph_.name, hash),
                  "Use the plan's own workload, or leave graph_hash out.");
  }

  void check_numbers() {
    check_zero_stage(plan_.zero_stage, problems_);

    if (plan_.micro_batches < 1 || plan_.chunks < 1) {
      problems_.add(fmt::format("a plan of {} micro-batches and {} chunks", plan_.micro_batches,
                                plan_.chunks),
                    "both are 1 or more");
    }
    check_contrast();
  }

  /// A sample that is held against itself alone teaches nothing.
  void check_contrast() {
    const std::string& loss = graph_.node(graph_.loss()).name;
    const auto contrast = contrast_of(graph_);
    if (!contrast || plan_.stages.empty()) return;
    std::set<std::size_t> degrees;
    for (const StageReplica& replica : plan_.stages.back().replicas) {
      degrees.insert(replica.ranks.size());
    }
    if (degrees.size() > 1) {
      problems_.add(fmt::format("the replicas of the loss '{}' have {} tensor-parallel ranks", loss,
                                fmt::join(degrees, " and ")),
                    "those of one index hold the samples together", "Give all one degree.");
    }
    const bool step = *contrast == ContrastOver::step;
    const auto samples =
        step ? static_cast<std::int64_t>(plan_.samples_per_step()) : plan_.micro_batch_samples();
    if (samples >= 2) return;
    problems_.add(
        fmt::format("the loss '{}' over {} sample{}", loss, samples, samples == 1 ? "" : "s"),
        fmt::format("it holds those of a {} against one another", step ? "step" : "micro-batch"),
        "Give 2 or more.");
  }

  /// All stages see the same micro-batches, so their replicas must take the same number of samples.
  void check_replicas(StageId stage) {
    const PlanStage& s = plan_.stages[stage];
    std::int64_t samples[2] = {0, 0};
    for (const ReplicaId i : s.replicas.ids()) {
      const StageReplica& replica = s.replicas[i];
      if (replica.ranks.empty()) {
        problems_.add(fmt::format("replica {} of stage {} has no ranks", i.value(), stage.value()),
                      "", "Give it one or more.");
      }
      if (replica.micro_batch < 1) {
        problems_.add(fmt::format("replica {} of stage {} takes {} samples", i.value(),
                                  stage.value(), replica.micro_batch),
                      "", "Give 1 or more.");
      }
      if (replica.direction == 0 || replica.direction == 1) {
        samples[replica.direction] += replica.ends_samples() ? replica.micro_batch : 0;
      }
    }
    check_parts(stage);
    const std::int64_t wanted = plan_.micro_batch_samples();
    for (const int direction : {0, 1}) {
      if (samples[direction] == wanted || (direction == 1 && samples[1] == 0)) continue;
      problems_.add(fmt::format("the replicas of stage {} take {} samples of a micro-batch",
                                stage.value(), samples[direction]),
                    fmt::format("those of stage 0 take {}", wanted),
                    "Give every stage the same micro-batch.");
    }
  }

  /// The parts of a sequence follow one another, on replicas that are alike.
  void check_parts(StageId stage) {
    const auto& replicas = plan_.stages[stage].replicas;
    const StageReplica* before = nullptr;
    for (const StageReplica& replica : replicas) {
      const bool begins = before == nullptr || before->ends_samples();
      SequencePart wanted = begins ? replicas[ReplicaId(0)].part.first_part() : before->part;
      if (!begins) ++wanted.index;
      const bool alike = begins || (replica.micro_batch == before->micro_batch &&
                                    replica.direction == before->direction &&
                                    replica.ranks.size() == before->ranks.size());
      before = &replica;
      if (replica.part == wanted && alike) continue;
      problems_.add(fmt::format("a replica of stage {} has part {} of {} of its sequences, where "
                                "part {} of {} is next",
                                stage.value(), replica.part.index, replica.part.parts, wanted.index,
                                wanted.parts),
                    "replicas with the parts of the same samples follow one another, with as many "
                    "ranks each, and all of a stage have as many parts",
                    "Give the replicas in this order.");
      return;
    }
    if (before == nullptr || before->ends_samples()) return;
    problems_.add(fmt::format("the replicas of stage {} end with part {} of {} of a sequence",
                              stage.value(), before->part.index, before->part.parts),
                  "every part has a replica", "Add the others.");
  }

  /// Every rank has work, and works in one replica of a stage.
  void check_ranks() {
    std::set<int> named;
    for (const StageId stage : plan_.stages.ids()) {
      std::set<std::pair<int, int>> here;  // direction, rank
      for (const StageReplica& replica : plan_.stages[stage].replicas) {
        for (const RankId rank : replica.ranks) {
          if (rank.value() < 0) problems_.add(fmt::format("rank {}", rank.value()));
          named.insert(rank.value());
          if (here.emplace(replica.direction, rank.value()).second) continue;
          problems_.add(fmt::format("stage {} names rank {} twice", stage.value(), rank.value()),
                        "a rank has one place in a stage", "Name it once.");
        }
      }
    }
    std::vector<int> missing;
    for (int rank = 0, end = plan_.ranks(); rank < end && missing.size() < 8; ++rank) {
      if (!named.contains(rank)) missing.push_back(rank);
    }
    if (missing.empty()) return;
    problems_.add(fmt::format("no stage names rank{} {}", missing.size() == 1 ? "" : "s",
                              fmt::join(missing, ", ")),
                  fmt::format("ranks go up to {}", plan_.ranks() - 1),
                  "Number the ranks without gaps.");
  }

  /// A degree is asked of the components that have it: others have heads of their own.
  void check_degrees() {
    std::map<std::string, const std::string*> component_of;  // by name of a node
    for (const Node& node : graph_.nodes()) component_of.emplace(node.name, &node.branch);
    std::map<int, std::set<std::string>> components;  // by degree
    for (const PlanStage& stage : plan_.stages) {
      for (const StageReplica& replica : stage.replicas) {
        if (replica.ranks.size() < 2) continue;
        std::set<std::string>& here = components[static_cast<int>(replica.ranks.size())];
        for (const std::string& node : stage.nodes) {
          const auto known = component_of.find(node);
          if (known != component_of.end()) here.insert(*known->second);
        }
      }
    }
    for (const auto& [degree, names] : components) {
      check_tensor_degree(graph_, names, degree, problems_);
    }
  }

  void check_classes(StageId stage, const Cluster& cluster) {
    for (const StageReplica& replica : plan_.stages[stage].replicas) {
      // A plan that names no class runs on any.
      if (replica.device_class.empty()) continue;
      for (const RankId rank : replica.ranks) {
        if (rank.index() >= cluster.ranks.size()) continue;
        const std::string& is = cluster.ranks[rank.index()].device_class;
        if (is == replica.device_class) continue;
        problems_.add(fmt::format("stage {} wants rank {} to be a '{}'", stage.value(),
                                  rank.value(), replica.device_class),
                      fmt::format("in the cluster '{}' it is a '{}'", cluster.name, is),
                      "Use the cluster that the plan was made for.");
      }
    }
  }

  /// The stages of a rank that need something, as messages name them.
  static std::string stages_text(const RankRole& role) {
    std::vector<int> numbers;
    for (const RankRole::Part& part : role.parts) numbers.push_back(part.stage.value());
    std::ranges::sort(numbers);
    const bool single = numbers.size() == 1;
    return fmt::format("stage{} {} need{}", single ? "" : "s", fmt::join(numbers, " and "),
                       single ? "s" : "");
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  ProblemList problems_;
};

/// True where every rank's ledger fits its device.
bool fit(const std::vector<MemoryLedger>& ledgers, const Cluster& cluster) {
  for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
    if (lacking_on(class_of(cluster, RankId(rank)), ledgers[rank]) > Bytes(0)) return false;
  }
  return true;
}

}  // namespace

ReadyPlan::ReadyPlan(const TrainingTask& task, Plan given, std::optional<Cluster> used)
    : plan(std::move(given)), cluster(std::move(used)) {
  const ModelGraph& graph = task.graph;
  PlanCheck check(plan, graph);
  ProblemList& problems = check.problems();
  check.check_alone();
  collect_problems(problems, [&] {
    staged = cut_graph(graph, plan);
    check.check_wires(staged);
    check.check_sequences(staged);
  });
  // Only a sound plan has a schedule; of another one at least the name of its schedule is looked
  // at.
  const bool sound = problems.empty();
  if (!sound) collect_problems(problems, [&] { find_generator(plan.schedule); });
  const bool fits = cluster && plan.ranks() <= static_cast<int>(cluster->ranks.size());
  if (sound && fits) {
    try {
      times = stage_times(task, staged, plan, known_better(*cluster, plan));
    } catch (const UserError& error) {
      unpredicted = error.problems();
    }
  }
  if (sound) {
    collect_problems(problems, [&] {
      RankBytes bytes(task, staged, plan);
      const auto order = [&](const StageShares& shares) {
        schedule = plan_schedule(graph, staged, plan, times ? &*times : nullptr, shares);
        timeline = simulate(schedule);
        roles = rank_roles(plan, schedule);
        memory = plan_memory(bytes, schedule, timeline);
      };
      order({});
      // An order that is searched can be held to the memory where the best one takes too much.
      const bool searches = find_generator(plan.schedule).order == StageOrder::any;
      if (searches && fits && !fit(memory, *cluster)) order(stage_shares(bytes, *cluster));
    });
  }
  if (cluster) check.check_on(*cluster);
  const bool runs = problems.empty();
  const Bytes lacking = fits ? check.check_memory(*cluster, memory, roles) : Bytes(0);
  if (runs && lacking > Bytes(0)) throw MemoryRefusal(problems.problems(), lacking);
  problems.throw_if_any();
  if (times) prediction = predict(staged, plan, *times, schedule, timeline);
}

const Prediction& ReadyPlan::predicted() const {
  if (!unpredicted.empty()) throw UserError(unpredicted);
  return prediction.value();
}

std::vector<double> ReadyPlan::busy_s() const {
  HETEROPERF_EXPECT(times.has_value());
  std::vector<double> busy;
  for (const RankRole& role : roles) {
    double& sum = busy.emplace_back(0);
    for (const RankRole::Part& part : role.parts) {
      const StageTimes::Compute& pass = times->compute[part.stage][part.replica];
      for (const Instruction& i : schedule.programs[role.position.index()]) {
        if (i.segment != part.segment) continue;
        if (i.op == Op::forward) sum += pass.forward_s;
        if (i.op == Op::recompute) sum += pass.recompute_s;
        if (i.op == Op::input_gradient || i.op == Op::backward) sum += pass.input_gradient_s;
        if (i.op == Op::weight_gradient || i.op == Op::backward) sum += pass.weight_gradient_s;
      }
      sum += times->optimizer_s[part.stage];
    }
  }
  return busy;
}

double ReadyPlan::idle_fraction() const {
  const std::vector<double> busy = busy_s();
  const double all_s = predicted().step_time_s * static_cast<double>(busy.size());
  return 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all_s;
}

ReadyPlan ready_on(const TrainingTask& task, Plan plan, const Cluster& whole) {
  Cluster used = plan_cluster(plan, whole);
  return ReadyPlan(task, std::move(plan), std::move(used));
}

ReadyPlan ready_with_recomputation(const TrainingTask& task, Plan plan, const Cluster& whole) {
  std::optional<MemoryRefusal> nearest;
  for (const Recomputation least : recomputations) {
    bool changed = least == Recomputation::none;
    for (PlanStage& stage : plan.stages) {
      changed = changed || stage.recomputation < least;
      stage.recomputation = std::max(stage.recomputation, least);
    }
    if (!changed) continue;
    try {
      return ready_on(task, plan, whole);
    } catch (const MemoryRefusal& refusal) {
      if (!nearest || refusal.lacking < nearest->lacking) nearest = refusal;
    }
  }
  throw *nearest;
}

}  // namespace heteroperf

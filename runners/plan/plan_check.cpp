#include "runners/plan/plan_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <variant>

#include "metrics/base/byte_size.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_memory.hpp"
#include "runners/plan/plan_schedule.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor_parallel.hpp"
#include "runners/schedule/generator.hpp"

namespace heteroperf {
namespace {

/// Runs `check`; what it throws of the user's problems is added. Nothing where it throws.
template <class Check>
auto collect(ProblemList& problems, Check&& check) -> std::optional<decltype(check())> {
  try {
    return check();
  } catch (const UserError& error) {
    for (const Problem& p : error.problems()) problems.add(p.problem, p.why, p.suggestion);
    return std::nullopt;
  }
}

class PlanCheck {
 public:
  PlanCheck(const Plan& plan, const ModelGraph& graph) : plan_(plan), graph_(graph) {}

  void check() {
    check_hash();
    check_numbers();
    for (int stage = 0; stage < stages(); ++stage) check_replicas(stage);
    check_ranks();
    check_degrees();
    staged_ = collect(problems_, [&] { return cut_graph(graph_, plan_); });
    if (staged_) check_wires();
    // A schedule makes sense of sound stages only.
    if (problems_.empty()) {
      schedule_ = collect(problems_, [&] { return plan_schedule(graph_, *staged_, plan_); });
    } else {
      collect(problems_, [&] { return find_generator(plan_.schedule).name; });
    }
  }

  void check(const Cluster& cluster, Precision precision, OptimizerKind optimizer) {
    const auto ranks = static_cast<int>(cluster.ranks.size());
    if (plan_.ranks() > ranks) {
      problems_.add(
          fmt::format("a plan of {} ranks on the cluster '{}'", plan_.ranks(), cluster.name),
          fmt::format("it has {}", ranks), "Use a larger cluster or fewer ranks.");
    }
    for (int stage = 0; stage < stages(); ++stage) check_classes(stage, cluster);
    if (schedule_ && plan_.ranks() <= ranks) check_memory(cluster, precision, optimizer);
  }

  void raise() const { problems_.throw_if_any(); }

 private:
  int stages() const { return static_cast<int>(plan_.stages.size()); }

  void check_hash() {
    const std::string hash = graph_.hash();
    if (plan_.graph_hash.empty() || plan_.graph_hash == hash) return;
    problems_.add(fmt::format("the plan is for the graph {}", plan_.graph_hash),
                  fmt::format("the model '{}' is {}", graph_.name, hash),
                  "Use the plan's own workload, or leave graph_hash out.");
  }

  void check_numbers() {
    if (plan_.zero_stage < 0 || plan_.zero_stage > 1) {
      problems_.add(fmt::format("ZeRO stage {}", plan_.zero_stage),
                    "0 keeps all optimizer states everywhere, 1 spreads them", "Give 0 or 1.");
    }
    if (plan_.micro_batches < 1 || plan_.chunks < 1) {
      problems_.add(fmt::format("a plan of {} micro-batches and {} chunks", plan_.micro_batches,
                                plan_.chunks),
                    "both are 1 or more");
    }
  }

  void check_replicas(int stage) {
    const PlanStage& s = plan_.stages[at_index(stage)];
    std::int64_t samples[2] = {0, 0};
    for (std::size_t i = 0; i < s.replicas.size(); ++i) {
      const StageReplica& replica = s.replicas[i];
      if (replica.ranks.empty()) {
        problems_.add(fmt::format("replica {} of stage {} has no ranks", i, stage), "",
                      "Give it one or more.");
      }
      if (replica.micro_batch < 1) {
        problems_.add(
            fmt::format("replica {} of stage {} takes {} samples", i, stage, replica.micro_batch),
            "", "Give 1 or more.");
      }
      if (replica.direction == 0 || replica.direction == 1) {
        samples[replica.direction] += replica.micro_batch;
      }
    }
    const std::int64_t wanted = plan_.micro_batch_samples();
    for (const int direction : {0, 1}) {
      if (samples[direction] == wanted || (direction == 1 && samples[1] == 0)) continue;
      problems_.add(fmt::format("the replicas of stage {} take {} samples of a micro-batch", stage,
                                samples[direction]),
                    fmt::format("those of stage 0 take {}", wanted),
                    "Give every stage the same micro-batch.");
    }
  }

  /// Every rank has work, and works in one replica of a stage.
  void check_ranks() {
    std::set<int> named;
    for (int stage = 0; stage < stages(); ++stage) {
      std::set<std::pair<int, int>> here;  // direction, rank
      for (const StageReplica& replica : plan_.stages[at_index(stage)].replicas) {
        for (const RankId rank : replica.ranks) {
          if (rank.value() < 0) problems_.add(fmt::format("rank {}", rank.value()));
          named.insert(rank.value());
          if (here.emplace(replica.direction, rank.value()).second) continue;
          problems_.add(fmt::format("stage {} names rank {} twice", stage, rank.value()),
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

  void check_degrees() {
    std::set<int> degrees;
    for (const PlanStage& stage : plan_.stages) {
      for (const StageReplica& replica : stage.replicas) {
        if (replica.ranks.size() > 1) degrees.insert(static_cast<int>(replica.ranks.size()));
      }
    }
    for (const int degree : degrees) {
      collect(problems_, [&] { return tensor_shard(graph_, degree, 0).degree; });
    }
  }

  void check_wires() {
    std::set<std::pair<int, int>> seen;
    for (const StageWire& wire : plan_.wires) {
      const bool edge =
          std::any_of(staged_->edges.begin(), staged_->edges.end(),
                      [&](const StageEdge& e) { return e.from == wire.from && e.to == wire.to; });
      if (!edge) {
        problems_.add(fmt::format("a wire format between stages {} and {}", wire.from, wire.to),
                      "nothing goes from the one to the other", "Remove it.");
      }
      if (!seen.emplace(wire.from, wire.to).second) {
        problems_.add(fmt::format("two wire formats between stages {} and {}", wire.from, wire.to),
                      "", "Give one.");
      }
    }
  }

  void check_classes(int stage, const Cluster& cluster) {
    for (const StageReplica& replica : plan_.stages[at_index(stage)].replicas) {
      if (replica.device_class.empty()) continue;
      for (const RankId rank : replica.ranks) {
        if (at_index(rank.value()) >= cluster.ranks.size()) continue;
        const std::string& is = cluster.ranks[at_index(rank.value())].device_class;
        if (is == replica.device_class) continue;
        problems_.add(fmt::format("stage {} wants rank {} to be a '{}'", stage, rank.value(),
                                  replica.device_class),
                      fmt::format("in the cluster '{}' it is a '{}'", cluster.name, is),
                      "Use the cluster that the plan was made for.");
      }
    }
  }

  void check_memory(const Cluster& cluster, Precision precision, OptimizerKind optimizer) {
    const std::vector<MemoryLedger> ledgers = plan_memory(
        graph_, *staged_, plan_, *schedule_, simulate(*schedule_), precision, optimizer);
    const std::vector<RankRole> roles = rank_roles(plan_, *schedule_);
    for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
      const std::string& name = cluster.ranks[rank].device_class;
      const auto device = std::find_if(cluster.classes.begin(), cluster.classes.end(),
                                       [&](const DeviceClass& one) { return one.name == name; });
      if (device == cluster.classes.end() || device->memory == Bytes(0)) continue;
      if (ledgers[rank].total() <= device->memory) continue;
      problems_.add(fmt::format("{} needs {} on rank {}, {} ({} available)",
                                stages_text(roles[rank]), rounded_byte_size(ledgers[rank].total()),
                                rank, name, rounded_byte_size(device->memory)),
                    "", "Try a smaller micro-batch, more stages or recomputation full.");
    }
  }

  static std::string stages_text(const RankRole& role) {
    std::vector<int> numbers;
    for (const RankRole::Part& part : role.parts) numbers.push_back(part.stage);
    std::sort(numbers.begin(), numbers.end());
    return fmt::format("stage{} {}", numbers.size() == 1 ? "" : "s", fmt::join(numbers, " and "));
  }

  const Plan& plan_;
  const ModelGraph& graph_;
  ProblemList problems_;
  std::optional<StagedGraph> staged_;
  std::optional<Schedule> schedule_;
};

}  // namespace

void check_plan(const Plan& plan, const ModelGraph& graph) {
  PlanCheck check(plan, graph);
  check.check();
  check.raise();
}

void check_plan(const Plan& plan, const ModelGraph& graph, const Cluster& cluster,
                Precision precision, OptimizerKind optimizer) {
  PlanCheck check(plan, graph);
  check.check();
  check.check(cluster, precision, optimizer);
  check.raise();
}

}  // namespace heteroperf

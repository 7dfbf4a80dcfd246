// Sailor's formulas for a step, `sailor` and `sailor+` (README.md has them as a table).
//
// A plan has thousands of replicas and few that differ, and the search scores millions of plans, so
// nothing here visits replicas one by one. Pipelines with equal shares are a *group*: the formulas
// take the slowest replica of each stage among them. A walk over *neighbourhoods* (one kind of
// replica, the kind it sends to, the group of its pipeline) meets every distinct combination once.
#include "runners/plan/rivals/sailor/sailor_score.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

/// The groups of a plan's pipelines. A run is one entry of shares_of(): neighbouring pipelines.
struct Groups {
  std::vector<SailorShare> shares;  ///< distinct
  std::vector<std::size_t> of_run;
  std::vector<int> run_count;  ///< pipelines of a run
};

/// Shares are equal when each pipeline takes the same; the numbers of pipelines may differ.
bool equal_share(const SailorShare& a, const SailorShare& b) {
  return a.micro_batch == b.micro_batch && a.micro_batches == b.micro_batches && a.tails == b.tails;
}

/// Distinct shares in the order of their first pipeline.
Groups groups_of(const SailorTables& tables, const SailorPlan& plan) {
  Groups groups;
  for (const SailorShare& share : shares_of(tables, plan)) {
    const auto known = std::find_if(groups.shares.begin(), groups.shares.end(),
                                    [&](const SailorShare& s) { return equal_share(s, share); });
    groups.of_run.push_back(static_cast<std::size_t>(known - groups.shares.begin()));
    groups.run_count.push_back(share.count);
    if (known == groups.shares.end()) groups.shares.push_back(share);
  }
  return groups;
}

/// Calls `visit(replica, of, group)` for every distinct neighbourhood: replica j of `stage`,
/// replica j mod width of `partner_stage`, the group of pipeline j.
template <class Visit>
void for_each_pair(const SailorStage& stage, const SailorStage& partner_stage, const Groups& groups,
                   Visit visit) {
  // Without shares of their own all pipelines are one group.
  const bool shared = groups.of_run.size() > 1;
  std::size_t partner = 0, run = 0;
  int partner_left = partner_stage.replicas[0].count, run_left = groups.run_count[0];
  for (const SailorReplicas& replica : stage.replicas) {
    for (int left = replica.count; left > 0;) {
      visit(replica, partner_stage.replicas[partner], groups.of_run[run]);
      const int together =
          shared ? std::min({left, partner_left, run_left}) : std::min(left, partner_left);
      left -= together;
      // Replica j talks to replica j modulo the other stage's width, so partners come around again.
      if ((partner_left -= together) == 0) {
        partner = (partner + 1) % partner_stage.replicas.size();
        partner_left = partner_stage.replicas[partner].count;
      }
      if (shared && (run_left -= together) == 0) {
        run = std::min(run + 1, groups.of_run.size() - 1);
        run_left = groups.run_count[run];
      }
    }
  }
}

/// Computing and sending of one micro-batch, for every size that the plan has: of each group its
/// own size first, then its tails'.
class PipelineTimes {
 public:
  PipelineTimes(const SailorTables& tables, const SailorPlan& plan)
      : tables_(tables), plan_(plan), groups_(groups_of(tables, plan)) {
    for (const SailorShare& share : groups_.shares) {
      first_.push_back(sizes_.size());
      sizes_.push_back(share.micro_batch);
      sizes_.insert(sizes_.end(), share.tails.begin(), share.tails.end());
    }
    first_.push_back(sizes_.size());
    compute_.assign(sizes_.size() * plan.stages.size(), 0);
    communication_ = compute_;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) fill(s);
  }

  const Groups& groups() const { return groups_; }
  double seconds(std::size_t group) const;
  std::size_t slowest_group() const;
  /// Seconds of a micro-batch of the group's own size.
  double compute(std::size_t group, std::size_t stage) const {
    return compute_[slot(first_[group], stage)];
  }
  double communication(std::size_t group, std::size_t stage) const {
    return communication_[slot(first_[group], stage)];
  }

 private:
  std::size_t slot(std::size_t size, std::size_t stage) const {
    return size * plan_.stages.size() + stage;
  }
  void fill(std::size_t stage);
  void add_sends(std::size_t stage, std::size_t neighbour, int layer, double times);
  double slowest(std::size_t size) const;

  const SailorTables& tables_;
  const SailorPlan& plan_;
  Groups groups_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::size_t> first_;  ///< by group, and the end
  std::vector<double> compute_, communication_;
  std::vector<double> sends_;
};

// The slowest replica of each group counts, and so does the slowest of its sends.
void PipelineTimes::fill(std::size_t s) {
  const SailorStage& stage = plan_.stages[s];
  for_each_pair(stage, stage, groups_,
                [&](const SailorReplicas& replica, const SailorReplicas&, std::size_t group) {
                  for (std::size_t i = first_[group]; i < first_[group + 1]; ++i) {
                    double& most = compute_[slot(i, s)];
                    most = std::max(most, tables_.compute_s(replica.place, replica.tensor,
                                                            sizes_[i], stage.begin, stage.end));
                  }
                });
  const SailorSends sends = sailor_sends(s, plan_.stages.size());
  if (sends.to_next > 0) add_sends(s, s + 1, stage.end - 1, sends.to_next);
  if (sends.to_previous > 0) add_sends(s, s - 1, stage.begin, sends.to_previous);
}

/// Adds the slowest of the stage's sends to `neighbour`, `times` over.
void PipelineTimes::add_sends(std::size_t s, std::size_t neighbour, int layer, double times) {
  sends_.assign(sizes_.size(), 0);
  const auto visit = [&](const SailorReplicas& from, const SailorReplicas& to, std::size_t group) {
    for (std::size_t i = first_[group]; i < first_[group + 1]; ++i) {
      sends_[i] = std::max(sends_[i], tables_.send_s(from.place, from.tensor, to.place, to.tensor,
                                                     layer, sizes_[i]));
    }
  };
  for_each_pair(plan_.stages[s], plan_.stages[neighbour], groups_, visit);
  for (std::size_t i = 0; i < sizes_.size(); ++i) communication_[slot(i, s)] += times * sends_[i];
}

double PipelineTimes::slowest(std::size_t size) const {
  double most = 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    most = std::max(most, compute_[slot(size, s)] + communication_[slot(size, s)]);
  }
  return most;
}

// The first micro-batch passes all stages; each further one takes the slowest stage, and so does
// each tail at its own size.
double PipelineTimes::seconds(std::size_t group) const {
  // The group's own size comes first, its tails behind it.
  const std::size_t main = first_[group];
  const std::int64_t more = groups_.shares[group].micro_batches - 1;
  double time = more > 0 ? static_cast<double>(more) * slowest(main) : 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    time += compute_[slot(main, s)] + communication_[slot(main, s)];
  }
  for (std::size_t i = main + 1; i < first_[group + 1]; ++i) time += slowest(i);
  return time;
}

std::size_t PipelineTimes::slowest_group() const {
  std::size_t most = 0;
  for (std::size_t g = 1; g < groups_.shares.size(); ++g) {
    if (seconds(g) > seconds(most)) most = g;
  }
  return most;
}

/// Update times in the profiles hardly depend on the size of the micro-batch; each replica's are
/// taken at its own.
double update_s(const SailorTables& tables, const Groups& groups, const SailorStage& stage) {
  double most = 0;
  for_each_pair(stage, stage, groups,
                [&](const SailorReplicas& replica, const SailorReplicas&, std::size_t group) {
                  most = std::max(most,
                                  tables.update_s(replica.place, replica.tensor,
                                                  groups.shares[group].micro_batch, stage.begin));
                });
  return most;
}

/// A ring passes from replica to replica in their order, so the pairs are those of neighbouring
/// groups, and a group with itself where it has several.
double reduction_s(const SailorTables& tables, const SailorStage& stage) {
  const int width = stage.width();
  int least = stage.replicas.front().tensor;
  for (const SailorReplicas& group : stage.replicas) least = std::min(least, group.tensor);
  double most = 0;
  const auto add = [&](int a, int b) {
    most = std::max(most, tables.reduction_s(a, b, width, least, stage.begin, stage.end));
  };
  for (std::size_t i = 0; i < stage.replicas.size(); ++i) {
    const SailorReplicas& group = stage.replicas[i];
    if (group.count > 1) add(group.place, group.place);
    if (i + 1 < stage.replicas.size()) add(group.place, stage.replicas[i + 1].place);
  }
  return most;
}

/// Finds the replica of a stage that is nearest its memory limit.
SailorReport::Stage memory_of(const SailorTables& tables, const Groups& groups,
                              const SailorPlan& plan, std::size_t s) {
  const SailorStage& stage = plan.stages[s];
  SailorReport::Stage fullest;
  const auto visit = [&](const SailorReplicas& replica, const SailorReplicas&, std::size_t group) {
    const SailorShare& share = groups.shares[group];
    std::int64_t size = share.micro_batch;
    for (const std::int64_t tail : share.tails) size = std::max(size, tail);
    const double bytes = tables.memory_bytes(replica.tensor, size, stage.begin, stage.end,
                                             static_cast<int>(plan.stages.size() - s));
    const double limit = tables.memory_limit_bytes(replica.place);
    // Compares bytes / limit of the two without dividing.
    if (fullest.memory_limit_bytes > 0 &&
        bytes * fullest.memory_limit_bytes <= fullest.memory_bytes * limit) {
      return;
    }
    fullest.memory_bytes = bytes;
    fullest.memory_limit_bytes = limit;
  };
  for_each_pair(stage, stage, groups, visit);
  return fullest;
}

/// The slowest update of all stages.
double update_s(const SailorTables& tables, const SailorPlan& plan, const Groups& groups) {
  double most = 0;
  for (const SailorStage& stage : plan.stages) {
    most = std::max(most, update_s(tables, groups, stage));
  }
  return most;
}

/// The slowest sum of all stages.
double reduction_s(const SailorTables& tables, const SailorPlan& plan) {
  double most = 0;
  for (const SailorStage& stage : plan.stages) most = std::max(most, reduction_s(tables, stage));
  return most;
}

}  // namespace

std::vector<SailorShare> shares_of(const SailorTables& tables, const SailorPlan& plan) {
  if (!plan.shares.empty()) return plan.shares;
  const int width = plan.stages.front().width();
  const std::int64_t together = plan.micro_batch * width;
  return {{width, plan.micro_batch, (tables.global_batch() + together - 1) / together, {}}};
}

double sailor_step_time_s(const SailorTables& tables, const SailorPlan& plan) {
  const PipelineTimes times(tables, plan);
  return times.seconds(times.slowest_group()) + update_s(tables, plan, times.groups()) +
         reduction_s(tables, plan);
}

bool fits_sailor_memory(const SailorTables& tables, const SailorPlan& plan) {
  const Groups groups = groups_of(tables, plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const SailorReport::Stage fullest = memory_of(tables, groups, plan, s);
    if (fullest.memory_bytes > fullest.memory_limit_bytes) return false;
  }
  return true;
}

SailorReport sailor_report(const SailorTables& tables, const SailorPlan& plan) {
  const PipelineTimes times(tables, plan);
  const std::size_t slowest = times.slowest_group();
  SailorReport report;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    SailorReport::Stage& stage = report.stages.emplace_back();
    stage = memory_of(tables, times.groups(), plan, s);
    stage.compute_s = times.compute(slowest, s);
    stage.communication_s = times.communication(slowest, s);
    stage.update_s = update_s(tables, times.groups(), plan.stages[s]);
    stage.reduction_s = reduction_s(tables, plan.stages[s]);
  }
  report.pipeline_s = times.seconds(slowest);
  report.update_s = update_s(tables, plan, times.groups());
  report.reduction_s = reduction_s(tables, plan);
  report.step_time_s = report.pipeline_s + report.update_s + report.reduction_s;
  return report;
}

}  // namespace heteroperf

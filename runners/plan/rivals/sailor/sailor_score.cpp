// Sailor's formulas for a step, `sailor` and `sailor+` (README.md has them as a table), and
// everything that can be wrong with a plan that is to be scored.
//
// A plan has thousands of replicas and few that differ, and the search scores millions of plans, so
// nothing here visits replicas one by one. Pipelines with equal shares are a *group*: the formulas
// take the slowest replica of each stage among them. A walk over *neighbourhoods* (one kind of
// replica, the kind it sends to, the group of its pipeline) meets every distinct combination once.
//
// A plan comes from a search, from a file, or from a planner of another project, so the checks take
// nothing for granted: first its shape, then the profiles and links that it needs, then memory.
// Each of the three names all its problems at once, and the next is asked only of a plan that the
// one before found sound.
#include "runners/plan/rivals/sailor/sailor_score.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Pipelines with equal shares.
struct Group {
  std::vector<std::int64_t> sizes;  ///< micro-batches: its own size first, then its tails
  std::int64_t micro_batches = 1;   ///< those of the first size
  friend bool operator==(const Group&, const Group&) = default;
};

/// The groups of a plan, distinct, in the order of their first pipeline. A run is one entry of
/// shares_of(): neighbouring pipelines.
struct Groups {
  std::vector<Group> all;
  std::vector<std::size_t> of_run;
  std::vector<int> run_count;  ///< pipelines of a run
};

Groups groups_of(const SailorTables& tables, const SailorPlan& plan) {
  Groups groups;
  for (const SailorShare& share : shares_of(tables, plan)) {
    Group group{{share.micro_batch}, share.micro_batches};
    group.sizes.insert(group.sizes.end(), share.tails.begin(), share.tails.end());
    const auto known = std::ranges::find(groups.all, group);
    groups.of_run.push_back(static_cast<std::size_t>(known - groups.all.begin()));
    groups.run_count.push_back(share.count);
    if (known == groups.all.end()) groups.all.push_back(std::move(group));
  }
  return groups;
}

/// Calls `visit(seat, of, group)` for every distinct neighbourhood: replica j of `stage`, replica j
/// mod width of `partner_stage`, the group of pipeline j.
template <class Visit>
void for_each_pair(const SailorStage& stage, const SailorStage& partner_stage, const Groups& groups,
                   Visit visit) {
  // Without shares of their own all pipelines are one group.
  const bool shared = groups.of_run.size() > 1;
  std::size_t partner = 0, run = 0;
  int partner_left = partner_stage.replicas[0].count, run_left = groups.run_count[0];
  for (const SailorReplicas& replica : stage.replicas) {
    for (int left = replica.count; left > 0;) {
      visit(replica.seat, partner_stage.replicas[partner].seat, groups.of_run[run]);
      const int together =
          shared ? std::min({left, partner_left, run_left}) : std::min(left, partner_left);
      left -= together;
      // Replica j talks to replica j modulo the partner_stage stage's width, so partners come
      // around again.
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

/// The largest of `value(seat, of)` over the neighbourhoods of one group.
template <class Value>
double slowest_of(const SailorStage& stage, const SailorStage& partner_stage, const Groups& groups,
                  std::size_t group, Value value) {
  double most = 0;
  for_each_pair(stage, partner_stage, groups,
                [&](const SailorSeat& seat, const SailorSeat& of, std::size_t of_group) {
                  if (of_group == group) most = std::max(most, value(seat, of));
                });
  return most;
}

/// The seconds that the slowest replicas of a group take in every stage for a micro-batch.
std::vector<SailorReport::Stage> stage_times(const SailorTables& tables, const SailorPlan& plan,
                                             const Groups& groups, std::size_t group,
                                             std::int64_t samples) {
  std::vector<SailorReport::Stage> times(plan.stages.size());
  for (std::size_t s = 0; s < times.size(); ++s) {
    const SailorStage& stage = plan.stages[s];
    const auto compute_s = [&](const SailorSeat& seat, const SailorSeat&) {
      return tables.compute_s(seat, samples, stage.layers);
    };
    times[s].compute_s = slowest_of(stage, stage, groups, group, compute_s);
    for_each_send(s, times.size(), stage.layers, [&](std::size_t to, int layer, int count) {
      const auto send_s = [&](const SailorSeat& seat, const SailorSeat& of) {
        return tables.send_s(seat, of, layer, samples);
      };
      times[s].communication_s += count * slowest_of(stage, plan.stages[to], groups, group, send_s);
    });
  }
  return times;
}

/// Calls `visit(place, neighbour)` for the pairs of a stage's ring. It passes from replica to
/// replica in their order, so the pairs are those of neighbouring kinds, and a kind with itself
/// where it has several.
template <class Visit>
void for_each_neighbour(const SailorStage& stage, Visit visit) {
  for (std::size_t i = 0; i < stage.replicas.size(); ++i) {
    const auto& [count, seat] = stage.replicas[i];
    if (count > 1) visit(seat.place, seat.place);
    if (i + 1 < stage.replicas.size()) visit(seat.place, stage.replicas[i + 1].seat.place);
  }
}

double reduction_s(const SailorTables& tables, const SailorStage& stage) {
  const int width = stage.width();
  int least = stage.replicas.front().seat.tensor;
  for (const SailorReplicas& group : stage.replicas) least = std::min(least, group.seat.tensor);
  double most = 0;
  for_each_neighbour(stage, [&](int a, int b) {
    most = std::max(most, tables.reduction_s(a, b, width, least, stage.layers));
  });
  return most;
}

/// Notes the replica of a stage that is nearest its memory limit.
void find_fullest(const SailorTables& tables, const Groups& groups, const SailorPlan& plan,
                  std::size_t s, SailorReport::Stage& fullest) {
  const SailorStage& stage = plan.stages[s];
  for_each_pair(stage, stage, groups,
                [&](const SailorSeat& seat, const SailorSeat&, std::size_t group) {
                  const double bytes =
                      tables.memory_bytes(seat.tensor, std::ranges::max(groups.all[group].sizes),
                                          stage.layers, plan.stages.size() - s);
                  const double limit = tables.memory_limit_bytes(seat.place);
                  // Compares bytes / limit of the two without dividing.
                  if (fullest.memory_limit_bytes > 0 &&
                      bytes * fullest.memory_limit_bytes <= fullest.memory_bytes * limit) {
                    return;
                  }
                  fullest.memory_bytes = bytes;
                  fullest.memory_limit_bytes = limit;
                });
}

/// All of a report but memory. A group's first micro-batch passes all stages; each further one
/// takes the slowest stage, and so does each tail at its own size. Update times in the profiles
/// hardly depend on the size of the micro-batch; each replica's are taken at its own.
SailorReport times_of(const SailorTables& tables, const SailorPlan& plan, const Groups& groups) {
  SailorReport report;
  for (std::size_t group = 0; group < groups.all.size(); ++group) {
    std::vector<SailorReport::Stage> stages;
    double time = 0;
    for (const std::int64_t samples : groups.all[group].sizes) {
      auto times = stage_times(tables, plan, groups, group, samples);
      double slowest = 0;
      for (const auto& stage : times) slowest = std::max(slowest, stage.busy_s());
      if (!stages.empty()) {
        time += slowest;
        continue;
      }
      const std::int64_t more = groups.all[group].micro_batches - 1;
      time = more > 0 ? static_cast<double>(more) * slowest : 0;
      for (const auto& stage : times) time += stage.busy_s();
      stages = std::move(times);
    }
    if (!report.stages.empty() && time <= report.pipeline_s) continue;
    report.stages = std::move(stages);
    report.pipeline_s = time;
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const SailorStage& stage = plan.stages[s];
    double& update_s = report.stages[s].update_s;
    for_each_pair(
        stage, stage, groups, [&](const SailorSeat& seat, const SailorSeat&, std::size_t group) {
          update_s = std::max(
              update_s, tables.update_s(seat, groups.all[group].sizes.front(), stage.layers.begin));
        });
    report.stages[s].reduction_s = reduction_s(tables, stage);
    report.update_s = std::max(report.update_s, update_s);
    report.reduction_s = std::max(report.reduction_s, report.stages[s].reduction_s);
  }
  report.step_time_s = report.pipeline_s + report.update_s + report.reduction_s;
  return report;
}

class SailorCheck {
 public:
  SailorCheck(const SailorTables& tables, const SailorPlan& plan) : tables_(tables), plan_(plan) {}

  void run() {
    check_layers();
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) check_replicas(s);
    check_shares();
    problems_.throw_if_any();
    check_entries();
    check_memory();
    problems_.throw_if_any();
  }

  /// Notes profiles and links that are missing: the tables answer with infinity there. Every size
  /// of a replica's pipeline is asked. Links are needed between neighbours of a stage, for the ring
  /// of its sum, and in both directions between replicas that exchange messages.
  void check_entries() {
    const Groups groups = groups_of(tables_, plan_);
    std::set<std::string> profiles, links;
    const auto note_link = [&](double time, int from, int to) {
      if (std::isfinite(time)) return;
      links.insert(fmt::format("{} to {}", tables_.name(from), tables_.name(to)));
    };
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const SailorStage& stage = plan_.stages[s];
      for_each_pair(stage, stage, groups,
                    [&](const SailorSeat& seat, const SailorSeat&, std::size_t group) {
                      for (const std::int64_t size : groups.all[group].sizes) {
                        if (std::isfinite(tables_.update_s(seat, size, stage.layers.begin)))
                          continue;
                        profiles.insert(fmt::format("{} tp{} micro-batch {}",
                                                    tables_.name(seat.place), seat.tensor, size));
                      }
                    });
      for_each_neighbour(stage, [&](int here, int next) {
        note_link(tables_.reduction_s(here, next, stage.width(), 1, stage.layers), here, next);
      });
      for_each_send(s, plan_.stages.size(), stage.layers, [&](std::size_t to, int layer, int) {
        // An imported plan may have gaps between its stages.
        const SailorLayers& theirs = plan_.stages[to].layers;
        const int answered = to > s ? theirs.begin : theirs.end - 1;
        for_each_pair(stage, plan_.stages[to], groups,
                      [&](const SailorSeat& a, const SailorSeat& b, std::size_t group) {
                        for (const std::int64_t size : groups.all[group].sizes) {
                          note_link(tables_.send_s(a, b, layer, size), a.place, b.place);
                          note_link(tables_.send_s(b, a, answered, size), b.place, a.place);
                        }
                      });
      });
    }
    if (!profiles.empty()) {
      problems_.add(
          fmt::format("no profile of {} for {}", tables_.model(), fmt::join(profiles, "; ")), "",
          "Take sizes that are profiled, or --fill-profiles for analytic times.");
    }
    if (!links.empty()) {
      problems_.add(
          fmt::format("no link, or none that carries such a message: {}", fmt::join(links, "; ")));
    }
    problems_.throw_if_any();
  }

 private:
  /// Stages cover the model without gaps: each begins where the one before ends.
  void check_layers() {
    if (plan_.stages.empty()) problems_.add("the plan has no stages");
    int next = 0;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const auto [begin, end] = plan_.stages[s].layers;
      if (begin != next || end <= begin) {
        problems_.add(fmt::format("stage {} has layers {} to {}", s, begin, end - 1),
                      fmt::format("must begin with layer {} and have one or more", next));
      }
      next = end;
    }
    if (plan_.stages.empty() || next == tables_.layers()) return;
    problems_.add(fmt::format("the stages have {} layers", next),
                  fmt::format("{} has {}", tables_.model(), tables_.layers()));
  }

  /// A replica is a tensor-parallel group of one node, so its degree is bounded by the node.
  void check_replicas(std::size_t s) {
    const SailorStage& stage = plan_.stages[s];
    if (stage.replicas.empty()) problems_.add(fmt::format("stage {} has no replicas", s));
    for (const auto& [count, seat] : stage.replicas) {
      if (count < 1) {
        problems_.add(fmt::format("stage {} has {} replicas of a kind", s, count),
                      "must be one or more");
      }
      HETEROPERF_EXPECT(static_cast<std::size_t>(seat.place) < tables_.places().size());
      if (seat.tensor < 1 || seat.tensor > tables_.per_node(seat.place)) {
        problems_.add(fmt::format("stage {} has tensor-parallel degree {} on {}", s, seat.tensor,
                                  tables_.name(seat.place)),
                      fmt::format("a node has {} devices", tables_.per_node(seat.place)));
      }
    }
  }

  /// A plan with shares gives every pipeline its own samples, which must add up to the batch; then
  /// all stages have one replica per pipeline.
  void check_shares() {
    if (plan_.stages.empty()) return;
    if (plan_.shares.empty()) {
      if (plan_.micro_batch < 1) problems_.add(fmt::format("micro-batch of {}", plan_.micro_batch));
      return;
    }
    int pipelines = 0;
    std::int64_t samples = 0;
    for (const SailorShare& share : plan_.shares) {
      bool sound = share.count >= 1 && share.micro_batch >= 1 && share.micro_batches >= 1;
      for (const std::int64_t tail : share.tails) sound &= tail >= 1 && tail < share.micro_batch;
      if (!sound) {
        problems_.add(
            fmt::format("{} pipelines take {} micro-batches of {} and tails of [{}]", share.count,
                        share.micro_batches, share.micro_batch, fmt::join(share.tails, ", ")),
            "all are one or more, and tails are smaller than the rest");
      }
      pipelines += share.count;
      samples += share.count * share.samples();
    }
    if (samples != tables_.global_batch()) {
      problems_.add(fmt::format("the pipelines take {} samples together", samples),
                    fmt::format("the global batch is {}", tables_.global_batch()));
    }
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const int width = plan_.stages[s].width();
      if (width == pipelines) continue;
      problems_.add(fmt::format("stage {} has {} replicas and there are shares for {} pipelines", s,
                                width, pipelines),
                    "pipelines with shares of their own have one replica of every stage");
    }
  }

  /// The report has the replica of each stage that is nearest its limit.
  void check_memory() {
    const SailorReport report = sailor_report(tables_, plan_);
    for (std::size_t s = 0; s < report.stages.size(); ++s) {
      const SailorReport::Stage& stage = report.stages[s];
      if (stage.fits()) continue;
      problems_.add(fmt::format("stage {} needs {} on a device of {}", s,
                                rounded_byte_size(stage.memory_bytes),
                                rounded_byte_size(stage.memory_limit_bytes)),
                    "by Sailor's memory formula",
                    "Smaller micro-batches, fewer layers or a higher degree need less.");
    }
  }

  const SailorTables& tables_;
  const SailorPlan& plan_;
  ProblemList problems_;
};

}  // namespace

std::vector<SailorShare> shares_of(const SailorTables& tables, const SailorPlan& plan) {
  if (!plan.shares.empty()) return plan.shares;
  const int width = plan.stages.front().width();
  const std::int64_t together = plan.micro_batch * width;
  return {{width, plan.micro_batch, (tables.global_batch() + together - 1) / together, {}}};
}

double sailor_step_time_s(const SailorTables& tables, const SailorPlan& plan) {
  return times_of(tables, plan, groups_of(tables, plan)).step_time_s;
}

bool fits_sailor_memory(const SailorTables& tables, const SailorPlan& plan) {
  const Groups groups = groups_of(tables, plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    SailorReport::Stage fullest;
    find_fullest(tables, groups, plan, s, fullest);
    if (!fullest.fits()) return false;
  }
  return true;
}

SailorReport sailor_report(const SailorTables& tables, const SailorPlan& plan) {
  const Groups groups = groups_of(tables, plan);
  SailorReport report = times_of(tables, plan, groups);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    find_fullest(tables, groups, plan, s, report.stages[s]);
  }
  return report;
}

void check_sailor_plan(const SailorTables& tables, const SailorPlan& plan) {
  SailorCheck(tables, plan).run();
}

void check_sailor_entries(const SailorTables& tables, const SailorPlan& plan) {
  SailorCheck(tables, plan).check_entries();
}

}  // namespace heteroperf

// Everything that can be wrong with a plan for Sailor's inputs: first its shape, which the rest
// relies on, then the profiles and links that it needs, then memory.
//
// A plan comes from a search, from a file, or from a planner of another project, so nothing about
// it is taken for granted. Each of the three parts names all its problems at once, and the next
// part is asked only of a plan that the one before found sound.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"

namespace heteroperf {
namespace {

/// The replicas of a stage, an entry for each; counts mean nothing there.
std::vector<SailorReplicas> every_replica(const SailorStage& stage) {
  std::vector<SailorReplicas> all;
  for (const SailorReplicas& group : stage.replicas) {
    all.insert(all.end(), static_cast<std::size_t>(group.count), group);
  }
  return all;
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

  void check_entries() {
    check_profiles();
    check_links();
    problems_.throw_if_any();
  }

 private:
  void check_layers();
  void check_replicas(std::size_t stage);
  void check_shares();
  void check_profiles();
  void check_links();
  void check_memory();
  const std::string& name(int place) const {
    return tables_.places()[static_cast<std::size_t>(place)];
  }
  std::vector<std::vector<std::int64_t>> sizes() const;

  const SailorTables& tables_;
  const SailorPlan& plan_;
  ProblemList problems_;
};

// Stages cover the model without gaps: each begins where the one before ends.
void SailorCheck::check_layers() {
  if (plan_.stages.empty()) problems_.add("the plan has no stages");
  int next = 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const SailorStage& stage = plan_.stages[s];
    if (stage.begin != next || stage.end <= stage.begin) {
      problems_.add(fmt::format("stage {} has layers {} to {}", s, stage.begin, stage.end - 1),
                    fmt::format("must begin with layer {} and have one or more", next));
    }
    next = stage.end;
  }
  if (plan_.stages.empty() || next == tables_.layers()) return;
  problems_.add(fmt::format("the stages have {} layers", next),
                fmt::format("{} has {}", tables_.model(), tables_.layers()));
}

// A replica is a tensor-parallel group of one node, so its degree is bounded by the node.
void SailorCheck::check_replicas(std::size_t s) {
  const SailorStage& stage = plan_.stages[s];
  if (stage.replicas.empty()) problems_.add(fmt::format("stage {} has no replicas", s));
  for (const SailorReplicas& group : stage.replicas) {
    const int places = static_cast<int>(tables_.places().size());
    if (group.count < 1) {
      problems_.add(fmt::format("stage {} has {} replicas of a kind", s, group.count),
                    "must be one or more");
    }
    if (group.place < 0 || group.place >= places) {
      problems_.add(fmt::format("stage {} runs on place {}", s, group.place),
                    fmt::format("there are {}", places));
    } else if (group.tensor < 1 || group.tensor > tables_.per_node(group.place)) {
      problems_.add(fmt::format("stage {} has tensor-parallel degree {} on {}", s, group.tensor,
                                name(group.place)),
                    fmt::format("a node has {} devices", tables_.per_node(group.place)));
    }
  }
}

// A plan with shares gives every pipeline its own samples, which must add up to the batch; then all
// stages have one replica per pipeline.
void SailorCheck::check_shares() {
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

/// The sizes of every pipeline's micro-batches; one entry for all where there are no shares.
std::vector<std::vector<std::int64_t>> SailorCheck::sizes() const {
  std::vector<std::vector<std::int64_t>> all;
  for (const SailorShare& share : plan_.shares) {
    std::vector<std::int64_t> sizes = share.tails;
    sizes.push_back(share.micro_batch);
    all.insert(all.end(), static_cast<std::size_t>(share.count), sizes);
  }
  if (all.empty()) all.push_back({plan_.micro_batch});
  return all;
}

// The tables answer with infinity where a profile is missing; every size of a pipeline is asked.
void SailorCheck::check_profiles() {
  const auto pipelines = sizes();
  std::set<std::string> missing;
  for (const SailorStage& stage : plan_.stages) {
    const std::vector<SailorReplicas> replicas = every_replica(stage);
    for (std::size_t j = 0; j < replicas.size(); ++j) {
      for (const std::int64_t size : pipelines[j % pipelines.size()]) {
        const auto& [count, place, tensor] = replicas[j];
        if (std::isfinite(tables_.update_s(place, tensor, size, stage.begin))) continue;
        missing.insert(fmt::format("{} tp{} micro-batch {}", name(place), tensor, size));
      }
    }
  }
  if (missing.empty()) return;
  problems_.add(fmt::format("no profile of {} for {}", tables_.model(), fmt::join(missing, "; ")),
                "", "Take sizes that are profiled, or --fill-profiles for analytic times.");
}

// Links are needed between neighbours of a stage, for the ring of its sum, and in both directions
// between the replicas of neighbouring stages that exchange messages.
void SailorCheck::check_links() {
  const auto pipelines = sizes();
  std::set<std::string> missing;
  const auto note = [&](double time, int from, int to) {
    if (!std::isfinite(time)) missing.insert(fmt::format("{} to {}", name(from), name(to)));
  };
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const SailorStage& stage = plan_.stages[s];
    const std::vector<SailorReplicas> replicas = every_replica(stage);
    for (std::size_t j = 0; j + 1 < replicas.size(); ++j) {
      const int here = replicas[j].place, next = replicas[j + 1].place;
      note(tables_.reduction_s(here, next, stage.width(), 1, stage.begin, stage.end), here, next);
    }
    if (s + 1 == plan_.stages.size()) continue;
    const std::vector<SailorReplicas> others = every_replica(plan_.stages[s + 1]);
    for (std::size_t j = 0; j < std::max(replicas.size(), others.size()); ++j) {
      const SailorReplicas &a = replicas[j % replicas.size()], &b = others[j % others.size()];
      for (const std::int64_t size : pipelines[j % pipelines.size()]) {
        note(tables_.send_s(a.place, a.tensor, b.place, b.tensor, stage.end - 1, size), a.place,
             b.place);
        note(tables_.send_s(b.place, b.tensor, a.place, a.tensor, stage.end, size), b.place,
             a.place);
      }
    }
  }
  if (missing.empty()) return;
  problems_.add(
      fmt::format("no link, or none that carries such a message: {}", fmt::join(missing, "; ")));
}

// The report has the replica of each stage that is nearest its limit.
void SailorCheck::check_memory() {
  const SailorReport report = sailor_report(tables_, plan_);
  for (std::size_t s = 0; s < report.stages.size(); ++s) {
    const SailorReport::Stage& stage = report.stages[s];
    if (stage.memory_bytes <= stage.memory_limit_bytes) continue;
    problems_.add(
        fmt::format("stage {} needs {} on a device of {}", s, rounded_byte_size(stage.memory_bytes),
                    rounded_byte_size(stage.memory_limit_bytes)),
        "by Sailor's memory formula",
        "Smaller micro-batches, fewer layers or a higher degree need less.");
  }
}

}  // namespace

void check_sailor_plan(const SailorTables& tables, const SailorPlan& plan) {
  SailorCheck(tables, plan).run();
}

void check_sailor_entries(const SailorTables& tables, const SailorPlan& plan) {
  SailorCheck(tables, plan).check_entries();
}

}  // namespace heteroperf

// The small arithmetic of drafts: where their stages lie, which schedules they may have, and their
// text.
//
// A stage's position follows from the schedule: with one chunk stage and position are the same,
// with several the stages go around (looped) or down and up again (zig-zag). Groups are kept in one
// order and with like ones joined, so that drafts that mean the same have the same text, by which
// the search recognises them.
#include "runners/plan/search/problem/pipeline_draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"

namespace heteroperf {

std::int64_t DraftStage::samples() const {
  std::int64_t sum = 0;
  for (const ReplicaGroup& group : groups) sum += group.samples * group.replicas;
  return sum;
}

int DraftStage::replicas() const {
  int sum = 0;
  for (const ReplicaGroup& group : groups) sum += group.replicas;
  return sum;
}

PositionId PipelineDraft::position_of(StageId stage) const {
  if (chunks == 1) return PositionId(stage.value());
  const bool zig_zag = find_generator(schedule).order == StageOrder::zig_zag;
  return PositionId(rank_on_chain(SegmentId(stage.value()), positions(),
                                  zig_zag ? ChainPlacement::zig_zag : ChainPlacement::looped));
}

std::span<const DraftSchedule> draft_schedules() {
  static constexpr DraftSchedule schedules[] = {
      {"1f1b"},       {"zb-h1"},        {"zb-h2"},      {"gpipe"}, {"interleaved-1f1b", 2, 8},
      {"zb-v", 2, 2}, {"v-half", 2, 2}, {"v-min", 2, 2}};
  return schedules;
}

std::vector<DraftSchedule> chunked_schedules(const std::vector<std::string>& names) {
  std::vector<DraftSchedule> result;
  for (const DraftSchedule& schedule : draft_schedules()) {
    const bool wanted = std::ranges::find(names, schedule.name) != names.end();
    if (wanted && schedule.most_chunks > 1) result.push_back(schedule);
  }
  return result;
}

std::vector<ReplicaGroup> ordered_groups(std::vector<ReplicaGroup> groups) {
  std::ranges::sort(groups, [](const ReplicaGroup& a, const ReplicaGroup& b) {
    return std::tuple(a.pool, a.degree, -a.samples) < std::tuple(b.pool, b.degree, -b.samples);
  });
  std::vector<ReplicaGroup> result;
  for (const ReplicaGroup& group : groups) {
    if (group.replicas == 0 || group.samples == 0) continue;
    ReplicaGroup* last = result.empty() ? nullptr : &result.back();
    if (last != nullptr && last->pool == group.pool && last->degree == group.degree &&
        last->samples == group.samples) {
      last->replicas += group.replicas;
    } else {
      result.push_back(group);
    }
  }
  return result;
}

void set_schedule(PipelineDraft& draft, const std::string& schedule) {
  const auto stages = static_cast<int>(draft.stages.size());
  draft.schedule = schedule;
  for (int s = 0; s < stages; ++s) {
    // schedule/README.md: gpipe keeps all micro-batches, zb-h1 p on every rank, zb-h2 2p - 1.
    const int ahead = schedule == "gpipe"   ? draft.micro_batches
                      : schedule == "zb-h1" ? stages - 1
                      : schedule == "zb-h2" ? 2 * (stages - 1)
                                            : stages - 1 - s;
    draft.stages[s].warm_up = std::min(draft.micro_batches, ahead);
  }
}

bool move_cut(PipelineDraft& draft, std::size_t s, int by) {
  const int cut = draft.stages[s].end + by;
  if (cut <= draft.stages[s].first || cut >= draft.stages[s + 1].end) return false;
  draft.stages[s].end = draft.stages[s + 1].first = cut;
  return true;
}

std::string to_text(const PipelineDraft& draft) {
  std::string text =
      fmt::format("{} x{} z{}", draft.schedule, draft.micro_batches, draft.zero_stage);
  if (draft.chunks > 1) text += fmt::format(" v{}", draft.chunks);
  for (const DraftStage& stage : draft.stages) {
    text += fmt::format("; {}-{} r{} u{} w{}", stage.first, stage.end,
                        static_cast<int>(stage.recomputation), stage.warm_up,
                        static_cast<int>(stage.wire));
    for (const ReplicaGroup& g : stage.groups) {
      text += fmt::format(" {}:{}*{}x{}", g.pool, g.degree, g.replicas, g.samples);
    }
  }
  return text;
}

}  // namespace heteroperf

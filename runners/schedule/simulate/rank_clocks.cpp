// A clock leaves a span and a cause for each instruction it passes. The cause of an instruction
// that starts at once is the instruction that ended then on the same rank, which is not always the
// one before it: instructions that take no time do not count.

#include "runners/schedule/simulate/rank_clocks.hpp"

#include <algorithm>

namespace heteroperf {

RankClock::RankClock(int rank, const std::vector<Instruction>& program, bool with_waits,
                     Timeline& timeline)
    : program_(&program),
      spans_(timeline.spans.emplace_back(program.size()).data()),
      causes_(timeline.causes.emplace_back(program.size()).data()),
      under_way_(with_waits ? timeline.under_way.emplace_back(program.size()).data() : nullptr),
      rank_(rank) {}

std::int32_t RankClock::unit_end() const {
  const auto size = static_cast<std::int32_t>(program_->size());
  std::int32_t end = next_ + 1;
  while (end < size && (*program_)[end - 1].fused_with_next) ++end;
  return end;
}

std::int32_t RankClock::group_end() const {
  const auto size = static_cast<std::int32_t>(program_->size());
  const std::int32_t group = instruction().group;
  std::int32_t end = next_ + 1;
  if (group < 0) return end;
  while (end < size && (*program_)[end].group == group && is_message((*program_)[end].op)) ++end;
  return end;
}

void RankClock::run_unit(double end) {
  const Cause cause = before();
  const TimeSpan span{time_, end};
  for (const std::int32_t after = unit_end(); next_ < after;) run(span, cause);
}

void RankClock::pass_wait(double end, double under_way, Cause waited_for) {
  stamp(next_, {time_, std::max(time_, end)}, before_post());
  if (end > time_) {
    under_way_[next_] = std::clamp(under_way, time_, end);
    causes_[next_] = waited_for;
    time_ = end;
    last_ = next_;
  }
  ++next_;
}

void RankClock::post(std::int32_t end) {
  posted_ = end;
  posted_at_ = time_;
  posted_after_ = last_;
}

RankClocks::RankClocks(const Schedule& schedule, bool with_waits) {
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    clocks_.emplace_back(static_cast<int>(rank), schedule.programs[rank], with_waits, timeline_);
  }
  for (int rank = ranks() - 1; rank >= 0; --rank) make_ready(rank);
}

int RankClocks::stuck_rank() const {
  const auto stuck = std::find_if(clocks_.begin(), clocks_.end(),
                                  [](const RankClock& clock) { return !clock.finished(); });
  return stuck == clocks_.end() ? -1 : static_cast<int>(stuck - clocks_.begin());
}

}  // namespace heteroperf

#include "runners/schedule/simulate/rank_clock.hpp"

#include <algorithm>

#include "runners/schedule/ir/message_index.hpp"

namespace heteroperf {

RankClock::RankClock(int rank, const std::vector<Instruction>& program, Timeline& timeline)
    : program_(&program),
      spans_(timeline.spans.emplace_back(program.size()).data()),
      causes_(timeline.causes.emplace_back(program.size()).data()),
      under_way_(timeline.under_way.emplace_back(program.size()).data()),
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

void RankClock::stamp(std::int32_t index, double end) {
  spans_[index] = {time_, end};
  causes_[index] = cause(last_);
  under_way_[index] = time_;
}

void RankClock::pass(double seconds) {
  stamp(next_, time_ + seconds);
  if (seconds > 0) last_ = next_;
  time_ += seconds;
  ++next_;
}

void RankClock::pass_unit(double end) {
  const std::int32_t after = unit_end();
  for (std::int32_t i = next_; i < after; ++i) stamp(i, end);
  time_ = end;
  next_ = after;
  last_ = after - 1;
}

void RankClock::pass_wait(double end, double under_way, Cause waited_for) {
  stamp(next_, std::max(time_, end));
  causes_[next_] = before_post();
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

}  // namespace heteroperf

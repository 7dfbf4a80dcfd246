#include "runners/schedule/check/program_steps.hpp"

namespace heteroperf {

ProgramSteps::ProgramSteps(const Schedule& schedule, const MessageIndex& messages,
                           const CollectiveIndex& collectives)
    : schedule_(&schedule) {
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) gather(rank, messages, collectives);
  match(messages.channels());
}

void ProgramSteps::gather(int rank, const MessageIndex& messages,
                          const CollectiveIndex& collectives) {
  CollectiveIndex::Reader reader(collectives, rank);
  const std::vector<Instruction>& program = schedule_->programs[rank];
  const std::size_t first = steps_.size();
  for (std::size_t i = 0; i < program.size(); ++i) {
    Step step{{rank, static_cast<std::int32_t>(i)}};
    step.op = program[i].op;
    if (is_message(step.op)) {
      step.message = messages.find(program[i], rank);
      if (step.message >= 0) {
        step.subject = messages.channel(program[i].edge, carries_gradient(step.op));
      }
    } else if (CollectiveIndex::names_one(step.op)) {
      step.subject = reader.find(program[i]);
      if (step.subject < 0) continue;
    } else {
      continue;
    }
    step.run = steps_.size() > first && together(steps_.back(), step) ? runs_ - 1 : runs_++;
    steps_.push_back(step);
  }
}

/// Neighbouring messages of one group, or one collective named for several segments.
bool ProgramSteps::together(const Step& before, const Step& step) const {
  const std::vector<Instruction>& program = schedule_->programs[step.place.rank];
  if (is_message(step.op)) {
    const std::int32_t group = program[step.place.index].group;
    return group >= 0 && is_message(before.op) && before.place.index + 1 == step.place.index &&
           program[before.place.index].group == group;
  }
  return step.op == Op::reduce_tied && before.op == step.op && before.subject == step.subject;
}

void ProgramSteps::match(int channels) {
  std::vector<std::int32_t> first(static_cast<std::size_t>(channels) + 1, 0);
  for (const Step& step : steps_) {
    if (is_send(step.op) && step.subject >= 0) ++first[step.subject + 1];
  }
  for (int c = 0; c < channels; ++c) first[c + 1] += first[c];
  std::vector<std::int32_t> sends(first.back()), next(first.begin(), first.end() - 1);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!is_send(steps_[i].op) || steps_[i].subject < 0) continue;
    sends[next[steps_[i].subject]++] = static_cast<std::int32_t>(i);
  }
  next.assign(first.begin(), first.end() - 1);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    if (!is_receive(step.op) || step.subject < 0) continue;
    if (next[step.subject] == first[step.subject + 1]) continue;
    step.partner = sends[next[step.subject]++];
    steps_[step.partner].partner = static_cast<std::int32_t>(i);
  }
}

UnionFind ProgramSteps::events(const CollectiveIndex& collectives) const {
  UnionFind sets(runs_);
  std::vector<std::int32_t> first(static_cast<std::size_t>(collectives.size()), -1);
  for (const Step& step : steps_) {
    if (is_receive(step.op) && step.partner >= 0) {
      sets.unite(steps_[step.partner].run, step.run);
    } else if (!is_message(step.op)) {
      if (first[step.subject] < 0) first[step.subject] = step.run;
      sets.unite(first[step.subject], step.run);
    }
  }
  return sets;
}

}  // namespace heteroperf

// The search for plans that Sailor can express. A *shape* fixes cuts, the number of replicas of a
// stage, the size of micro-batches and how long the sums over replicas may take. A *pace* bounds
// what a stage computes and sends for a micro-batch. For every shape the shortest pace at which the
// devices suffice follows from a linear program over (stage, place) and bisection over the paces
// that there are; rounding gives plans, the best of which local search improves.
#include "runners/plan/rivals/sailor/sailor_plain_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "metrics/base/quantity.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"

namespace heteroperf {
namespace {

/// The number of best plans that are kept and improved.
constexpr std::size_t most_kept = 300;
/// Paces of a shape that are tried, from the shortest that is possible.
constexpr int paces_tried = 8;
/// Kept plans with the same number of stages, replicas and samples of a micro-batch.
constexpr int most_alike = 20;

/// Sorts a stage's replicas by place, then degree.
void put_in_order(SailorStage& stage) {
  std::stable_sort(stage.replicas.begin(), stage.replicas.end(),
                   [](const SailorReplicas& a, const SailorReplicas& b) {
                     return std::pair(a.place, a.tensor) < std::pair(b.place, b.tensor);
                   });
  for (const SailorReplicas& group : std::exchange(stage.replicas, {})) {
    if (group.count > 0) stage.append(group);
  }
}

/// Moves some replicas of a group to another seat. A group that becomes empty goes with the
/// sorting.
void move_replicas(SailorStage& stage, std::size_t group, int count, const SailorReplicas& to) {
  stage.replicas[group].count -= count;
  stage.replicas.push_back({count, to.place, to.tensor});
  put_in_order(stage);
}

/// Numbers of replicas to move: 1, 2, 4, … and all.
std::vector<int> steps_up_to(int count) {
  std::vector<int> steps;
  for (int step = 1; step < count; step *= 2) steps.push_back(step);
  steps.push_back(count);
  return steps;
}

}  // namespace

std::vector<int> even_bounds(int layers, int stages) {
  std::vector<int> bounds(1, 0);
  // The last `more` stages have one layer more.
  const int least = layers / stages, more = layers % stages;
  for (int s = 0; s < stages; ++s) {
    bounds.push_back(bounds.back() + least + (s >= stages - more ? 1 : 0));
  }
  return bounds;
}

SailorPlainSearch::SailorPlainSearch(const SailorTables& tables, const SailorDevices& devices)
    : tables_(tables), devices_(devices) {
  for (std::size_t p = 0; p < devices.size(); ++p) {
    const int place = static_cast<int>(p);
    for (const int tensor : tables.degrees(place)) {
      if (tensor <= devices[p]) seats_.push_back({0, place, tensor});
    }
  }
}

// Every stage has a row with the time of every seat: what it computes, and what it sends if its
// neighbours have the same seat. Seats that no rule allows, or that do not fit, take for ever.
SailorPlainSearch::PaceTable SailorPlainSearch::pace_table(const Shape& shape) const {
  PaceTable table;
  const std::size_t stages = shape.stages();
  for (std::size_t s = 0; s < stages; ++s) {
    const int begin = shape.bounds[s], end = shape.bounds[s + 1];
    const SailorSends sends = sailor_sends(s, stages);
    std::vector<double>& row = table.emplace_back();
    for (const SailorReplicas& seat : seats_) {
      const auto send = [&](int layer) {
        return tables_.send_s(seat.place, seat.tensor, seat.place, seat.tensor, layer,
                              shape.micro_batch);
      };
      const bool allowed =
          std::any_of(shape.rules[s].begin(), shape.rules[s].end(),
                      [&](const StageRule& rule) { return rule.allows(seat.place, seat.tensor); });
      const bool fits = allowed && tables_.fits(seat.place, seat.tensor, shape.micro_batch, begin,
                                                end, static_cast<int>(stages - s));
      double time = fits ? tables_.compute_s(seat.place, seat.tensor, shape.micro_batch, begin, end)
                         : infinite;
      if (std::isfinite(time)) {
        if (sends.to_next > 0) time += sends.to_next * send(end - 1);
        if (sends.to_previous > 0) time += sends.to_previous * send(begin);
      }
      row.push_back(time);
    }
  }
  return table;
}

/// Estimates the least seconds of a step of that pace.
double SailorPlainSearch::step_s(const Shape& shape, const PaceTable& table, double pace) const {
  double sum = static_cast<double>(shape.micro_batches - 1) * pace + shape.reduction_s;
  for (const std::vector<double>& row : table) sum += *std::min_element(row.begin(), row.end());
  return sum;
}

/// Lists for every place the least degree that keeps the pace.
std::vector<SailorReplicas> SailorPlainSearch::seats_within(const Shape& shape,
                                                            const PaceTable& table, std::size_t s,
                                                            double pace) const {
  std::vector<SailorReplicas> result;
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (!(table[s][i] <= pace)) continue;
    // Seats stand by place, then degree, so the first that keeps the pace has the least degree.
    if (!result.empty() && result.back().place == seats_[i].place) continue;
    result.push_back({shape.width, seats_[i].place, seats_[i].tensor});
  }
  return result;
}

/// The unknowns are replicas by stage and place; each stage and each place limits them.
PackingProblem SailorPlainSearch::packing(const Shape& shape, const PaceTable& table,
                                          double pace) const {
  const std::size_t stages = shape.stages();
  PackingProblem problem;
  problem.limits.assign(stages, shape.width);
  problem.limits.insert(problem.limits.end(), devices_.begin(), devices_.end());
  for (std::size_t s = 0; s < stages; ++s) {
    for (const SailorReplicas& seat : seats_within(shape, table, s, pace)) {
      std::vector<double> uses(problem.rows(), 0);
      uses[s] = 1;
      uses[stages + at_index(seat.place)] = seat.tensor;
      problem.uses.insert(problem.uses.end(), uses.begin(), uses.end());
      problem.values.push_back(1);
    }
  }
  return problem;
}

// Each stage wants `width` replicas, so the packing must hold stages × width things.
bool SailorPlainSearch::enough(const Shape& shape, const PaceTable& table, double pace) const {
  const auto wanted = static_cast<double>(shape.stages()) * shape.width;
  return pack_fractions(packing(shape, table, pace)).value > wanted - 1e-6;
}

/// Rounds the linear program to whole replicas; the plan has no stages where that fails.
SailorPlan SailorPlainSearch::rounded(const Shape& shape, const PaceTable& table,
                                      double pace) const {
  const PackingProblem problem = packing(shape, table, pace);
  const std::vector<int> counts = pack_whole(problem, pack_fractions(problem));
  SailorPlan plan;
  plan.micro_batch = shape.micro_batch;
  std::size_t kind = 0;
  for (std::size_t s = 0; s < shape.stages(); ++s) {
    SailorStage& stage =
        plan.stages.emplace_back(SailorStage{shape.bounds[s], shape.bounds[s + 1], {}});
    for (SailorReplicas seat : seats_within(shape, table, s, pace)) {
      seat.count = counts[kind++];
      stage.replicas.push_back(seat);
    }
    put_in_order(stage);
    if (stage.width() != shape.width) return {};
  }
  return plan;
}

// More replicas than devices per stage there cannot be.
void SailorPlainSearch::lay_out(int stages) {
  const int most = std::accumulate(devices_.begin(), devices_.end(), 0) / stages;
  lay_out(even_bounds(tables_.layers(), stages), 1, most);
}

// Moves a run of neighbouring cuts by one layer, and looks at widths about the best plan's.
bool SailorPlainSearch::lay_out_beside_best() {
  if (kept_.empty()) return false;
  const ScoredSailorPlan from = kept_.front();
  const int width = from.plan.stages.front().width();
  std::vector<int> bounds(1, 0);
  for (const SailorStage& stage : from.plan.stages) bounds.push_back(stage.end);
  for (std::size_t cut = 1; cut + 1 < bounds.size(); ++cut) {
    for (std::size_t last = cut; last + 1 < bounds.size(); ++last) {
      for (const int step : {-1, 1}) {
        std::vector<int> next = bounds;
        for (std::size_t c = cut; c <= last; ++c) next[c] += step;
        if (next[cut] <= next[cut - 1] || next[last] >= next[last + 1]) continue;
        lay_out(next, std::max(1, width - width / 4 - 1), width + width / 4 + 1);
      }
    }
  }
  return kept_.front().step_time_s < from.step_time_s;
}

// Shapes of these cuts: every size that is profiled, every width that changes the number of
// micro-batches, every length of the sums.
void SailorPlainSearch::lay_out(const std::vector<int>& bounds, int least_width, int most_width) {
  Shape shape;
  shape.bounds = bounds;
  const StageRules rules(tables_, shape.bounds, devices_);
  std::set<std::int64_t> sizes;
  for (const SailorReplicas& seat : seats_) {
    for (const std::int64_t size : tables_.micro_batches(seat.place, seat.tensor)) {
      sizes.insert(size);
    }
  }
  for (const std::int64_t size : sizes) {
    std::int64_t before = 0;
    for (int width = least_width; width <= most_width; ++width) {
      // More replicas for as many micro-batches only make sums longer.
      const std::int64_t together = size * width;
      const std::int64_t micro_batches = (tables_.global_batch() + together - 1) / together;
      if (std::exchange(before, micro_batches) == micro_batches) continue;
      shape.width = width;
      shape.micro_batch = size;
      shape.micro_batches = micro_batches;
      for (const double length : rules.lengths(width)) {
        shape.reduction_s = length;
        shape.rules.clear();
        for (std::size_t s = 0; s < shape.stages(); ++s) {
          shape.rules.push_back(rules.within(s, length, width));
        }
        lay_out(shape);
      }
    }
  }
}

/// Leaves each stage the rule that most replicas of the linear program keep.
void SailorPlainSearch::decide(Shape& shape, const PaceTable& table, double pace) const {
  const FractionalPacking fractions = pack_fractions(packing(shape, table, pace));
  std::size_t kind = 0;
  for (std::size_t s = 0; s < shape.stages(); ++s) {
    const std::vector<SailorReplicas> seats = seats_within(shape, table, s, pace);
    std::vector<StageRule>& rules = shape.rules[s];
    const auto kept = [&](const StageRule& rule) {
      double sum = 0;
      for (std::size_t i = 0; i < seats.size(); ++i) {
        if (rule.allows(seats[i].place, seats[i].tensor)) sum += fractions.counts[kind + i];
      }
      return sum;
    };
    if (!rules.empty()) {
      rules = {*std::max_element(
          rules.begin(), rules.end(),
          [&](const StageRule& a, const StageRule& b) { return kept(a) < kept(b) - 1e-6; })};
    }
    kind += seats.size();
  }
}

// Paces that could not enter the kept plans are left out. `enough` is monotonic in the pace, so the
// shortest that is enough is found by bisection; it and the next few are rounded and kept.
void SailorPlainSearch::lay_out(const Shape& shape) {
  const PaceTable table = pace_table(shape);
  std::set<double> distinct;
  for (const auto& row : table) {
    for (const double time : row) {
      if (std::isfinite(time)) distinct.insert(time);
    }
  }
  const double limit = kept_.size() < most_kept ? infinite : kept_.back().step_time_s;
  std::vector<double> paces;
  for (const double pace : distinct) {
    if (step_s(shape, table, pace) < limit) paces.push_back(pace);
  }
  if (paces.empty() || !enough(shape, table, paces.back())) return;
  candidates_ += 2;
  auto low = std::partition_point(paces.begin(), paces.end(), [&](double pace) {
    ++candidates_;
    return !enough(shape, table, pace);
  });
  for (int i = 0; i < paces_tried && low != paces.end(); ++i, ++low) {
    Shape decided = shape;
    decide(decided, table, *low);
    const SailorPlan plan = rounded(decided, pace_table(decided), *low);
    if (!plan.stages.empty()) keep(plan);
  }
}

// The list is sorted by time. Plans that are alike would crowd out others that local search could
// improve further, so their number is bounded.
void SailorPlainSearch::keep(const SailorPlan& plan) {
  ++candidates_;
  const double time = sailor_step_time_s(tables_, plan);
  if (!std::isfinite(time)) return;
  const auto place = std::find_if(kept_.begin(), kept_.end(), [&](const ScoredSailorPlan& kept) {
    return time <= kept.step_time_s;
  });
  const auto alike = [&](const ScoredSailorPlan& kept) {
    return kept.plan.stages.size() == plan.stages.size() &&
           kept.plan.micro_batch == plan.micro_batch &&
           kept.plan.stages.front().width() == plan.stages.front().width();
  };
  // Enough like plans are faster already.
  if (std::count_if(kept_.begin(), place, alike) >= most_alike) return;
  if (place == kept_.end() && kept_.size() >= most_kept) return;
  kept_.insert(place, {plan, time});
  if (kept_.size() > most_kept) kept_.pop_back();
}

/// True when there are devices and memory for the plan.
bool SailorPlainSearch::allowed(const SailorPlan& plan) const {
  const SailorDevices used = plan.devices(devices_.size());
  for (std::size_t p = 0; p < used.size(); ++p) {
    if (used[p] > devices_[p]) return false;
  }
  return fits_sailor_memory(tables_, plan);
}

// Takes a moved plan where it is allowed and faster by more than rounding.
bool SailorPlainSearch::better(SailorPlan plan, ScoredSailorPlan& than) {
  if (!allowed(plan)) return false;
  ++candidates_;
  const double time = sailor_step_time_s(tables_, plan);
  if (!(time < than.step_time_s * (1 - 1e-9))) return false;
  than = {std::move(plan), time};
  return true;
}

/// Some replicas of a group take other seats.
bool SailorPlainSearch::convert(ScoredSailorPlan& plan, std::size_t s, std::size_t group) {
  const ScoredSailorPlan start = plan;
  for (const SailorReplicas& to : seats_) {
    for (const int count : steps_up_to(start.plan.stages[s].replicas[group].count)) {
      SailorPlan moved = start.plan;
      move_replicas(moved.stages[s], group, count, to);
      better(std::move(moved), plan);
    }
  }
  return plan.step_time_s < start.step_time_s;
}

/// A group's replicas change seats with those of another stage.
bool SailorPlainSearch::exchange(ScoredSailorPlan& plan, std::size_t s, std::size_t group) {
  const ScoredSailorPlan start = plan;
  const SailorReplicas moving = start.plan.stages[s].replicas[group];
  for (std::size_t t = 0; t < start.plan.stages.size(); ++t) {
    if (t == s) continue;
    const std::vector<SailorReplicas> others = start.plan.stages[t].replicas;
    for (std::size_t g = 0; g < others.size(); ++g) {
      for (const int count : steps_up_to(std::min(moving.count, others[g].count))) {
        for (const SailorReplicas& to : seats_) {
          for (const SailorReplicas& back : seats_) {
            if (to.place != others[g].place || back.place != moving.place) continue;
            SailorPlan moved = start.plan;
            move_replicas(moved.stages[s], group, count, to);
            move_replicas(moved.stages[t], g, count, back);
            better(std::move(moved), plan);
          }
        }
      }
    }
  }
  return plan.step_time_s < start.step_time_s;
}

/// A cut moves by a layer or two.
bool SailorPlainSearch::shift(ScoredSailorPlan& plan, std::size_t cut) {
  const ScoredSailorPlan start = plan;
  for (const int step : {-2, -1, 1, 2}) {
    SailorPlan moved = start.plan;
    SailorStage &before = moved.stages[cut], &after = moved.stages[cut + 1];
    before.end += step;
    after.begin += step;
    if (before.end > before.begin && after.end > after.begin) better(std::move(moved), plan);
  }
  return plan.step_time_s < start.step_time_s;
}

// The first kind of move that helps is taken: cuts, then seats, then exchanges between stages.
bool SailorPlainSearch::improve(ScoredSailorPlan& plan) {
  for (std::size_t cut = 0; cut + 1 < plan.plan.stages.size(); ++cut) {
    if (shift(plan, cut)) return true;
  }
  for (std::size_t s = 0; s < plan.plan.stages.size(); ++s) {
    for (std::size_t group = 0; group < plan.plan.stages[s].replicas.size(); ++group) {
      if (convert(plan, s, group) || exchange(plan, s, group)) return true;
    }
  }
  return false;
}

/// The first call takes all plans kept so far as the list of those to improve.
bool SailorPlainSearch::improve_next() {
  if (!std::exchange(improving_, true)) open_ = kept_;
  if (open_.empty()) return false;
  ScoredSailorPlan plan = std::move(open_.front());
  open_.erase(open_.begin());
  // Until no move helps.
  while (improve(plan)) {
  }
  keep(plan.plan);
  return true;
}

}  // namespace heteroperf

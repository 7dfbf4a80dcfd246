// The search for `sailor+` plans whose cuts are given. The time of a step is found by bisection, on
// the question: do the devices hold pipelines for the whole batch within so many seconds? A linear
// program answers for fractions of pipelines, a packing for whole ones. A *frame* fixes which
// places and degrees each stage may have, so that the sums over replicas have a known length; a
// *width* is the number of pipelines.
#include "runners/plan/rivals/sailor/sailor_cuts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "metrics/base/quantity.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"

namespace heteroperf {
namespace {

/// The most combinations of the stages' rules for one length of the sums.
constexpr std::size_t most_combinations = 32;
/// A step is found to within this fraction.
constexpr double step_precision = 2e-4;
constexpr int bisections = 12;

/// Pipelines of one kind and their share.
struct Taken {
  const SailorPipeline* pipeline = nullptr;
  SailorShare share;
};

/// Makes the plan of these pipelines.
SailorPlan plan_of(const std::vector<int>& bounds, const std::vector<Taken>& all) {
  SailorPlan plan;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    SailorStage& stage = plan.stages.emplace_back(SailorStage{bounds[s], bounds[s + 1], {}});
    for (const Taken& taken : all) {
      const SailorPipeline::Seat& seat = taken.pipeline->seats()[s];
      stage.append({taken.share.count, seat.place, seat.tensor});
    }
  }
  for (const Taken& taken : all) plan.shares.push_back(taken.share);
  return plan;
}

}  // namespace

// Pipelines may be asked to have no degree below any that occurs: rules will want that.
SailorCuts::SailorCuts(const SailorTables& tables, std::vector<int> bounds,
                       const SailorDevices& devices)
    : tables_(tables),
      bounds_(std::move(bounds)),
      devices_(devices),
      rules_(tables, bounds_, devices_) {
  std::set<int> degrees;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    if (devices[p] == 0) continue;
    for (const int tensor : tables.degrees(static_cast<int>(p))) degrees.insert(tensor);
  }
  pipelines_ = sailor_pipelines(tables, bounds_, devices, {degrees.begin(), degrees.end()});
  if (!pipelines_.empty()) make_frames();
}

// A step waits for the slowest stage's sum.
double SailorCuts::reduction_s(const Frame& frame, int width) const {
  double most = 0;
  for (std::size_t s = 0; s < frame.rules.size(); ++s) {
    most = std::max(most, rules_.reduction_s(s, frame.rules[s], width));
  }
  return most;
}

/// Adds all combinations of the stages' rules for one length of the sums.
void SailorCuts::add_combinations(double limit_s, int width,
                                  std::set<std::vector<StageRule>>& known) {
  std::vector<std::vector<StageRule>> combined(1);
  for (std::size_t s = 0; s + 1 < bounds_.size(); ++s) {
    std::vector<std::vector<StageRule>> longer;
    for (const auto& rules : combined) {
      for (const StageRule& rule : rules_.within(s, limit_s, width)) {
        // The number of combinations grows exponentially with the stages; the first ones serve.
        if (longer.size() == most_combinations) break;
        longer.push_back(rules);
        longer.back().push_back(rule);
      }
    }
    combined = std::move(longer);
  }
  known.insert(combined.begin(), combined.end());
}

/// Sums are compared at one width; their order hardly depends on it.
void SailorCuts::make_frames() {
  const int together = std::accumulate(devices_.begin(), devices_.end(), 0);
  const int width = std::max(2, together / (2 * static_cast<int>(bounds_.size() - 1)));
  std::set<std::vector<StageRule>> known;
  for (const double length : rules_.lengths(width)) add_combinations(length, width, known);
  for (const auto& rules : known) {
    Frame frame{rules, {}, infinite};
    for (const SailorPipeline& pipeline : pipelines_) {
      bool kept = true;
      double update = 0;
      for (std::size_t s = 0; s < rules.size() && kept; ++s) {
        const SailorPipeline::Seat& seat = pipeline.seats()[s];
        kept = rules[s].allows(seat.place, seat.tensor);
        update = std::max(update, tables_.update_s(seat.place, seat.tensor,
                                                   pipeline.sizes().front().samples, bounds_[s]));
      }
      if (!kept) continue;
      frame.pipelines.push_back(&pipeline);
      frame.update_s = std::min(frame.update_s, update);
    }
    if (!frame.pipelines.empty()) frames_.push_back(std::move(frame));
  }
}

/// Numbers of pipelines: every one up to 24, then steps of a twelfth.
std::vector<int> SailorCuts::widths() const {
  const int together = std::accumulate(devices_.begin(), devices_.end(), 0);
  const int most = together / static_cast<int>(bounds_.size() - 1);
  std::vector<int> result;
  for (int width = 1; width <= most; width += std::max(1, width / 12)) result.push_back(width);
  if (most > 0 && result.back() != most) result.push_back(most);
  return result;
}

// The time of a step that is left for the pipeline itself.
double SailorCuts::pipeline_s(const Frame& frame, int width, double step_s) const {
  return step_s - frame.update_s - reduction_s(frame, width);
}

// Things are pipelines, worth the samples that they take within the time; resources are the devices
// of every place, and the width.
PackingProblem SailorCuts::packing(const Frame& frame, int width, double seconds) const {
  PackingProblem problem;
  for (const int devices : devices_) problem.limits.push_back(devices);
  problem.limits.push_back(width);
  for (const SailorPipeline* pipeline : frame.pipelines) {
    const std::vector<int>& devices = pipeline->devices();
    problem.values.push_back(static_cast<double>(pipeline->samples_within(seconds)));
    problem.uses.insert(problem.uses.end(), devices.begin(), devices.end());
    problem.uses.push_back(1);
  }
  return problem;
}

// Enough in fractions is necessary for enough in whole pipelines.
bool SailorCuts::enough(const Frame& frame, int width, double step_s) {
  const double seconds = pipeline_s(frame, width, step_s);
  if (seconds <= 0) return false;
  ++candidates_;
  return pack_fractions(packing(frame, width, seconds)).value >=
         static_cast<double>(tables_.global_batch());
}

// Frames and widths that cannot beat the best so far are left after one question.
double SailorCuts::fractional_s(double below) {
  double best = below;
  const std::vector<int> all = widths();
  for (const Frame& frame : frames_) {
    for (const int width : all) {
      if (!enough(frame, width, best * (1 - step_precision))) continue;
      double low = 0, high = best * (1 - step_precision);
      for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
        const double middle = 0.5 * (low + high);
        (enough(frame, width, middle) ? high : low) = middle;
      }
      best = high;
    }
  }
  return best;
}

// Bisection between a time at which a plan was found and one at which none was. Packing makes no
// promise, so the first failure lowers the low end by 2 % only.
std::optional<ScoredSailorPlan> SailorCuts::whole(double below) {
  std::optional<ScoredSailorPlan> best;
  const std::vector<int> all = widths();
  for (const Frame& frame : frames_) {
    for (const int width : all) {
      double high = below * (1 - step_precision), low = 0;
      if (!enough(frame, width, high)) continue;
      for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
        const double middle = i == 0 ? high : 0.5 * (low + high);
        const auto candidate = plan(frame, width, middle);
        if (candidate && candidate->step_time_s < below) {
          best = candidate;
          below = high = candidate->step_time_s;
        } else {
          low = i == 0 ? high * (1 - 0.02) : middle;
        }
      }
    }
  }
  return best;
}

// Packs whole pipelines for a time of a step. They may miss the batch by little, or leave some
// time: the shortest time in which just these pipelines take the batch is found by bisection.
std::optional<ScoredSailorPlan> SailorCuts::plan(const Frame& frame, int width, double step_s) {
  const double seconds = pipeline_s(frame, width, step_s);
  if (seconds <= 0) return std::nullopt;
  ++candidates_;
  const PackingProblem problem = packing(frame, width, seconds);
  const FractionalPacking fractions = pack_fractions(problem);
  const auto batch = static_cast<double>(tables_.global_batch());
  if (fractions.value < batch) return std::nullopt;
  const std::vector<int> counts = pack_whole(problem, fractions);
  // The same pipelines may do with less time.
  const auto samples = [&](double time) {
    double sum = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] > 0) {
        sum += counts[k] * static_cast<double>(frame.pipelines[k]->samples_within(time));
      }
    }
    return sum;
  };
  double high = seconds, low = 0;
  if (samples(high) < batch) {
    low = high;
    high *= 1.02;
    if (samples(high) < batch) return std::nullopt;
  }
  while (high - low > 1e-6 * high) {
    const double middle = 0.5 * (low + high);
    (samples(middle) >= batch ? high : low) = middle;
  }
  // The whole batch has to be shared exactly, which may need a little more time than the sum of
  // what fits.
  for (const double slack : {0.0, 1e-3, 4e-3}) {
    const auto plan = shared(frame, counts, high * (1 + slack));
    if (plan) return ScoredSailorPlan{*plan, sailor_step_time_s(tables_, *plan)};
  }
  return std::nullopt;
}

/// Gives every pipeline all the samples that it can take within the time; some then give up those
/// beyond the batch.
std::optional<SailorPlan> SailorCuts::shared(const Frame& frame, const std::vector<int>& counts,
                                             double seconds) const {
  std::vector<Taken> all;
  std::int64_t excess = -tables_.global_batch();
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const SailorPipeline* pipeline = frame.pipelines[k];
    const std::int64_t samples = counts[k] > 0 ? pipeline->samples_within(seconds) : 0;
    if (samples == 0) continue;
    const auto share = pipeline->share(samples, seconds);
    if (!share) return std::nullopt;
    excess += counts[k] * samples;
    for (int i = 0; i < counts[k]; ++i) all.push_back({pipeline, *share});
  }
  if (excess < 0) return std::nullopt;
  for (Taken& taken : all) {
    if (excess == 0) break;
    // The pipeline gives up as much of the excess as it can still share exactly.
    const std::int64_t full = taken.share.samples();
    for (std::int64_t less = std::max<std::int64_t>(1, full - excess); less < full; ++less) {
      const auto share = taken.pipeline->share(less, seconds);
      if (!share) continue;
      excess -= full - less;
      taken.share = *share;
      break;
    }
  }
  if (excess != 0) return std::nullopt;
  std::vector<Taken> runs;
  for (Taken& taken : all) {
    if (!runs.empty() && runs.back().pipeline == taken.pipeline) {
      SailorShare same = runs.back().share;
      same.count = 1;
      if (same == taken.share) {
        ++runs.back().share.count;
        continue;
      }
    }
    runs.push_back(std::move(taken));
  }
  return plan_of(bounds_, runs);
}

}  // namespace heteroperf

// The search for `sailor+` plans: how many pipelines of which kind, with which shares. It descends
// over the cuts by what fractions of pipelines would take, and then looks for whole pipelines in
// the order of these bounds until none can be better.
//
// The time of a step of given cuts is found by bisection, on the question: do the devices hold
// pipelines for the whole batch within so many seconds? A linear program answers for fractions of
// pipelines, a packing for whole ones. A *frame* fixes which places and degrees each stage may
// have, so that the sums over replicas have a known length; a *width* is the number of pipelines.
// Fractions are a relaxation: no plan of whole pipelines with the same cuts and rules is faster.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "runners/plan/rivals/sailor/sailor_pipelines.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/whole_packing.hpp"

namespace heteroperf {
namespace {

constexpr int most_extended_stages = 4;
/// Layers that a cut is moved by at once.
constexpr int cut_steps[] = {-4, -2, -1, 1, 2, 4};
/// The most combinations of the stages' rules for one length of the sums.
constexpr std::size_t most_combinations = 32;
/// A step is found to within this fraction.
constexpr double step_precision = 2e-4;
constexpr int bisections = 12;
/// No step takes so long.
constexpr double longest_step_s = 1e6;

/// Pipelines of one kind and their share.
struct Taken {
  const SailorPipeline* pipeline = nullptr;
  SailorShare share;
};

/// The plans whose stages begin at given layers.
class CutsSearch {
 public:
  CutsSearch(SailorSearch& search, const std::vector<int>& bounds)
      : search_(search),
        tables_(search.tables),
        bounds_(bounds),
        stages_(static_cast<int>(bounds.size()) - 1),
        rules_(search.tables, bounds, search.devices),
        pipelines_(sailor_pipelines(search.tables, bounds, search.devices, rules_.degrees())) {
    const int most = search.all_devices() / stages_;
    for (int width = 1; width <= most; width += std::max(1, width / 12)) widths_.push_back(width);
    if (most > 0 && widths_.back() != most) widths_.push_back(most);
    if (!pipelines_.empty()) make_frames();
  }

  /// Seconds of the best step if pipelines could be used in fractions. Frames and widths that
  /// cannot beat the best so far are left after one question.
  double fractional_s() {
    double best = longest_step_s;
    for (const Frame& frame : frames_) {
      for (const int width : widths_) {
        double low = 0, high = best * (1 - step_precision);
        if (!enough(frame, width, high)) continue;
        for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
          const double middle = 0.5 * (low + high);
          (enough(frame, width, middle) ? high : low) = middle;
        }
        best = high;
      }
    }
    return best;
  }

  /// Finds plans of whole pipelines that take less than the best one of the search. Bisection
  /// between a time at which a plan was found and one at which none was. Packing makes no promise,
  /// so the first failure lowers the low end by 2 % only.
  void find_plans(double& best_s) {
    for (const Frame& frame : frames_) {
      for (const int width : widths_) {
        double high = best_s * (1 - step_precision), low = 0;
        if (!enough(frame, width, high)) continue;
        for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
          const double middle = i == 0 ? high : 0.5 * (low + high);
          std::optional<SailorPlan> found = plan(frame, width, middle);
          const double time = found ? sailor_step_time_s(tables_, *found) : infinite;
          if (time < best_s) {
            best_s = high = search_.result.step_time_s = time;
            search_.result.plan = std::move(*found);
          } else {
            low = i == 0 ? high * (1 - 0.02) : middle;
          }
        }
      }
    }
  }

 private:
  /// One rule per stage, and the pipelines that keep them.
  struct Frame {
    std::vector<StageRule> rules;
    std::vector<const SailorPipeline*> pipelines;
    double update_s = infinite;  ///< at least
  };

  /// Lists the frames: combinations of the stages' rules, each with the pipelines that keep them.
  /// Sums are compared at one width; their order hardly depends on it.
  void make_frames() {
    const int width = std::max(2, search_.all_devices() / (2 * stages_));
    std::set<std::vector<StageRule>> known;
    for (const double length : rules_.lengths(width)) add_combinations(length, width, known);
    for (const auto& rules : known) {
      Frame frame{rules, {}, infinite};
      for (const SailorPipeline& pipeline : pipelines_) {
        bool kept = true;
        double update = 0;
        for (std::size_t s = 0; s < rules.size() && kept; ++s) {
          const SailorSeat& seat = pipeline.seats()[s];
          kept = rules[s].allows(seat);
          update = std::max(update,
                            tables_.update_s(seat, pipeline.sizes().front().samples, bounds_[s]));
        }
        if (!kept) continue;
        frame.pipelines.push_back(&pipeline);
        frame.update_s = std::min(frame.update_s, update);
      }
      if (!frame.pipelines.empty()) frames_.push_back(std::move(frame));
    }
  }

  /// Adds all combinations of the stages' rules for one length of the sums. Their number grows
  /// exponentially with the stages; the first ones serve.
  void add_combinations(double limit_s, int width, std::set<std::vector<StageRule>>& known) {
    std::vector<std::vector<StageRule>> combined(1);
    for (std::size_t s = 0; s + 1 < bounds_.size(); ++s) {
      std::vector<std::vector<StageRule>> longer;
      for (const auto& rules : combined) {
        for (const StageRule& rule : rules_.within(s, limit_s, width)) {
          if (longer.size() == most_combinations) break;
          longer.push_back(rules);
          longer.back().push_back(rule);
        }
      }
      combined = std::move(longer);
    }
    known.insert(combined.begin(), combined.end());
  }

  /// The seconds of a step that are left for pipelines, without update and the slowest stage's sum;
  /// may be below 0.
  double pipeline_s(const Frame& frame, int width, double step_s) const {
    double reduction = 0;
    for (std::size_t s = 0; s < frame.rules.size(); ++s) {
      reduction = std::max(reduction, rules_.reduction_s(s, frame.rules[s], width));
    }
    return step_s - frame.update_s - reduction;
  }

  /// Things are pipelines, worth the samples that they take within the time; resources are the
  /// devices of every place, and the width.
  PackingProblem packing(const Frame& frame, int width, double seconds) const {
    PackingProblem problem;
    problem.limits.assign(search_.devices.begin(), search_.devices.end());
    problem.limits.push_back(width);
    for (const SailorPipeline* pipeline : frame.pipelines) {
      const SailorDevices& devices = pipeline->devices();
      const std::span<double> uses =
          problem.add(static_cast<double>(pipeline->samples_within(seconds)));
      std::copy(devices.begin(), devices.end(), uses.begin());
      uses.back() = 1;
    }
    return problem;
  }

  /// True when fractions of the frame's pipelines do the whole batch within the step: necessary for
  /// enough in whole pipelines.
  bool enough(const Frame& frame, int width, double step_s) {
    const double seconds = pipeline_s(frame, width, step_s);
    if (seconds <= 0) return false;
    ++search_.result.candidates;
    return pack_fractions(packing(frame, width, seconds)).value >=
           static_cast<double>(tables_.global_batch());
  }

  /// Packs whole pipelines for a time of a step; the plan's own time may be a little longer. The
  /// pipelines may miss the batch by little, or leave some time: the shortest time in which just
  /// these take the batch is found by bisection.
  std::optional<SailorPlan> plan(const Frame& frame, int width, double step_s) {
    const double seconds = pipeline_s(frame, width, step_s);
    if (seconds <= 0) return std::nullopt;
    ++search_.result.candidates;
    const PackingProblem problem = packing(frame, width, seconds);
    const FractionalPacking fractions = pack_fractions(problem);
    const auto batch = static_cast<double>(tables_.global_batch());
    if (fractions.value < batch) return std::nullopt;
    const std::vector<int> counts = pack_whole(problem, fractions);
    const auto takes_batch = [&](double time) {
      double sum = 0;
      for (std::size_t k = 0; k < counts.size(); ++k) {
        if (counts[k] == 0) continue;
        sum += counts[k] * static_cast<double>(frame.pipelines[k]->samples_within(time));
      }
      return sum >= batch;
    };
    double high = seconds, low = 0;
    if (!takes_batch(high)) {
      low = high;
      high *= 1.02;
      if (!takes_batch(high)) return std::nullopt;
    }
    while (high - low > 1e-6 * high) {
      const double middle = 0.5 * (low + high);
      (takes_batch(middle) ? high : low) = middle;
    }
    // The whole batch has to be shared exactly, which may need a little more time than the sum of
    // what fits.
    for (const double slack : {0.0, 1e-3, 4e-3}) {
      if (auto plan = shared(frame, counts, high * (1 + slack))) return plan;
    }
    return std::nullopt;
  }

  /// Gives every pipeline all the samples that it can take within the time; some then give up those
  /// beyond the batch.
  std::optional<SailorPlan> shared(const Frame& frame, const std::vector<int>& counts,
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
      all.insert(all.end(), counts[k], {pipeline, *share});
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
    return plan_of(all);
  }

  /// Makes the plan of these pipelines; neighbours of one kind and share are one entry.
  SailorPlan plan_of(const std::vector<Taken>& all) const {
    SailorPlan plan;
    const SailorPipeline* before = nullptr;
    for (const Taken& taken : all) {
      SailorShare share = taken.share;
      if (taken.pipeline == before) share.count = plan.shares.back().count;
      if (taken.pipeline == before && share == plan.shares.back()) {
        ++plan.shares.back().count;
      } else {
        plan.shares.push_back(taken.share);
      }
      before = taken.pipeline;
    }
    for (std::size_t s = 0; s + 1 < bounds_.size(); ++s) {
      SailorStage& stage = plan.stages.emplace_back();
      stage.layers = layers_between(bounds_, s);
      for (const Taken& taken : all) stage.append({1, taken.pipeline->seats()[s]});
    }
    return plan;
  }

  SailorSearch& search_;
  const SailorTables& tables_;
  const std::vector<int>& bounds_;
  int stages_;
  StageRules rules_;
  std::vector<SailorPipeline> pipelines_;
  std::vector<int> widths_;  ///< every one up to 24, then steps of a twelfth
  std::vector<Frame> frames_;
};

/// Gives two cuts to begin with: even layers, and even parameters.
std::set<std::vector<int>> first_bounds(const SailorTables& tables, int stages) {
  std::vector<int> bounds(1, 0);
  const auto held = [&](int end) { return tables.memory_bytes(1, 1, {0, end}, 0); };
  const double none = held(0), all = held(tables.layers()) - none;
  for (int s = 1; s < stages; ++s) {
    int end = bounds.back() + 1;
    while (end < tables.layers() - (stages - s) && held(end) - none < all * s / stages) ++end;
    bounds.push_back(end);
  }
  bounds.push_back(tables.layers());
  return {even_bounds(tables.layers(), stages), bounds};
}

/// The fractional seconds of all cuts that were looked at: descents from different starts meet.
class CutDescent {
 public:
  explicit CutDescent(SailorSearch& search) : search_(search) {}

  /// Moves one cut at a time, the best move of all.
  void run(std::vector<int> bounds) {
    double time = fractional_s(bounds);
    for (bool moved = true; moved && search_.has_time();) {
      moved = false;
      const std::vector<int> from = bounds;
      for (std::size_t cut = 1; cut + 1 < from.size(); ++cut) {
        for (const int step : cut_steps) {
          std::vector<int> next = from;
          next[cut] += step;
          if (next[cut] <= next[cut - 1] || next[cut] >= next[cut + 1] || !search_.has_time()) {
            continue;
          }
          const double next_s = fractional_s(next);
          if (next_s >= time) continue;
          time = next_s;
          bounds = next;
          moved = true;
        }
      }
    }
  }

  /// Seconds and bounds, the shortest first.
  std::set<std::pair<double, std::vector<int>>> known() const {
    std::set<std::pair<double, std::vector<int>>> order;
    for (const auto& [bounds, time] : known_) order.emplace(time, bounds);
    return order;
  }

 private:
  double fractional_s(const std::vector<int>& bounds) {
    const auto [known, is_new] = known_.emplace(bounds, 0);
    if (is_new) known->second = CutsSearch(search_, bounds).fractional_s();
    return known->second;
  }

  SailorSearch& search_;
  std::map<std::vector<int>, double> known_;
};

}  // namespace

// The fractional times bound what whole pipelines can reach, so cuts are tried in their order and
// the search ends at the first whose bound is no better than the best plan.
void search_extended(SailorSearch& search) {
  CutDescent descent(search);
  const int most = search.most_stages(most_extended_stages);
  for (int stages = 1; stages <= most && search.has_time(); ++stages) {
    for (const std::vector<int>& bounds : first_bounds(search.tables, stages)) descent.run(bounds);
  }
  const auto order = descent.known();
  if (!order.empty()) search.result.fractional_s = order.begin()->first;
  double best_s = longest_step_s;
  for (const auto& [time, bounds] : order) {
    if (time >= best_s || !search.has_time()) break;
    CutsSearch(search, bounds).find_plans(best_s);
  }
}

}  // namespace heteroperf

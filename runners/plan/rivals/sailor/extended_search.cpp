// The search for `sailor+` plans: how many pipelines of which kind, with which shares. It descends
// over the cuts by what fractions of pipelines would take, and then looks for whole pipelines in
// the order of these bounds until none can be better.
//
// The time of a step of given cuts is found by bisection, on the question: do the devices hold
// pipelines for the whole batch within so many seconds? A linear program answers for fractions of
// pipelines, a packing for whole ones. A *frame* fixes which places and degrees each stage may
// have, so that the sums over replicas have a known length; a *width* is the number of pipelines.
// Fractions are a relaxation: no plan of whole pipelines with the same cuts and rules is faster.
//
// Pipelines for `sailor+`: one seat (place, degree) per stage. For every order of places, size of
// micro-batch and *pace* (the computing time of some stage) a pipeline takes the least degrees that
// keep the pace: higher ones would take more devices for no shorter period.
//
// A pipeline knows for each size of a micro-batch how long one takes alone (all stages) and how
// much each further one adds (the slowest stage). From these two numbers follow the samples that it
// does within a time, and the share of a batch that it can take. Time that is left over after the
// last whole micro-batch is filled with smaller ones, the *tails*, so that few samples of the time
// are lost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/sailor_search.hpp"
#include "runners/plan/rivals/sailor/whole_packing.hpp"

namespace heteroperf {
namespace {

/// Stages and places with more orders than these get no pipelines.
constexpr double most_orders = 4096;
constexpr double pace_rounding = 1e-12;

/// One replica of every stage, and what micro-batches of each size take there by `sailor+`.
struct SailorPipeline {
  struct Size {
    std::int64_t samples = 1;
    double period_s = 0;  ///< one more micro-batch: the slowest stage
    double single_s = 0;  ///< one micro-batch alone: all stages
  };
  std::vector<SailorSeat> seats;  ///< [stage]
  SailorDevices devices;          ///< that it takes, by place
  /// Profiled everywhere and within every device's memory, ascending; empty: cannot run.
  std::vector<Size> sizes;

  /// The most samples within `seconds`, with micro-batches of one size and smaller ones after.
  std::int64_t samples_within(double seconds) const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      double rest = seconds - sizes[i].single_s;
      if (rest < 0) continue;
      std::int64_t samples = sizes[i].samples;
      for (std::size_t further = i + 1; further-- > 0;) {
        const double count = std::floor(rest / sizes[further].period_s);
        samples += sizes[further].samples * static_cast<std::int64_t>(count);
        rest -= count * sizes[further].period_s;
      }
      most = std::max(most, samples);
    }
    return most;
  }

  /// The quickest share (count 1) of exactly that many samples; nothing where none is within the
  /// time.
  std::optional<SailorShare> share(std::int64_t samples, double seconds) const {
    std::optional<SailorShare> best;
    double best_s = seconds * (1 + pace_rounding);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto& [micro_batch, period_s, single_s] = sizes[i];
      if (micro_batch > samples) continue;
      SailorShare share{1, micro_batch, samples / micro_batch, {}};
      double time = single_s + static_cast<double>(share.micro_batches - 1) * period_s;
      std::int64_t rest = samples % micro_batch;
      for (std::size_t tail = i; tail-- > 0;) {
        for (; rest >= sizes[tail].samples; rest -= sizes[tail].samples) {
          share.tails.push_back(sizes[tail].samples);
          time += sizes[tail].period_s;
        }
      }
      // The samples may be no sum of sizes that are profiled.
      if (rest > 0 || time > best_s) continue;
      best_s = time;
      best = std::move(share);
    }
    return best;
  }
};

/// True where a stage of this seat is within the memory of its device.
bool fits(const SailorTables& tables, const std::vector<int>& bounds, const SailorSeat& seat,
          std::size_t s, std::int64_t samples) {
  return tables.fits(seat, samples, layers_between(bounds, s), bounds.size() - 1 - s);
}

/// Makes the pipeline of these seats. `bounds`: the first layer of every stage, and the end of the
/// last.
SailorPipeline pipeline_of(const SailorTables& tables, const std::vector<int>& bounds,
                           const std::vector<SailorSeat>& seats) {
  SailorPipeline pipeline{seats, SailorDevices(tables.places().size(), 0), {}};
  for (const SailorSeat& seat : seats) pipeline.devices[seat.place] += seat.tensor;
  for (const std::int64_t samples : tables.micro_batches(seats.front())) {
    SailorPipeline::Size size{samples, 0, 0};
    bool possible = true;
    for (std::size_t s = 0; s < seats.size() && possible; ++s) {
      const SailorLayers layers = layers_between(bounds, s);
      double sends = 0;
      for_each_send(s, seats.size(), layers, [&](std::size_t neighbour, int layer, int times) {
        sends += times * tables.send_s(seats[s], seats[neighbour], layer, samples);
      });
      const double time = tables.compute_s(seats[s], samples, layers) + sends;
      possible = std::isfinite(time) && fits(tables, bounds, seats[s], s, samples);
      size.period_s = std::max(size.period_s, time);
      size.single_s += time;
    }
    if (possible) pipeline.sizes.push_back(size);
  }
  return pipeline;
}

/// Adds the pipelines of one order of places: for every size and pace the least degree of every
/// stage that keeps the pace and fits, none below one of the least degrees, where each stage has
/// one.
void add_pipelines(const SailorTables& tables, const std::vector<int>& bounds,
                   const std::vector<int>& places, const std::set<int>& least_tensors,
                   std::set<std::vector<SailorSeat>>& pipelines) {
  const auto compute_s = [&](std::size_t s, int tensor, std::int64_t size) {
    return tables.compute_s({places[s], tensor}, size, layers_between(bounds, s));
  };
  // Only computing times of some stage can be the slowest stage's, so no neighbour pace needs a
  // try.
  std::set<std::pair<std::int64_t, double>> paces;  // with the size of micro-batch
  std::vector<std::vector<int>> degrees;
  for (std::size_t s = 0; s < places.size(); ++s) {
    degrees.push_back(tables.degrees(places[s]));
    for (const int tensor : degrees[s]) {
      for (const std::int64_t size : tables.micro_batches({places[s], tensor})) {
        paces.emplace(size, compute_s(s, tensor, size));
      }
    }
  }
  for (const auto& [size, pace] : paces) {
    for (const int least_tensor : least_tensors) {
      std::vector<SailorSeat> seats;
      for (std::size_t s = 0; s < places.size() && seats.size() == s; ++s) {
        const auto keeps = [&, samples = size, limit_s = pace * (1 + pace_rounding)](int tensor) {
          return tensor >= least_tensor && compute_s(s, tensor, samples) <= limit_s &&
                 fits(tables, bounds, {places[s], tensor}, s, samples);
        };
        const auto least = std::ranges::find_if(degrees[s], keeps);
        if (least != degrees[s].end()) seats.push_back({places[s], *least});
      }
      if (seats.size() == places.size()) pipelines.insert(std::move(seats));
    }
  }
}

/// The pipelines that a plan of these cuts may be made of: for every order of places and every pace
/// the least degrees that keep it, none below one of `least_tensors`. Others take more devices for
/// no shorter period.
std::vector<SailorPipeline> sailor_pipelines(const SailorTables& tables,
                                             const std::vector<int>& bounds,
                                             const SailorDevices& devices,
                                             const std::set<int>& least_tensors) {
  const std::vector<int> places = places_in_use(devices);
  const double orders =
      std::pow(static_cast<double>(places.size()), static_cast<double>(bounds.size() - 1));
  std::set<std::vector<SailorSeat>> distinct;
  for (std::size_t number = 0; orders <= most_orders && number < orders; ++number) {
    // The digits of the order's number are its places.
    std::vector<int> order;
    for (std::size_t rest = number; order.size() + 1 < bounds.size(); rest /= places.size()) {
      order.push_back(places[rest % places.size()]);
    }
    add_pipelines(tables, bounds, order, least_tensors, distinct);
  }
  std::vector<SailorPipeline> result;
  for (const std::vector<SailorSeat>& seats : distinct) {
    SailorPipeline pipeline = pipeline_of(tables, bounds, seats);
    const bool there = std::ranges::equal(pipeline.devices, devices,
                                          [](int takes, int has) { return takes <= has; });
    if (there && !pipeline.sizes.empty()) result.push_back(std::move(pipeline));
  }
  return result;
}

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
  friend bool operator==(const Taken&, const Taken&) = default;
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
        if (!packing(frame, width, high)) continue;
        for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
          const double middle = 0.5 * (low + high);
          (packing(frame, width, middle) ? high : low) = middle;
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
        if (!packing(frame, width, high)) continue;
        for (int i = 0; i < bisections && high - low > step_precision * high; ++i) {
          const double middle = i == 0 ? high : 0.5 * (low + high);
          std::optional<SailorPlan> sailor_plan = plan(frame, width, middle);
          const double time = sailor_plan ? sailor_step_time_s(tables_, *sailor_plan) : infinite;
          if (time < best_s) {
            best_s = high = search_.result.step_time_s = time;
            search_.result.plan = std::move(*sailor_plan);
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
          const SailorSeat& seat = pipeline.seats[s];
          kept = rules[s].allows(seat);
          update =
              std::max(update, tables_.update_s(seat, pipeline.sizes.front().samples, bounds_[s]));
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

  /// The packing of a frame's pipelines into a step: things are pipelines, worth the samples that
  /// they take within the time; resources are the devices of every place, and the width.
  struct Packing {
    double seconds = 0;  ///< left for pipelines, without update and the slowest stage's sum
    PackingProblem problem;
    FractionalPacking fractions;
  };

  /// Nothing where not even fractions of the pipelines do the whole batch within the step.
  std::optional<Packing> packing(const Frame& frame, int width, double step_s) {
    double reduction = 0;
    for (std::size_t s = 0; s < frame.rules.size(); ++s) {
      reduction = std::max(reduction, rules_.reduction_s(s, frame.rules[s], width));
    }
    Packing packing{step_s - frame.update_s - reduction, {}, {}};
    if (packing.seconds <= 0) return std::nullopt;
    ++search_.result.candidates;
    PackingProblem& problem = packing.problem;
    problem.limits.assign(search_.devices.begin(), search_.devices.end());
    problem.limits.push_back(width);
    for (const SailorPipeline* pipeline : frame.pipelines) {
      const auto samples = pipeline->samples_within(packing.seconds);
      const std::span<double> uses = problem.add(static_cast<double>(samples));
      std::ranges::copy(pipeline->devices, uses.begin());
      uses.back() = 1;
    }
    packing.fractions = pack_fractions(problem);
    if (packing.fractions.value < static_cast<double>(tables_.global_batch())) return std::nullopt;
    return packing;
  }

  /// Packs whole pipelines for a time of a step; the plan's own time may be a little longer. The
  /// pipelines may miss the batch by little, or leave some time: the shortest time in which just
  /// these take the batch is found by bisection.
  std::optional<SailorPlan> plan(const Frame& frame, int width, double step_s) {
    const auto packing = this->packing(frame, width, step_s);
    if (!packing) return std::nullopt;
    const std::vector<int> counts = pack_whole(packing->problem, packing->fractions);
    const auto takes_batch = [&](double time) {
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < counts.size(); ++k) {
        if (counts[k] > 0) sum += counts[k] * frame.pipelines[k]->samples_within(time);
      }
      return sum >= tables_.global_batch();
    };
    double high = packing->seconds, low = 0;
    if (!takes_batch(high)) {
      low = std::exchange(high, 1.02 * high);
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
      // The pipeline gives up as much of the excess as it can still share exactly.
      const std::int64_t full = taken.share.samples();
      std::optional<SailorShare> share;
      for (auto less = std::max<std::int64_t>(1, full - excess); less < full && !share; ++less) {
        share = taken.pipeline->share(less, seconds);
      }
      if (!share) continue;
      excess -= full - share->samples();
      taken.share = *share;
    }
    if (excess != 0) return std::nullopt;
    return plan_of(all);
  }

  /// Makes the plan of these pipelines; neighbours of one kind and share are one entry.
  SailorPlan plan_of(const std::vector<Taken>& all) const {
    SailorPlan plan;
    for (auto taken = all.begin(); taken != all.end(); ++taken) {
      if (taken != all.begin() && *taken == *std::prev(taken)) {
        ++plan.shares.back().count;
      } else {
        plan.shares.push_back(taken->share);
      }
    }
    for (std::size_t s = 0; s + 1 < bounds_.size(); ++s) {
      SailorStage& stage = plan.stages.emplace_back();
      stage.layers = layers_between(bounds_, s);
      for (const Taken& taken : all) stage.append({1, taken.pipeline->seats[s]});
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
using KnownCuts = std::map<std::vector<int>, double>;

/// Moves one cut at a time, the best move of all.
void descend(SailorSearch& search, std::vector<int> bounds, KnownCuts& known) {
  const auto fractional_s = [&](const std::vector<int>& cuts) {
    const auto [entry, is_new] = known.emplace(cuts, 0);
    if (is_new) entry->second = CutsSearch(search, cuts).fractional_s();
    return entry->second;
  };
  double time = fractional_s(bounds);
  for (bool moved = true; moved && search.has_time();) {
    moved = false;
    const std::vector<int> from = bounds;
    for (std::size_t cut = 1; cut + 1 < from.size(); ++cut) {
      for (const int step : cut_steps) {
        std::vector<int> next = from;
        next[cut] += step;
        if (next[cut] <= next[cut - 1] || next[cut] >= next[cut + 1] || !search.has_time()) {
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

}  // namespace

// The fractional times bound what whole pipelines can reach, so cuts are tried in their order and
// the search ends at the first whose bound is no better than the best plan.
void search_extended(SailorSearch& search) {
  KnownCuts known;
  const int most = search.most_stages(most_extended_stages);
  for (int stages = 1; stages <= most && search.has_time(); ++stages) {
    for (const auto& bounds : first_bounds(search.tables, stages)) descend(search, bounds, known);
  }
  std::set<std::pair<double, std::vector<int>>> order;
  for (const auto& [bounds, time] : known) order.emplace(time, bounds);
  if (!order.empty()) search.result.fractional_s = order.begin()->first;
  double best_s = longest_step_s;
  for (const auto& [time, bounds] : order) {
    if (time >= best_s || !search.has_time()) break;
    CutsSearch(search, bounds).find_plans(best_s);
  }
}

}  // namespace heteroperf

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
#include <vector>

#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/sailor_search.hpp"
#include "runners/plan/rivals/sailor/whole_packing.hpp"

namespace heteroperf {
namespace {

/// Stages and places with more orders than these get no pipelines.
constexpr double most_orders = 4096;
constexpr double pace_rounding = 1e-12;

/// True where a stage of this seat is within the memory of its device.
bool fits(const SailorTables& tables, const std::vector<int>& bounds, const SailorSeat& seat,
          std::size_t s, std::int64_t samples) {
  return tables.fits(seat, samples, layers_between(bounds, s), bounds.size() - 1 - s);
}

/// Adds the pipelines of one order of places, none below the degree: for every size and pace the
/// least degree of every stage that keeps the pace and fits, where each stage has one.
void add_pipelines(const SailorTables& tables, const std::vector<int>& bounds,
                   const std::vector<int>& places, int least_tensor,
                   std::set<std::vector<SailorSeat>>& pipelines) {
  // Only computing times of some stage can be the slowest stage's, so no neighbour pace needs a
  // try.
  std::map<std::int64_t, std::set<double>> paces;  // by size of micro-batch
  const auto compute_s = [&](std::size_t s, int tensor, std::int64_t size) {
    return tables.compute_s({places[s], tensor}, size, layers_between(bounds, s));
  };
  std::vector<std::vector<int>> degrees;
  for (std::size_t s = 0; s < places.size(); ++s) {
    degrees.push_back(tables.degrees(places[s]));
    for (const int tensor : degrees[s]) {
      for (const std::int64_t size : tables.micro_batches({places[s], tensor})) {
        paces[size].insert(compute_s(s, tensor, size));
      }
    }
  }
  for (const auto& [size, of_size] : paces) {
    for (const double pace : of_size) {
      std::vector<SailorSeat> seats;
      for (std::size_t s = 0; s < places.size() && seats.size() == s; ++s) {
        const auto keeps = [&, samples = size](int tensor) {
          return tensor >= least_tensor &&
                 compute_s(s, tensor, samples) <= pace * (1 + pace_rounding) &&
                 fits(tables, bounds, {places[s], tensor}, s, samples);
        };
        const auto least = std::ranges::find_if(degrees[s], keeps);
        if (least != degrees[s].end()) seats.push_back({places[s], *least});
      }
      if (seats.size() == places.size()) pipelines.insert(std::move(seats));
    }
  }
}

/// Calls visit(places) with every order of these places over the stages.
template <class Visit>
void for_each_order(const std::vector<int>& places, std::size_t stages, Visit visit) {
  std::vector<std::size_t> digits(stages, 0);
  while (true) {
    std::vector<int> order;
    for (const std::size_t digit : digits) order.push_back(places[digit]);
    visit(order);
    std::size_t s = 0;
    while (s < stages && ++digits[s] == places.size()) digits[s++] = 0;
    if (s == stages) return;
  }
}

/// One replica of every stage, and what micro-batches of each size take there by `sailor+`.
class SailorPipeline {
 public:
  struct Size {
    std::int64_t samples = 1;
    double period_s = 0;  ///< one more micro-batch: the slowest stage
    double single_s = 0;  ///< one micro-batch alone: all stages
  };

  /// `bounds`: the first layer of every stage, and the end of the last.
  SailorPipeline(const SailorTables& tables, const std::vector<int>& bounds,
                 std::vector<SailorSeat> seats)
      : seats_(std::move(seats)), devices_(tables.places().size(), 0) {
    for (const SailorSeat& seat : seats_) devices_[seat.place] += seat.tensor;
    for (const std::int64_t samples : tables.micro_batches(seats_.front())) {
      Size size{samples, 0, 0};
      bool possible = true;
      for (std::size_t s = 0; s < seats_.size() && possible; ++s) {
        const SailorLayers layers = layers_between(bounds, s);
        double sends = 0;
        for_each_send(s, seats_.size(), layers, [&](std::size_t neighbour, int layer, int times) {
          sends += times * tables.send_s(seats_[s], seats_[neighbour], layer, samples);
        });
        const double time = tables.compute_s(seats_[s], samples, layers) + sends;
        possible = std::isfinite(time) && fits(tables, bounds, seats_[s], s, samples);
        size.period_s = std::max(size.period_s, time);
        size.single_s += time;
      }
      if (possible) sizes_.push_back(size);
    }
  }

  const std::vector<SailorSeat>& seats() const { return seats_; }
  /// Profiled everywhere and within every device's memory, ascending; empty: cannot run.
  const std::vector<Size>& sizes() const { return sizes_; }
  /// Devices that it takes, by place.
  const SailorDevices& devices() const { return devices_; }

  /// The most samples within `seconds`, with micro-batches of one size and smaller ones after.
  std::int64_t samples_within(double seconds) const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      double rest = seconds - sizes_[i].single_s;
      if (rest < 0) continue;
      // Further micro-batches of the same size.
      const double more = std::floor(rest / sizes_[i].period_s);
      std::int64_t samples = sizes_[i].samples * (1 + static_cast<std::int64_t>(more));
      rest -= more * sizes_[i].period_s;
      for (std::size_t tail = i; tail-- > 0;) {
        const double count = std::floor(rest / sizes_[tail].period_s);
        samples += sizes_[tail].samples * static_cast<std::int64_t>(count);
        rest -= count * sizes_[tail].period_s;
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
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const Size& main = sizes_[i];
      if (main.samples > samples) continue;
      SailorShare share{1, main.samples, samples / main.samples, {}};
      double time = main.single_s + static_cast<double>(share.micro_batches - 1) * main.period_s;
      std::int64_t rest = samples - share.micro_batch * share.micro_batches;
      for (std::size_t tail = i; tail-- > 0;) {
        for (; rest >= sizes_[tail].samples; rest -= sizes_[tail].samples) {
          share.tails.push_back(sizes_[tail].samples);
          time += sizes_[tail].period_s;
        }
      }
      // The samples may be no sum of sizes that are profiled.
      if (rest > 0 || time > best_s) continue;
      best_s = time;
      best = std::move(share);
    }
    return best;
  }

 private:
  std::vector<SailorSeat> seats_;
  std::vector<Size> sizes_;
  SailorDevices devices_;
};

/// The pipelines that a plan of these cuts may be made of: for every order of places and every pace
/// the least degrees that keep it, none below `least_tensor`. Others take more devices for no
/// shorter period.
std::vector<SailorPipeline> sailor_pipelines(const SailorTables& tables,
                                             const std::vector<int>& bounds,
                                             const SailorDevices& devices,
                                             const std::set<int>& least_tensors) {
  const std::vector<int> places = places_in_use(devices);
  const std::size_t stages = bounds.size() - 1;
  std::set<std::vector<SailorSeat>> distinct;
  if (std::pow(static_cast<double>(places.size()), static_cast<double>(stages)) <= most_orders) {
    for_each_order(places, stages, [&](const std::vector<int>& order) {
      for (const int least : least_tensors) add_pipelines(tables, bounds, order, least, distinct);
    });
  }
  std::vector<SailorPipeline> result;
  for (const std::vector<SailorSeat>& seats : distinct) {
    SailorPipeline pipeline(tables, bounds, seats);
    bool possible = !pipeline.sizes().empty();
    for (std::size_t p = 0; p < devices.size(); ++p) {
      possible &= pipeline.devices()[p] <= devices[p];
    }
    if (possible) result.push_back(std::move(pipeline));
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
      std::ranges::copy(devices, uses.begin());
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

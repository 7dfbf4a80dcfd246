// The search for plans that Sailor can express: one size of micro-batch, as many replicas in every
// stage. It lays out every number of even stages, then the cuts beside the best, then improves.
//
// A *shape* fixes cuts, the number of replicas of a stage, the size of micro-batches and how long
// the sums over replicas may take. A *pace* bounds what a stage computes and sends for a
// micro-batch. For every shape the shortest pace at which the devices suffice follows from a linear
// program over (stage, place) and bisection over the paces that there are; rounding gives plans,
// the best of which local search improves by moving replicas and cuts and by changing degrees.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/sailor_search.hpp"
#include "runners/plan/rivals/sailor/whole_packing.hpp"

namespace heteroperf {
namespace {

constexpr int most_published_stages = 12;
/// The number of best plans that are kept and improved.
constexpr std::size_t most_kept = 300;
/// Paces of a shape that are tried, from the shortest that is possible.
constexpr int paces_tried = 8;
/// Kept plans with the same number of stages, replicas and samples of a micro-batch.
constexpr int most_alike = 20;

/// Sorts a stage's replicas by place, then degree. Empty groups go.
void put_in_order(SailorStage& stage) {
  std::ranges::stable_sort(stage.replicas, {}, &SailorReplicas::seat);
  for (const SailorReplicas& group : std::exchange(stage.replicas, {})) {
    if (group.count > 0) stage.append(group);
  }
}

/// Moves some replicas of a group to another seat.
void move_replicas(SailorStage& stage, std::size_t group, int count, const SailorSeat& to) {
  stage.replicas[group].count -= count;
  stage.replicas.push_back({count, to});
  put_in_order(stage);
}

/// Numbers of replicas to move: 1, 2, 4, … and all.
std::vector<int> steps_up_to(int count) {
  std::vector<int> steps;
  for (int step = 1; step < count; step *= 2) steps.push_back(step);
  steps.push_back(count);
  return steps;
}

/// The numbers that all plans rounded from one linear program share.
struct Shape {
  std::vector<int> bounds;
  int width = 1;
  std::int64_t micro_batch = 1, micro_batches = 1;
  double reduction_s = 0;
  std::vector<std::vector<StageRule>> rules;  ///< [stage]: any of them
  std::size_t stages() const { return bounds.size() - 1; }
};

/// A shape's replicas at a pace, as things of a packing: each stage and each place limits them.
struct SeatPacking {
  PackingProblem problem;
  std::vector<std::pair<std::size_t, SailorSeat>> kinds;  ///< stage and seat
  FractionalPacking fractions;
};

/// The seconds of every seat in every stage of a shape, and what follows from them.
class ShapePaces {
 public:
  ShapePaces(const SailorSearch& search, const std::vector<SailorSeat>& seats, const Shape& shape)
      : search_(search), seats_(seats), shape_(shape) {
    for (std::size_t s = 0; s < shape.stages(); ++s) {
      std::vector<double>& row = table_.emplace_back();
      for (const SailorSeat& seat : seats) row.push_back(seconds(s, seat));
    }
  }

  /// The paces of which a step may take less than the limit, ascending.
  std::vector<double> paces_below(double limit_s) const {
    std::set<double> distinct;
    std::vector<double> least_s;
    for (const std::vector<double>& row : table_) {
      distinct.insert(row.begin(), row.end());
      least_s.push_back(*std::ranges::min_element(row));
    }
    std::vector<double> paces;
    for (const double pace : distinct) {
      double step_s = static_cast<double>(shape_.micro_batches - 1) * pace + shape_.reduction_s;
      for (const double stage_s : least_s) step_s += stage_s;
      if (std::isfinite(pace) && step_s < limit_s) paces.push_back(pace);
    }
    return paces;
  }

  /// Every stage and place takes the least degree that keeps the pace.
  SeatPacking packing(double pace) const {
    SeatPacking result;
    PackingProblem& problem = result.problem;
    problem.limits.assign(shape_.stages(), shape_.width);
    problem.limits.insert(problem.limits.end(), search_.devices.begin(), search_.devices.end());
    for (std::size_t s = 0; s < shape_.stages(); ++s) {
      int served = -1;
      for (std::size_t i = 0; i < seats_.size(); ++i) {
        // Seats stand by place, then degree, so the first that keeps the pace has the least degree.
        if (!(table_[s][i] <= pace) || seats_[i].place == served) continue;
        served = seats_[i].place;
        result.kinds.emplace_back(s, seats_[i]);
        const std::span<double> uses = problem.add(1);
        uses[s] = 1;
        uses[shape_.stages() + static_cast<std::size_t>(served)] = seats_[i].tensor;
      }
    }
    result.fractions = pack_fractions(problem);
    return result;
  }

  /// True when fractions of replicas fill every stage at that pace with the devices that there are.
  bool enough(double pace) const {
    const auto wanted = static_cast<double>(shape_.stages()) * shape_.width;
    return packing(pace).fractions.value > wanted - 1e-6;
  }

  /// The shape with one rule for each stage: the one that most replicas of the linear program keep.
  Shape decided(double pace) const {
    const SeatPacking packing = this->packing(pace);
    Shape shape = shape_;
    for (std::size_t s = 0; s < shape.stages(); ++s) {
      const auto kept = [&](const StageRule& rule) {
        double sum = 0;
        for (std::size_t k = 0; k < packing.kinds.size(); ++k) {
          const auto& [stage, seat] = packing.kinds[k];
          if (stage == s && rule.allows(seat)) sum += packing.fractions.counts[k];
        }
        return sum;
      };
      const auto best = std::ranges::max_element(
          shape.rules[s], [](double a, double b) { return a < b - 1e-6; }, kept);
      if (best != shape.rules[s].end()) shape.rules[s] = {*best};
    }
    return shape;
  }

  /// Rounds the linear program to whole replicas; the plan has no stages where that fails.
  SailorPlan rounded(double pace) const {
    const SeatPacking packing = this->packing(pace);
    const std::vector<int> counts = pack_whole(packing.problem, packing.fractions);
    SailorPlan plan;
    plan.micro_batch = shape_.micro_batch;
    for (std::size_t s = 0; s < shape_.stages(); ++s) {
      plan.stages.push_back({layers_between(shape_.bounds, s), {}});
    }
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const auto& [stage, seat] = packing.kinds[k];
      plan.stages[stage].replicas.push_back({counts[k], seat});
    }
    for (SailorStage& stage : plan.stages) {
      put_in_order(stage);
      if (stage.width() != shape_.width) return {};
    }
    return plan;
  }

 private:
  /// A seat computes, and sends as if its neighbours had the same seat. A seat that no rule allows,
  /// or that does not fit, takes for ever.
  double seconds(std::size_t s, const SailorSeat& seat) const {
    const SailorTables& tables = search_.tables;
    const SailorLayers layers = layers_between(shape_.bounds, s);
    const bool allowed = std::ranges::any_of(
        shape_.rules[s], [&](const StageRule& rule) { return rule.allows(seat); });
    if (!allowed || !tables.fits(seat, shape_.micro_batch, layers, shape_.stages() - s)) {
      return infinite;
    }
    double time = tables.compute_s(seat, shape_.micro_batch, layers);
    for_each_send(s, shape_.stages(), layers, [&](std::size_t, int layer, int times) {
      time += times * tables.send_s(seat, seat, layer, shape_.micro_batch);
    });
    return time;
  }

  const SailorSearch& search_;
  const std::vector<SailorSeat>& seats_;
  const Shape& shape_;
  std::vector<std::vector<double>> table_;  ///< [stage][seat]
};

struct ScoredPlan {
  SailorPlan plan;
  double step_time_s = 0;
};

class PublishedSearch {
 public:
  explicit PublishedSearch(SailorSearch& search)
      : search_(search), tables_(search.tables), devices_(search.devices) {
    for (const int place : places_in_use(devices_)) {
      for (const int tensor : tables_.degrees(place)) {
        if (tensor > devices_[place]) continue;
        seats_.push_back({place, tensor});
        const std::vector<std::int64_t> sizes = tables_.micro_batches(seats_.back());
        sizes_.insert(sizes.begin(), sizes.end());
      }
    }
  }

  /// Three phases, each as long as there is time: all even cuts, cuts beside the best, local
  /// search.
  void run() {
    const int most = search_.most_stages(most_published_stages);
    for (int stages = 1; stages <= most && search_.has_time(); ++stages) {
      lay_out_cuts(even_bounds(tables_.layers(), stages), 1, search_.all_devices() / stages);
    }
    while (search_.has_time() && lay_out_beside_best()) {
    }
    // All plans kept so far are improved, those that come of it are not again.
    for (ScoredPlan plan : std::vector<ScoredPlan>(kept_)) {
      if (!search_.has_time()) break;
      while (improve(plan)) {
      }
      keep(plan.plan);
    }
    if (kept_.empty()) return;
    search_.result.plan = kept_.front().plan;
    search_.result.step_time_s = kept_.front().step_time_s;
  }

 private:
  /// Moves a run of neighbouring cuts by one layer, and looks at widths about the best plan's.
  /// False: nothing better there.
  bool lay_out_beside_best() {
    if (kept_.empty()) return false;
    const ScoredPlan from = kept_.front();
    const int width = from.plan.stages.front().width();
    std::vector<int> bounds(1, 0);
    for (const SailorStage& stage : from.plan.stages) bounds.push_back(stage.layers.end);
    for (std::size_t cut = 1; cut + 1 < bounds.size(); ++cut) {
      for (std::size_t last = cut; last + 1 < bounds.size(); ++last) {
        for (const int step : {-1, 1}) {
          std::vector<int> next = bounds;
          for (std::size_t c = cut; c <= last; ++c) next[c] += step;
          if (next[cut] <= next[cut - 1] || next[last] >= next[last + 1]) continue;
          lay_out_cuts(next, std::max(1, width - width / 4 - 1), width + width / 4 + 1);
        }
      }
    }
    return kept_.front().step_time_s < from.step_time_s;
  }

  /// Shapes of these cuts: every size that is profiled, every width that changes the number of
  /// micro-batches, every length of the sums.
  void lay_out_cuts(const std::vector<int>& bounds, int least_width, int most_width) {
    const StageRules rules(tables_, bounds, devices_);
    for (const std::int64_t size : sizes_) {
      std::int64_t before = 0;
      for (int width = least_width; width <= most_width; ++width) {
        // More replicas for as many micro-batches only make sums longer.
        const std::int64_t together = size * width;
        const std::int64_t micro_batches = (tables_.global_batch() + together - 1) / together;
        if (std::exchange(before, micro_batches) == micro_batches) continue;
        for (const double length : rules.lengths(width)) {
          Shape shape{bounds, width, size, micro_batches, length, {}};
          for (std::size_t s = 0; s < shape.stages(); ++s) {
            shape.rules.push_back(rules.within(s, length, width));
          }
          lay_out(shape);
        }
      }
    }
  }

  /// Paces that could not enter the kept plans are left out. `enough` is monotonic in the pace, so
  /// the shortest that is enough is found by bisection; it and the next few are rounded and kept.
  void lay_out(const Shape& shape) {
    const ShapePaces table(search_, seats_, shape);
    const std::vector<double> paces =
        table.paces_below(kept_.size() < most_kept ? infinite : kept_.back().step_time_s);
    std::uint64_t& candidates = search_.result.candidates;
    if (paces.empty() || !table.enough(paces.back())) return;
    candidates += 2;
    auto low = std::ranges::partition_point(paces, [&](double pace) {
      ++candidates;
      return !table.enough(pace);
    });
    for (int i = 0; i < paces_tried && low != paces.end(); ++i, ++low) {
      const Shape decided = table.decided(*low);
      const SailorPlan plan = ShapePaces(search_, seats_, decided).rounded(*low);
      if (!plan.stages.empty()) keep(plan);
    }
  }

  /// Scores a plan and adds it to the list where it is good enough. The list is sorted by time.
  /// Plans that are alike would crowd out others that local search could improve further, so their
  /// number is bounded.
  void keep(const SailorPlan& plan) {
    ++search_.result.candidates;
    const double time = sailor_step_time_s(tables_, plan);
    if (!std::isfinite(time)) return;
    const auto place = std::ranges::find_if(
        kept_, [&](const ScoredPlan& kept) { return time <= kept.step_time_s; });
    const auto alike = [&](const ScoredPlan& kept) {
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

  /// Takes a moved plan where there are devices and memory for it and it is faster by more than
  /// rounding.
  void take_better(const SailorPlan& moved, ScoredPlan& than) {
    const SailorDevices used = moved.devices(devices_.size());
    const bool there = std::ranges::equal(used, devices_, std::less_equal<>());
    if (!there || !fits_sailor_memory(tables_, moved)) return;
    ++search_.result.candidates;
    const double time = sailor_step_time_s(tables_, moved);
    if (time < than.step_time_s * (1 - 1e-9)) than = {moved, time};
  }

  /// The first kind of move that helps is taken, and its best: cuts, then seats, then exchanges
  /// between stages.
  bool improve(ScoredPlan& plan) {
    const auto [from, step_time_s] = plan;
    const auto helps = [&, start_s = step_time_s, &start = from](auto move, auto... of_start) {
      (this->*move)(start, of_start..., plan);
      return plan.step_time_s < start_s;
    };
    for (std::size_t cut = 0; cut + 1 < from.stages.size(); ++cut) {
      if (helps(&PublishedSearch::shift, cut)) return true;
    }
    for (std::size_t s = 0; s < from.stages.size(); ++s) {
      for (std::size_t group = 0; group < from.stages[s].replicas.size(); ++group) {
        if (helps(&PublishedSearch::convert, s, group)) return true;
        if (helps(&PublishedSearch::exchange, s, group)) return true;
      }
    }
    return false;
  }

  /// A cut moves by a layer or two.
  void shift(const SailorPlan& from, std::size_t cut, ScoredPlan& best) {
    for (const int step : {-2, -1, 1, 2}) {
      SailorPlan moved = from;
      SailorLayers &before = moved.stages[cut].layers, &after = moved.stages[cut + 1].layers;
      before.end += step;
      after.begin += step;
      if (before.end > before.begin && after.end > after.begin) take_better(moved, best);
    }
  }

  /// Some replicas of a group take other seats.
  void convert(const SailorPlan& from, std::size_t s, std::size_t group, ScoredPlan& best) {
    for (const SailorSeat& to : seats_) {
      for (const int count : steps_up_to(from.stages[s].replicas[group].count)) {
        SailorPlan moved = from;
        move_replicas(moved.stages[s], group, count, to);
        take_better(moved, best);
      }
    }
  }

  /// A group's replicas change seats with those of another stage.
  void exchange(const SailorPlan& from, std::size_t s, std::size_t group, ScoredPlan& best) {
    const SailorReplicas& moving = from.stages[s].replicas[group];
    for (std::size_t t = 0; t < from.stages.size(); ++t) {
      if (t == s) continue;
      const std::vector<SailorReplicas>& others = from.stages[t].replicas;
      for (std::size_t g = 0; g < others.size(); ++g) {
        for (const int count : steps_up_to(std::min(moving.count, others[g].count))) {
          for (const SailorSeat& to : seats_) {
            for (const SailorSeat& back : seats_) {
              if (to.place != others[g].seat.place || back.place != moving.seat.place) continue;
              SailorPlan moved = from;
              move_replicas(moved.stages[s], group, count, to);
              move_replicas(moved.stages[t], g, count, back);
              take_better(moved, best);
            }
          }
        }
      }
    }
  }

  SailorSearch& search_;
  const SailorTables& tables_;
  const SailorDevices& devices_;
  std::vector<SailorSeat> seats_;  ///< by place, then degree
  std::set<std::int64_t> sizes_;   ///< samples of a micro-batch that a seat has a profile of
  std::vector<ScoredPlan> kept_;   ///< the best first
};

}  // namespace

void search_published(SailorSearch& search) { PublishedSearch(search).run(); }

}  // namespace heteroperf

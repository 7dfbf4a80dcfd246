// Pipelines for `sailor+`: one seat (place, degree) per stage. For every order of places, size of
// micro-batch and *pace* (the computing time of some stage) a pipeline takes the least degrees that
// keep the pace: higher ones would take more devices for no shorter period.
//
// A pipeline knows for each size of a micro-batch how long one takes alone (all stages) and how
// much each further one adds (the slowest stage). From these two numbers follow the samples that it
// does within a time, and the share of a batch that it can take. Time that is left over after the
// last whole micro-batch is filled with smaller ones, the *tails*, so that few samples of the time
// are lost.
#include "runners/plan/rivals/sailor/sailor_pipelines.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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
        const auto least = std::find_if(degrees[s].begin(), degrees[s].end(), keeps);
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

}  // namespace

// Sizes are those of the first seat's profiles that all seats have, with links and memory for them.
SailorPipeline::SailorPipeline(const SailorTables& tables, const std::vector<int>& bounds,
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

// One micro-batch alone takes all stages' times, each further one the slowest stage's. For every
// size the time left over is filled with smaller micro-batches, the largest first.
std::int64_t SailorPipeline::samples_within(double seconds) const {
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

// As many micro-batches of one size as go into the samples; the rest in smaller ones, exactly.
std::optional<SailorShare> SailorPipeline::share(std::int64_t samples, double seconds) const {
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

}  // namespace heteroperf

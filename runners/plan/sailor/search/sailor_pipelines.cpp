#include "runners/plan/sailor/search/sailor_pipelines.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace heteroperf {
namespace {

using Seat = SailorPipeline::Seat;

/// Orders of places along a pipeline; more than these are not looked at.
constexpr double most_orders = 4096;
constexpr double pace_rounding = 1e-12;

/// The sends of one micro-batch that a stage waits for, with one replica in every stage.
double communication_s(const SailorTables& tables, const std::vector<int>& bounds,
                       const std::vector<Seat>& seats, std::size_t s, std::int64_t samples) {
  const std::size_t stages = seats.size();
  if (stages == 1) return 0;
  const auto send = [&](std::size_t to, int layer) {
    return tables.send_s(seats[s].place, seats[s].tensor, seats[to].place, seats[to].tensor, layer,
                         samples);
  };
  if (s == 0) return (stages > 3 ? 2 : 1) * send(1, bounds[1] - 1);
  if (s + 1 == stages) return 2 * send(s - 1, bounds[s]);
  return send(s + 1, bounds[s + 1] - 1) + send(s - 1, bounds[s]);
}

bool fits(const SailorTables& tables, const std::vector<int>& bounds, const Seat& seat,
          std::size_t s, std::int64_t samples) {
  const auto to_end = static_cast<int>(bounds.size() - 1 - s);
  return tables.memory_bytes(seat.tensor, samples, bounds[s], bounds[s + 1], to_end) <=
         tables.memory_limit_bytes(seat.place);
}

/// Makes the pipelines of one order of places.
class PipelineMaker {
 public:
  PipelineMaker(const SailorTables& tables, const std::vector<int>& bounds,
                std::set<std::vector<Seat>>& found)
      : tables_(tables), bounds_(bounds), found_(found) {}

  void add(const std::vector<int>& places, int least_tensor) {
    places_ = places;
    least_tensor_ = least_tensor;
    std::set<std::int64_t> sizes;
    for (const int place : places) {
      for (const int tensor : tables_.degrees(place)) {
        for (const std::int64_t size : tables_.micro_batches(place, tensor)) sizes.insert(size);
      }
    }
    for (const std::int64_t size : sizes) {
      for (const double pace : paces(size)) add_at(size, pace);
    }
  }

 private:
  double compute_s(std::size_t s, int tensor, std::int64_t size) const {
    return tables_.compute_s(places_[s], tensor, size, bounds_[s], bounds_[s + 1]);
  }

  std::set<double> paces(std::int64_t size) const {
    std::set<double> result;
    for (std::size_t s = 0; s < places_.size(); ++s) {
      for (const int tensor : tables_.degrees(places_[s])) {
        const double own = compute_s(s, tensor, size);
        if (std::isfinite(own)) result.insert(own);
      }
    }
    return result;
  }

  void add_at(std::int64_t size, double pace) {
    std::vector<Seat> seats;
    for (std::size_t s = 0; s < places_.size(); ++s) {
      const std::vector<int> degrees = tables_.degrees(places_[s]);
      const auto fit = std::find_if(degrees.begin(), degrees.end(), [&](int tensor) {
        return tensor >= least_tensor_ &&
               compute_s(s, tensor, size) <= pace * (1 + pace_rounding) &&
               fits(tables_, bounds_, {places_[s], tensor}, s, size);
      });
      if (fit == degrees.end()) return;
      seats.push_back({places_[s], *fit});
    }
    found_.insert(std::move(seats));
  }

  const SailorTables& tables_;
  const std::vector<int>& bounds_;
  std::set<std::vector<Seat>>& found_;
  std::vector<int> places_;
  int least_tensor_ = 1;
};

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

SailorPipeline::SailorPipeline(const SailorTables& tables, const std::vector<int>& bounds,
                               std::vector<Seat> seats)
    : seats_(std::move(seats)), devices_(tables.places().size(), 0) {
  for (const Seat& seat : seats_) devices_[static_cast<std::size_t>(seat.place)] += seat.tensor;
  for (const std::int64_t samples :
       tables.micro_batches(seats_.front().place, seats_.front().tensor)) {
    Size size{samples, 0, 0};
    bool possible = true;
    for (std::size_t s = 0; s < seats_.size() && possible; ++s) {
      const double time =
          tables.compute_s(seats_[s].place, seats_[s].tensor, samples, bounds[s], bounds[s + 1]) +
          communication_s(tables, bounds, seats_, s, samples);
      possible = std::isfinite(time) && fits(tables, bounds, seats_[s], s, samples);
      size.period_s = std::max(size.period_s, time);
      size.single_s += time;
    }
    if (possible) sizes_.push_back(size);
  }
}

std::int64_t SailorPipeline::samples_within(double seconds) const {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    double rest = seconds - sizes_[i].single_s;
    if (rest < 0) continue;
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

std::optional<SailorShare> SailorPipeline::share(std::int64_t samples, double seconds) const {
  std::optional<SailorShare> best;
  double best_s = seconds * (1 + pace_rounding);
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i].samples > samples) continue;
    SailorShare own{1, sizes_[i].samples, samples / sizes_[i].samples, {}};
    std::int64_t rest = samples - own.micro_batch * own.micro_batches;
    for (std::size_t tail = i; tail-- > 0;) {
      for (; rest >= sizes_[tail].samples; rest -= sizes_[tail].samples) {
        own.tails.push_back(sizes_[tail].samples);
      }
    }
    if (rest > 0) continue;
    const double time = this->seconds(own);
    if (time > best_s) continue;
    best_s = time;
    best = std::move(own);
  }
  return best;
}

double SailorPipeline::seconds(const SailorShare& share) const {
  const Size& own = *size(share.micro_batch);
  double sum = own.single_s + static_cast<double>(share.micro_batches - 1) * own.period_s;
  for (const std::int64_t tail : share.tails) sum += size(tail)->period_s;
  return sum;
}

const SailorPipeline::Size* SailorPipeline::size(std::int64_t samples) const {
  const auto found = std::find_if(sizes_.begin(), sizes_.end(),
                                  [&](const Size& one) { return one.samples == samples; });
  return found == sizes_.end() ? nullptr : &*found;
}

std::vector<SailorPipeline> sailor_pipelines(const SailorTables& tables,
                                             const std::vector<int>& bounds,
                                             const SailorDevices& devices,
                                             const std::vector<int>& least_tensors) {
  std::vector<int> places;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    if (devices[p] > 0) places.push_back(static_cast<int>(p));
  }
  const std::size_t stages = bounds.size() - 1;
  std::set<std::vector<Seat>> found;
  if (std::pow(static_cast<double>(places.size()), static_cast<double>(stages)) <= most_orders) {
    PipelineMaker maker(tables, bounds, found);
    for_each_order(places, stages, [&](const std::vector<int>& order) {
      for (const int least : least_tensors) maker.add(order, least);
    });
  }
  std::vector<SailorPipeline> result;
  for (const std::vector<Seat>& seats : found) {
    SailorPipeline one(tables, bounds, seats);
    bool possible = !one.sizes().empty();
    for (std::size_t p = 0; p < devices.size(); ++p) possible &= one.devices()[p] <= devices[p];
    if (possible) result.push_back(std::move(one));
  }
  return result;
}

}  // namespace heteroperf

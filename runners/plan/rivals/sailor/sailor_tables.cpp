// Sums over layers are kept as running totals, profiles and links in flat arrays, so that no
// question searches or adds up.
//
// A search asks millions of times what layers [a, b) take on a place, so each question is two
// look-ups and a difference. Questions about what has no profile or link are answered with
// infinity, which every comparison then rejects by itself. The formulas are Sailor's own, in its
// units: values of 4 bytes, sums in buckets, a fixed amount of memory for its runtime.
#include "runners/plan/rivals/sailor/sailor_tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/strict_json.hpp"

namespace heteroperf {
namespace {

/// Sailor counts in values of single precision.
constexpr double bytes_per_float = 4;
/// Gradients are summed in buckets of at most this size.
constexpr double bucket_bytes = 5e8;
/// Adam's states 8, master copy 4, gradients 4, communication 4, the trainer's copies 4.
constexpr double state_bytes_per_parameter = 24;
constexpr double runtime_bytes = 2e9, runtime_bytes_tensor_parallel = 3e9;
/// Neighbours' links that the parts of a tensor-parallel replica share at most.
constexpr int most_shared_links = 4;

/// The memory of devices in Sailor's published table; the smaller of it and the cluster file holds.
constexpr std::pair<const char*, double> known_memory_gib[] = {
    {"A100-40", 40}, {"V100-16", 16}, {"GH-96", 96}};

double memory_limit(const std::string& device, const SailorDevice& given) {
  double limit = static_cast<double>(given.memory.value());
  for (const auto& [name, gib] : known_memory_gib) {
    if (device == name) limit = std::min(limit, gib * 1073741824.0);
  }
  return limit;
}

/// The running totals of `value(element)`, from 0 on.
template <class Elements, class Value>
std::vector<double> totals_of(const Elements& elements, Value value) {
  std::vector<double> totals(1, 0.0);
  for (const auto& element : elements) totals.push_back(totals.back() + value(element));
  return totals;
}

double over(const std::vector<double>& totals, const SailorLayers& layers) {
  return totals[layers.end] - totals[layers.begin];
}

}  // namespace

std::vector<int> places_in_use(const SailorDevices& devices) {
  std::vector<int> places;
  for (int place = 0; place < std::ssize(devices); ++place) {
    if (devices[place] > 0) places.push_back(place);
  }
  return places;
}

SailorTables::SailorTables(SailorInputs inputs) : inputs_(std::move(inputs)) {
  take_places();
  take_network();
  take_layers();
  if (!places_.empty()) return;
  throw UserError(fmt::format("no device can run {}", model()),
                  "none has a profile of it, a memory size and links");
}

// A place needs a link, a profile and a memory size; devices that lack one of them are no places.
// An empty zone sorts first, so places of the inputs' own zone have the first numbers.
void SailorTables::take_places() {
  std::set<std::pair<std::string, std::string>> ends;  // zone, device
  for (const auto& [pair, curve] : inputs_.network) {
    ends.emplace(pair.first.zone == inputs_.zone ? "" : pair.first.zone, pair.first.device);
    most_of_node_ = std::max({most_of_node_, pair.first.devices, pair.second.devices});
  }
  for (const auto& [device, profiles] : inputs_.model.profiles) {
    for (const auto& [key, timings] : profiles) {
      most_micro_batch_ = std::max(most_micro_batch_, key.first);
      most_tensor_ = std::max(most_tensor_, key.second);
    }
  }
  for (const auto& [zone, device] : ends) {
    const auto profiled = inputs_.model.profiles.find(device);
    const auto given = inputs_.devices.find(device);
    if (profiled == inputs_.model.profiles.end() || given == inputs_.devices.end()) continue;
    names_.push_back(place_name(device, zone));
    Place& place = places_.emplace_back();
    place.device = device;
    place.per_node = given->second.per_node;
    place.memory_limit_bytes = memory_limit(device, given->second);
    place.profiles.resize((most_tensor_ + 1) * (most_micro_batch_ + 1));
    most_of_node_ = std::max(most_of_node_, place.per_node);
    for (const auto& [key, timings] : profiled->second) {
      Profile& profile = place.profiles[profile_slot(key.second, key.first)];
      profile.computed = totals_of(
          timings, [](const SailorTiming& time) { return time.forward_s + time.backward_s; });
      for (const SailorTiming& time : timings) profile.update.push_back(time.update_s);
    }
  }
}

// Links of devices that are no places are left out.
void SailorTables::take_network() {
  const std::size_t ends = places_.size() * (most_of_node_ + 1);
  links_.resize(ends * ends);
  for (const auto& [pair, curve] : inputs_.network) {
    const auto& [from, to] = pair;
    const int sender = find_place(from.device, from.zone),
              receiver = find_place(to.device, to.zone);
    if (sender < 0 || receiver < 0) continue;
    links_[link_slot({sender, from.devices}, {receiver, to.devices})] = curve;
  }
}

// Sums follow the whole layers, memory the share of a rank of each degree.
void SailorTables::take_layers() {
  const auto parameter_bytes = [](const SailorLayer& layer) {
    return layer.parameters * bytes_per_float;
  };
  parameter_bytes_ = totals_of(inputs_.model.layers.at(1), parameter_bytes);
  held_.resize(inputs_.model.layers.rbegin()->first + 1);
  for (const auto& [tensor, layers] : inputs_.model.layers) {
    held_[tensor] = {
        totals_of(layers, [](const SailorLayer& layer) { return layer.parameters; }),
        totals_of(layers, [](const SailorLayer& layer) { return layer.kept * bytes_per_float; })};
  }
}

std::string SailorTables::place_name(const std::string& device, const std::string& zone) const {
  return zone.empty() || zone == inputs_.zone ? device : fmt::format("{}@{}", device, zone);
}

int SailorTables::find_place(const std::string& device, const std::string& zone) const {
  const auto known = std::ranges::find(names_, place_name(device, zone));
  return known == names_.end() ? -1 : static_cast<int>(known - names_.begin());
}

int SailorTables::place(const std::string& device, const std::string& zone) const {
  const int known = find_place(device, zone);
  if (known >= 0) return known;
  const std::string name = place_name(device, zone);
  throw UserError(
      fmt::format("no device \"{}\" can run {}", name, model()),
      fmt::format("a profile, a memory size and links have {}", fmt::join(names_, ", ")),
      did_you_mean(name, names_));
}

std::vector<int> SailorTables::degrees(int place) const {
  std::vector<int> degrees;
  for (int tensor = 1; tensor <= per_node(place); ++tensor) {
    if (!micro_batches({place, tensor}).empty()) degrees.push_back(tensor);
  }
  return degrees;
}

std::vector<std::int64_t> SailorTables::micro_batches(const SailorSeat& seat) const {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= most_micro_batch_; ++size) {
    if (profile(seat, size) != nullptr) sizes.push_back(size);
  }
  return sizes;
}

const SailorTables::Profile* SailorTables::profile(const SailorSeat& seat,
                                                   std::int64_t micro_batch) const {
  if (seat.tensor > most_tensor_ || micro_batch > most_micro_batch_) return nullptr;
  const Profile& profile = places_[seat.place].profiles[profile_slot(seat.tensor, micro_batch)];
  return profile.update.empty() ? nullptr : &profile;
}

double SailorTables::compute_s(const SailorSeat& seat, std::int64_t micro_batch,
                               const SailorLayers& layers) const {
  const Profile* known = profile(seat, micro_batch);
  return known == nullptr ? infinite : over(known->computed, layers);
}

double SailorTables::update_s(const SailorSeat& seat, std::int64_t micro_batch, int layer) const {
  const Profile* known = profile(seat, micro_batch);
  return known == nullptr ? infinite : known->update[layer];
}

double SailorTables::send_s(const SailorSeat& from, const SailorSeat& to, int layer,
                            std::int64_t micro_batch) const {
  const auto& link = links_[link_slot({from.place, std::min(from.tensor, per_node(from.place))},
                                      {to.place, std::min(to.tensor, per_node(to.place))})];
  const double output_bytes = inputs_.model.layers.begin()->second[layer].output * bytes_per_float;
  return link ? link->seconds(output_bytes * static_cast<double>(micro_batch)) : infinite;
}

// Gradients are summed in buckets; each takes 2(width − 1) messages of bucket / width around the
// ring. Full buckets take the same time, and the rest is one smaller one.
double SailorTables::reduction_s(int place, int neighbour, int width, int least_tensor,
                                 const SailorLayers& layers) const {
  if (width <= 1) return 0;
  const auto& link = links_[link_slot({place, 1}, {neighbour, 1})];
  if (!link) return infinite;
  const double bytes = over(parameter_bytes_, layers) / std::min(most_shared_links, least_tensor);
  const double full = std::floor(bytes / bucket_bytes), rest = bytes - full * bucket_bytes;
  double time = 0;
  if (full > 0) time += full * link->seconds(bucket_bytes / width);
  if (rest > 0) time += link->seconds(rest / width);
  return 2 * (width - 1) * time;
}

// A stage keeps the activations of as many micro-batches as there are stages from it to the end.
double SailorTables::memory_bytes(int tensor, std::int64_t micro_batch, const SailorLayers& layers,
                                  std::size_t stages_to_end) const {
  if (tensor >= std::ssize(held_) || held_[tensor].kept.empty()) return infinite;
  return state_bytes_per_parameter * over(held_[tensor].parameters, layers) +
         over(held_[tensor].kept, layers) * static_cast<double>(micro_batch) *
             static_cast<double>(stages_to_end) +
         (tensor == 1 ? runtime_bytes : runtime_bytes_tensor_parallel);
}

}  // namespace heteroperf

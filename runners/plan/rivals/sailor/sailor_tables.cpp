// Sums over layers are kept as running totals, profiles and links in flat arrays with an index, so
// that no question searches or adds up.
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

}  // namespace

std::vector<int> places_in_use(const SailorDevices& devices) {
  std::vector<int> places;
  for (int place = 0; place < std::ssize(devices); ++place) {
    if (devices[place] > 0) places.push_back(place);
  }
  return places;
}

SailorTables::SailorTables(const SailorInputs& inputs)
    : layers_(inputs.model.size()),
      global_batch_(inputs.training.global_batch),
      home_zone_(inputs.zone),
      model_(inputs.model.name) {
  take_profiles(inputs.model);
  take_places(inputs);
  take_network(inputs);
  take_layers(inputs.model);
  if (!places_.empty()) return;
  throw UserError(fmt::format("no device can run {}", model_),
                  "none has a profile of it, a memory size and links");
}

// The bounds of sizes and degrees are those that occur. Devices are numbered as they come.
void SailorTables::take_profiles(const SailorModel& model) {
  int most_tensor = 0;
  for (const auto& [device, profiles] : model.profiles) {
    for (const auto& [key, ignored] : profiles) {
      most_micro_batch_ = std::max(most_micro_batch_, key.first);
      most_tensor = std::max(most_tensor, key.second);
    }
  }
  entries_ =
      FlatTable<Entry, 3>({std::ssize(model.profiles), most_tensor + 1, most_micro_batch_ + 1});
  std::int64_t number = 0;
  for (const auto& [device, profiles] : model.profiles) {
    for (const auto& [key, timings] : profiles) {
      Entry& entry = entries_.add({number, key.second, key.first});
      for (const SailorTiming& timing : timings) {
        entry.computed.add(timing.forward_s + timing.backward_s);
        entry.update.push_back(timing.update_s);
      }
    }
    ++number;
  }
}

// A place needs a link, a profile and a memory size; devices that lack one of them are no places.
// An empty zone sorts first, so places of the inputs' own zone have the first numbers.
void SailorTables::take_places(const SailorInputs& inputs) {
  std::set<std::pair<std::string, std::string>> ends;  // zone, device: the inputs' zone first
  for (const auto& [pair, ignored] : inputs.network) {
    const auto& [from, to] = pair;
    ends.emplace(from.zone == home_zone_ ? "" : from.zone, from.device);
  }
  const auto& profiles = inputs.model.profiles;
  for (const auto& [zone, device] : ends) {
    const auto profile = profiles.find(device);
    const auto given = inputs.devices.find(device);
    if (profile == profiles.end() || given == inputs.devices.end()) continue;
    places_.push_back({device, static_cast<int>(std::distance(profiles.begin(), profile)),
                       given->second.per_node, memory_limit(device, given->second)});
    names_.push_back(zone.empty() ? device : device + "@" + zone);
  }
}

// Links of devices that are no places are left out.
void SailorTables::take_network(const SailorInputs& inputs) {
  int most = 0;
  for (const auto& [pair, ignored] : inputs.network) {
    most = std::max({most, pair.first.devices, pair.second.devices});
  }
  curves_ =
      FlatTable<SailorCurve, 4>({std::ssize(places_), most + 1, std::ssize(places_), most + 1});
  for (const auto& [pair, curve] : inputs.network) {
    const auto& [from, to] = pair;
    const int sender = find_place(from.device, from.zone),
              receiver = find_place(to.device, to.zone);
    if (sender < 0 || receiver < 0) continue;
    curves_.add({sender, from.devices, receiver, to.devices}) = curve;
  }
}

/// Messages and sums follow the whole layers, memory the share of a rank of each degree.
void SailorTables::take_layers(const SailorModel& model) {
  for (const SailorLayer& layer : model.layers.at(1)) {
    output_bytes_.push_back(layer.output * bytes_per_float);
    parameter_bytes_.add(layer.parameters * bytes_per_float);
  }
  held_ = FlatTable<Held, 1>({model.layers.rbegin()->first + 1});
  for (const auto& [tensor, layers] : model.layers) {
    Held& held = held_.add({tensor});
    for (const SailorLayer& layer : layers) {
      held.parameters.add(layer.parameters);
      held.kept.add(layer.kept * bytes_per_float);
    }
  }
}

std::string SailorTables::place_name(const std::string& device, const std::string& zone) const {
  return zone.empty() || zone == home_zone_ ? device : fmt::format("{}@{}", device, zone);
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
      fmt::format("no device \"{}\" can run {}", name, model_),
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
    if (entry(seat, size) != nullptr) sizes.push_back(size);
  }
  return sizes;
}

double SailorTables::compute_s(const SailorSeat& seat, std::int64_t micro_batch,
                               const SailorLayers& layers) const {
  const Entry* profile = entry(seat, micro_batch);
  return profile == nullptr ? infinite : profile->computed.over(layers);
}

double SailorTables::update_s(const SailorSeat& seat, std::int64_t micro_batch, int layer) const {
  const Entry* profile = entry(seat, micro_batch);
  return profile == nullptr ? infinite : profile->update[layer];
}

double SailorTables::send_s(const SailorSeat& from, const SailorSeat& to, int layer,
                            std::int64_t micro_batch) const {
  const SailorCurve* link = curves_.find({from.place, std::min(from.tensor, per_node(from.place)),
                                          to.place, std::min(to.tensor, per_node(to.place))});
  if (link == nullptr) return infinite;
  return link->seconds(output_bytes_[layer] * static_cast<double>(micro_batch));
}

// Gradients are summed in buckets; each takes 2(width − 1) messages of bucket / width around the
// ring. Full buckets take the same time, and the rest is one smaller one.
double SailorTables::reduction_s(int place, int neighbour, int width, int least_tensor,
                                 const SailorLayers& layers) const {
  if (width <= 1) return 0;
  const SailorCurve* link = curves_.find({place, 1, neighbour, 1});
  if (link == nullptr) return infinite;
  const double bytes = parameter_bytes_.over(layers) / std::min(most_shared_links, least_tensor);
  const double full = std::floor(bytes / bucket_bytes), rest = bytes - full * bucket_bytes;
  double time = 0;
  if (full > 0) time += full * link->seconds(bucket_bytes / width);
  if (rest > 0) time += link->seconds(rest / width);
  return 2 * (width - 1) * time;
}

// A stage keeps the activations of as many micro-batches as there are stages from it to the end.
double SailorTables::memory_bytes(int tensor, std::int64_t micro_batch, const SailorLayers& layers,
                                  std::size_t stages_to_end) const {
  const Held* held = held_.find({tensor});
  if (held == nullptr) return infinite;
  return state_bytes_per_parameter * held->parameters.over(layers) +
         held->kept.over(layers) * static_cast<double>(micro_batch) *
             static_cast<double>(stages_to_end) +
         (tensor == 1 ? runtime_bytes : runtime_bytes_tensor_parallel);
}

}  // namespace heteroperf

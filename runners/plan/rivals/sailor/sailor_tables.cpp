// Sums over layers are kept as running totals, profiles and links in flat arrays with an index, so
// that no question searches or adds up.
//
// A search asks millions of times what layers [a, b) take on a place, so each question is two
// look-ups and a difference. An index array maps every combination of device, degree and size to
// its entry; −1 stands for one that has no profile, and questions about it are answered with
// infinity, which every comparison then rejects by itself. The formulas are Sailor's own, in its
// units: values of 4 bytes, sums in buckets, a fixed amount of memory for its runtime.
#include "runners/plan/rivals/sailor/sailor_tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

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

/// The published table, in GiB; the smaller of it and the cluster file holds.
/// A device and its memory in Sailor's own table.
struct KnownMemory {
  const char* device;
  double gib;
};
constexpr KnownMemory known_memory[] = {{"A100-40", 40}, {"V100-16", 16}, {"GH-96", 96}};

double memory_limit(const std::string& device, const SailorDevice& given) {
  double limit = static_cast<double>(given.memory.value());
  for (const KnownMemory& known : known_memory) {
    if (device == known.device) limit = std::min(limit, known.gib * 1073741824.0);
  }
  return limit;
}

/// Running totals: element i is the sum of the first i values.
template <class Value>
std::vector<double> summed(const std::vector<Value>& values, double (*of)(const Value&)) {
  std::vector<double> sums(1, 0.0);
  for (const Value& value : values) sums.push_back(sums.back() + of(value));
  return sums;
}

}  // namespace

SailorTables::SailorTables(const SailorInputs& inputs)
    : layers_(inputs.model.size()),
      global_batch_(inputs.training.global_batch),
      home_zone_(inputs.zone),
      model_(inputs.model.name) {
  take_profiles(inputs);
  take_places(inputs);
  take_network(inputs);
  take_layers(inputs.model);
  if (!places_.empty()) return;
  throw UserError(fmt::format("no device can run {}", model_),
                  "none has a profile of it, a memory size and links");
}

// Slots of missing profiles stay −1. The bounds of sizes and degrees are those that occur.
void SailorTables::take_profiles(const SailorInputs& inputs) {
  for (const auto& [device, profiles] : inputs.model.profiles) {
    devices_.push_back(device);
    for (const auto& [key, ignored] : profiles) {
      most_micro_batch_ = std::max(most_micro_batch_, key.first);
      most_tensor_ = std::max(most_tensor_, key.second);
    }
  }
  entry_of_.assign(entry_slot(static_cast<int>(devices_.size()), 0, 0), -1);
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    for (const auto& [key, timings] : inputs.model.profiles.at(devices_[d])) {
      entry_of_[entry_slot(static_cast<int>(d), key.second, key.first)] =
          static_cast<std::int32_t>(entries_.size());
      Entry& entry = entries_.emplace_back();
      entry.computed = summed<SailorTiming>(
          timings, [](const SailorTiming& t) { return t.forward_s + t.backward_s; });
      for (const SailorTiming& timing : timings) entry.update.push_back(timing.update_s);
    }
  }
}

// A place needs a link, a profile and a memory size; devices that lack one of them are no places.
// An empty zone sorts first, so places of the inputs' own zone have the first numbers.
void SailorTables::take_places(const SailorInputs& inputs) {
  std::set<std::pair<std::string, std::string>> ends;  // zone, device: the inputs' zone first
  for (const auto& [pair, ignored] : inputs.network) {
    const SailorLinkEnd& end = pair.first;
    ends.emplace(end.zone == home_zone_ ? "" : end.zone, end.device);
    most_devices_ = std::max({most_devices_, pair.first.devices, pair.second.devices});
  }
  for (const auto& [zone, device] : ends) {
    const auto known = std::find(devices_.begin(), devices_.end(), device);
    const auto given = inputs.devices.find(device);
    if (known == devices_.end() || given == inputs.devices.end()) continue;
    places_.push_back({device, zone.empty() ? home_zone_ : zone,
                       static_cast<int>(known - devices_.begin()), given->second.per_node,
                       memory_limit(device, given->second)});
    names_.push_back(zone.empty() ? device : device + "@" + zone);
  }
}

// Links of devices that are no places are left out.
void SailorTables::take_network(const SailorInputs& inputs) {
  curve_of_.assign(curve_slot(static_cast<int>(places_.size()), 0, 0, 0), -1);
  const auto index_of = [&](const SailorLinkEnd& end) {
    const auto known = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
      return place.device == end.device && place.zone == end.zone;
    });
    return known == places_.end() ? -1 : static_cast<int>(known - places_.begin());
  };
  for (const auto& [pair, curve] : inputs.network) {
    const int from = index_of(pair.first), to = index_of(pair.second);
    if (from < 0 || to < 0) continue;
    curve_of_[curve_slot(from, pair.first.devices, to, pair.second.devices)] =
        static_cast<std::int32_t>(curves_.size());
    curves_.push_back(curve);
  }
}

/// Messages and sums follow the whole layers, memory the share of a rank of each degree.
void SailorTables::take_layers(const SailorModel& model) {
  using Layer = SailorLayer;
  const std::vector<Layer>& whole = model.layers.at(1);
  for (const Layer& layer : whole) output_bytes_.push_back(layer.output * bytes_per_float);
  parameter_bytes_ =
      summed<Layer>(whole, [](const Layer& l) { return l.parameters * bytes_per_float; });
  held_.resize(static_cast<std::size_t>(model.layers.rbegin()->first) + 1);
  for (const auto& [tensor, layers] : model.layers) {
    held_[static_cast<std::size_t>(tensor)] = {
        summed<Layer>(layers, [](const Layer& l) { return l.parameters; }),
        summed<Layer>(layers, [](const Layer& l) { return l.kept * bytes_per_float; })};
  }
}

/// The place of a combination in the flat array; sizes lie closest together.
std::size_t SailorTables::entry_slot(int device, int tensor, std::int64_t micro_batch) const {
  const auto row = static_cast<std::size_t>(device) * (static_cast<std::size_t>(most_tensor_) + 1) +
                   static_cast<std::size_t>(tensor);
  return row * (static_cast<std::size_t>(most_micro_batch_) + 1) +
         static_cast<std::size_t>(micro_batch);
}

std::size_t SailorTables::curve_slot(int from, int from_devices, int to, int to_devices) const {
  const std::size_t counts = static_cast<std::size_t>(most_devices_) + 1;
  const std::size_t sender =
      static_cast<std::size_t>(from) * counts + static_cast<std::size_t>(from_devices);
  return (sender * places_.size() + static_cast<std::size_t>(to)) * counts +
         static_cast<std::size_t>(to_devices);
}

/// Null where there is no such profile, or the numbers are outside of all profiles.
const SailorTables::Entry* SailorTables::entry(int place, int tensor,
                                               std::int64_t micro_batch) const {
  if (tensor < 1 || tensor > most_tensor_ || micro_batch < 1 || micro_batch > most_micro_batch_) {
    return nullptr;
  }
  const std::int32_t index = entry_of_[entry_slot(at(place).device_index, tensor, micro_batch)];
  return index < 0 ? nullptr : &entries_[static_cast<std::size_t>(index)];
}

/// Null where there is no link of so many devices on both sides.
const SailorCurve* SailorTables::curve(int from, int from_devices, int to, int to_devices) const {
  if (from_devices > most_devices_ || to_devices > most_devices_) return nullptr;
  const std::int32_t index = curve_of_[curve_slot(from, from_devices, to, to_devices)];
  return index < 0 ? nullptr : &curves_[static_cast<std::size_t>(index)];
}

int SailorTables::place(const std::string& device, const std::string& zone) const {
  const std::string name =
      zone.empty() || zone == home_zone_ ? device : fmt::format("{}@{}", device, zone);
  const auto known = std::find(names_.begin(), names_.end(), name);
  if (known != names_.end()) return static_cast<int>(known - names_.begin());
  const std::string near = nearest_name(name, names_);
  throw UserError(
      fmt::format("no device \"{}\" can run {}", name, model_),
      fmt::format("a profile, a memory size and links have {}", fmt::join(names_, ", ")),
      near.empty() ? "" : fmt::format("Did you mean \"{}\"?", near));
}

std::vector<int> SailorTables::degrees(int place) const {
  std::vector<int> degrees;
  for (int tensor = 1; tensor <= std::min(most_tensor_, per_node(place)); ++tensor) {
    if (!micro_batches(place, tensor).empty()) degrees.push_back(tensor);
  }
  return degrees;
}

std::vector<std::int64_t> SailorTables::micro_batches(int place, int tensor) const {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= most_micro_batch_; ++size) {
    if (entry(place, tensor, size) != nullptr) sizes.push_back(size);
  }
  return sizes;
}

double SailorTables::compute_s(int place, int tensor, std::int64_t micro_batch, int begin,
                               int end) const {
  const Entry* profile = entry(place, tensor, micro_batch);
  if (profile == nullptr) return infinite;
  return profile->computed[static_cast<std::size_t>(end)] -
         profile->computed[static_cast<std::size_t>(begin)];
}

double SailorTables::update_s(int place, int tensor, std::int64_t micro_batch, int layer) const {
  const Entry* profile = entry(place, tensor, micro_batch);
  return profile == nullptr ? infinite : profile->update[static_cast<std::size_t>(layer)];
}

double SailorTables::send_s(int from, int from_tensor, int to, int to_tensor, int layer,
                            std::int64_t micro_batch) const {
  const SailorCurve* link =
      curve(from, std::min(from_tensor, per_node(from)), to, std::min(to_tensor, per_node(to)));
  if (link == nullptr) return infinite;
  return link->seconds(output_bytes_[static_cast<std::size_t>(layer)] *
                       static_cast<double>(micro_batch));
}

// Gradients are summed in buckets; each takes 2(width − 1) messages of bucket / width around the
// ring. Full buckets take the same time, and the rest is one smaller one.
double SailorTables::reduction_s(int place, int neighbour, int width, int least_tensor, int begin,
                                 int end) const {
  if (width <= 1) return 0;
  const SailorCurve* link = curve(place, 1, neighbour, 1);
  if (link == nullptr) return infinite;
  const double bytes = (parameter_bytes_[static_cast<std::size_t>(end)] -
                        parameter_bytes_[static_cast<std::size_t>(begin)]) /
                       std::min(most_shared_links, least_tensor);
  const double full = std::floor(bytes / bucket_bytes), rest = bytes - full * bucket_bytes;
  double time = 0;
  if (full > 0) time += full * link->seconds(bucket_bytes / width);
  if (rest > 0) time += link->seconds(rest / width);
  return 2 * (width - 1) * time;
}

// A stage keeps the activations of as many micro-batches as there are stages from it to the end.
double SailorTables::memory_bytes(int tensor, std::int64_t micro_batch, int begin, int end,
                                  int stages_to_end) const {
  const auto degree = static_cast<std::size_t>(tensor);
  if (tensor < 1 || degree >= held_.size() || held_[degree].kept.empty()) return infinite;
  const auto of = [&](const std::vector<double>& sums) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)];
  };
  return state_bytes_per_parameter * of(held_[degree].parameters) +
         of(held_[degree].kept) * static_cast<double>(micro_batch) * stages_to_end +
         (tensor == 1 ? runtime_bytes : runtime_bytes_tensor_parallel);
}

}  // namespace heteroperf

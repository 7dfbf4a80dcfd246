// The rates of a class of devices, from the entries of an efficiency matrix.
//
// The entries of a class are sorted once into a *sheet*: general numbers (memory, launch, tiles)
// and lists of entries by operation. A pass that was measured takes units / rate of the entry whose
// shape is nearest, and nothing is added, because the measurement contains everything. Any other
// pass follows the roofline: the longer of computing and moving bytes, and the launch. Distances of
// shapes are logarithmic, so that half and double are equally far.
#include "runners/plan/times/class_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Operations that the least balanced device does while it moves a byte.
constexpr double least_operations_per_byte = 4;

/// The numbers of a shape ("1024x1024x1024").
/// Any characters may stand between the numbers; a 0 counts as 1, because distances are ratios.
std::vector<double> extents_of(const std::string& shape) {
  std::vector<double> extents;
  for (std::size_t i = 0; i < shape.size();) {
    if (shape[i] < '0' || shape[i] > '9') {
      ++i;
      continue;
    }
    double number = 0;
    for (; i < shape.size() && shape[i] >= '0' && shape[i] <= '9'; ++i) {
      number = 10 * number + (shape[i] - '0');
    }
    extents.push_back(std::max(1.0, number));
  }
  return extents;
}

/// Devices compute products in whole tiles: a part of a tile takes as long as a whole one.
double in_tiles(double extent, double tile) { return std::ceil(extent / tile) * tile; }

/// The entry whose shape is nearest; of equally near ones the first.
template <class Entries>
const auto& nearest(const Entries& entries, const WorkShape& shape) {
  return *std::ranges::min_element(entries, {},
                                   [&](const auto& entry) { return entry.shape.distance(shape); });
}

/// Entries of operations whose shapes nobody names are compared by multiply-adds.
WorkShape shape_of(const PassWork& work) {
  return work.shape.empty() ? WorkShape({work.operations / 2}) : work.shape;
}

}  // namespace

WorkShape::WorkShape(const std::vector<double>& extents)
    : count_(std::min(extents.size(), most_extents)) {
  std::copy_n(extents.begin(), count_, extents_.begin());
}

double WorkShape::size() const {
  double product = count_ > 0 ? 1 : 0;
  for (std::size_t i = 0; i < count_; ++i) product *= extents_[i];
  return product;
}

std::string WorkShape::text() const {
  return fmt::format("{:.0f}", fmt::join(extents_.begin(), extents_.begin() + count_, "x"));
}

double WorkShape::distance(const WorkShape& other) const {
  if (empty() || other.empty()) return std::numeric_limits<double>::max();
  if (count_ != other.count_) return std::abs(std::log(size() / other.size()));
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (extents_[i] != other.extents_[i])
      sum += std::abs(std::log(extents_[i] / other.extents_[i]));
  }
  return sum;
}

std::string measured_operation(const std::string& operation, TrainingPass pass) {
  return fmt::format("{}/{}", operation, value_names(pass)[static_cast<std::size_t>(pass)]);
}

std::string optimizer_operation(OptimizerKind optimizer) {
  return fmt::format("optimizer/{}", to_string(optimizer));
}

void note_missing_rates(const Cluster& cluster, std::size_t ranks, Precision precision,
                        ProblemList& problems) {
  const ClassRates rates(cluster, precision);
  std::set<std::string> missing;
  for (std::size_t r = 0; r < std::min(ranks, cluster.ranks.size()); ++r) {
    const std::string& name = cluster.ranks[r].device_class;
    if (rates.rate(name) == nullptr) missing.insert(name);
  }
  for (const std::string& name : missing) {
    problems.add(fmt::format("device class '{}' has no rate for {}", name, to_string(precision)),
                 "times are operations / rate",
                 "Probe it, or write the rate into the cluster file.");
  }
}

const OpsPerSecond* ClassRates::rate(const std::string& name) const {
  for (const DeviceClass& device_class : cluster_.classes) {
    if (device_class.name != name) continue;
    const auto place = device_class.rates.find(precision_);
    return place == device_class.rates.end() ? nullptr : &place->second;
  }
  return nullptr;
}

/// Requires a rate of the class: without one no operation has a time.
ClassRates::Sheet ClassRates::make_sheet(const std::string& name) const {
  const OpsPerSecond* stated = rate(name);
  HETEROPERF_EXPECT(stated != nullptr);
  Sheet sheet{.name = name, .rate = stated->value()};
  for (const Efficiency& entry : cluster_.efficiency) {
    if (entry.device_class != name) continue;
    const double value = entry.rate.value();
    if (entry.operation == "memory") {
      if (sheet.bytes_per_s == 0) sheet.bytes_per_s = value;
    } else if (entry.operation == "launch") {
      // The first of several entries holds.
      if (sheet.launch_s == 0) sheet.launch_s = 1 / value;
    } else if (entry.precision != precision_) {
      continue;
    } else if (entry.operation == "gemm_tile") {
      const std::vector<double> extents = extents_of(entry.shape);
      if (extents.size() != 3) continue;
      std::ranges::copy(extents, sheet.tile.begin());
      sheet.tile_rate = value;
    } else {
      const WorkShape shape(extents_of(entry.shape));
      sheet.operations[entry.operation].push_back({shape, value, &entry});
    }
  }
  if (sheet.bytes_per_s == 0) sheet.bytes_per_s = sheet.rate / least_operations_per_byte;
  return sheet;
}

const ClassRates::Sheet& ClassRates::sheet(const std::string& name) const {
  for (const Sheet& known : sheets_) {
    if (known.name == name) return known;
  }
  return sheets_.emplace_back(make_sheet(name));
}

double ClassRates::optimizer_bytes_per_s(const std::string& name, OptimizerKind optimizer) const {
  const Sheet& rates = sheet(name);
  const auto place = rates.operations.find(optimizer_operation(optimizer));
  return place == rates.operations.end() ? rates.bytes_per_s : place->second.front().rate;
}

std::optional<ClassRates::Measured> ClassRates::measured(const std::string& name,
                                                         const std::string& operation,
                                                         const PassWork& work) const {
  const Sheet& rates = sheet(name);
  const auto place = rates.operations.find(operation);
  if (place == rates.operations.end() || !work.any()) return std::nullopt;
  const Entry& entry = nearest(place->second, work.shape);
  return Measured{work.units() / entry.rate, entry.shape == work.shape, entry.source};
}

/// Takes the entry whose shape is nearest; without one whole tiles count, and without those the
/// class's rate.
double ClassRates::compute_s(const Sheet& sheet, const char* operation, const PassWork& work) {
  if (work.operations <= 0) return 0;
  const auto place = sheet.operations.find(std::string_view(operation));
  if (place != sheet.operations.end()) {
    return work.operations / nearest(place->second, shape_of(work)).rate;
  }
  if (sheet.tile_rate > 0 && work.extents[0] > 0) {
    double product = 2;
    for (std::size_t i = 0; i < 3; ++i) product *= in_tiles(work.extents[i], sheet.tile[i]);
    return product / sheet.tile_rate;
  }
  return work.operations / sheet.rate;
}

double ClassRates::pass_s(const std::string& name, const char* operation,
                          const PassWork& work) const {
  if (!work.any()) return 0;
  const Sheet& rates = sheet(name);
  return std::max(compute_s(rates, operation, work), work.bytes / rates.bytes_per_s) +
         rates.launch_s;
}

}  // namespace heteroperf

#include "runners/plan/class_rates.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

/// Operations that the least balanced device does while it moves a byte.
constexpr double least_operations_per_byte = 4;

/// The numbers of a shape ("1024x1024x1024").
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

/// Their product; 0 where there are none.
double size_of_shape(const std::string& shape) {
  const std::vector<double> extents = extents_of(shape);
  double product = extents.empty() ? 0 : 1;
  for (const double one : extents) product *= one;
  return product;
}

double in_tiles(double extent, double tile) { return std::ceil(extent / tile) * tile; }

}  // namespace

const OpsPerSecond* ClassRates::rate(const std::string& name) const {
  for (const DeviceClass& one : cluster_.classes) {
    if (one.name != name) continue;
    const auto found = one.rates.find(precision_);
    return found == one.rates.end() ? nullptr : &found->second;
  }
  return nullptr;
}

ClassRates::Sheet ClassRates::make_sheet(const std::string& name) const {
  const OpsPerSecond* own = rate(name);
  HETEROPERF_EXPECT(own != nullptr);
  Sheet sheet;
  sheet.name = name;
  sheet.rate = own->value();
  for (const Efficiency& entry : cluster_.efficiency) {
    if (entry.device_class != name) continue;
    const double value = entry.rate.value();
    if (entry.operation == "memory") {
      if (sheet.bytes_per_s == 0) sheet.bytes_per_s = value;
    } else if (entry.operation == "launch") {
      if (sheet.launch_s == 0) sheet.launch_s = 1 / value;
    } else if (entry.precision != precision_) {
      continue;
    } else if (entry.operation == "gemm_tile") {
      const std::vector<double> extents = extents_of(entry.shape);
      if (extents.size() != 3) continue;
      std::copy(extents.begin(), extents.end(), sheet.tile.begin());
      sheet.tile_rate = value;
    } else {
      auto known = std::find_if(sheet.operations.begin(), sheet.operations.end(),
                                [&](const auto& one) { return one.first == entry.operation; });
      if (known == sheet.operations.end()) {
        known = sheet.operations.insert(known, {entry.operation, {}});
      }
      known->second.push_back({size_of_shape(entry.shape), value});
    }
  }
  if (sheet.bytes_per_s == 0) sheet.bytes_per_s = sheet.rate / least_operations_per_byte;
  return sheet;
}

const ClassRates::Sheet& ClassRates::sheet(const std::string& name) const {
  for (const Sheet& one : sheets_) {
    if (one.name == name) return one;
  }
  return sheets_.emplace_back(make_sheet(name));
}

double ClassRates::memory_bytes_per_s(const std::string& name) const {
  return sheet(name).bytes_per_s;
}

/// By the entry whose shape is nearest in size, else in whole tiles, else by the class's rate.
double ClassRates::compute_s(const Sheet& sheet, const char* operation, const PassWork& work) {
  if (work.operations <= 0) return 0;
  for (const auto& [name, entries] : sheet.operations) {
    if (name != operation) continue;
    const Entry* best = nullptr;
    double distance = 0;
    for (const Entry& entry : entries) {
      const double away = entry.size > 0 ? std::abs(std::log(work.operations / 2 / entry.size)) : 0;
      if (best == nullptr || away < distance) best = &entry, distance = away;
    }
    return work.operations / best->rate;
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
  const Sheet& own = sheet(name);
  return std::max(compute_s(own, operation, work), work.bytes / own.bytes_per_s) + own.launch_s;
}

}  // namespace heteroperf

#include "runners/cluster/efficiency_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/cluster/system_files.hpp"

// The matrix holds what is known of device classes and links, and where each number comes from. A
// measured number takes the place of a given one, and a given one that of a computed one, in
// whatever order they are added.

namespace heteroperf {
namespace {

/// The properties of a class that stand among the efficiency entries of a description, where rates
/// count bytes or launches per second.
constexpr struct {
  const char* operation;
  DeviceQuantity quantity;
  bool inverse;  ///< the property is the time of one
} stated_rates[] = {{"memory", DeviceQuantity::memory_bytes_per_s, false},
                    {"launch", DeviceQuantity::launch_s, true}};

/// Tells extents "AxBxC", or an empty text, from what is no shape.
bool is_shape(const std::string& shape) {
  for (std::size_t begin = 0; !shape.empty() && begin <= shape.size();) {
    const std::size_t end = std::min(shape.find('x', begin), shape.size());
    const auto extent = parse_integer(std::string_view(shape).substr(begin, end - begin));
    if (!extent || *extent < 1) return false;
    begin = end + 1;
  }
  return true;
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

/// Places `entry` unless the present one holds by its provenance.
template <class Map, class Key, class Entry>
void place(Map& map, const Key& key, const Entry& entry) {
  const auto [present, is_new] = map.emplace(key, entry);
  if (is_new || entry.origin.provenance < present->second.origin.provenance) return;
  present->second = entry;
}

/// Writes a key for messages.
std::string text_of(const EfficiencyMatrix::OperationKey& key) {
  return fmt::format("{} {} {} {}", key.device_class,
                     key.operation.empty() ? "any operation" : key.operation,
                     key.shape.empty() ? "any shape" : key.shape, key.precision);
}

/// The prices and watts of a device class.
constexpr std::pair<DeviceQuantity, std::optional<double> DeviceClass::*> tariffs[] = {
    {DeviceQuantity::price_per_hour, &DeviceClass::price_per_hour},
    {DeviceQuantity::idle_watts, &DeviceClass::idle_watts},
    {DeviceQuantity::busy_watts, &DeviceClass::busy_watts},
};

/// Reads the origin from the words of a source.
Origin origin_of(const std::string& source) {
  return {source.starts_with("measured") ? Provenance::probe : Provenance::file, source};
}

/// Returns the stated origin, else the one that the words of the source tell.
Origin origin_of(const Efficiency& entry) {
  if (!entry.provenance) return origin_of(entry.source);
  return {*entry.provenance, entry.source};
}

}  // namespace

void EfficiencyMatrix::add(const OperationKey& key, const Rate& rate) {
  ProblemList problems;
  if (key.device_class.empty() || key.precision.empty()) {
    problems.add(fmt::format("a rate of {} operations per second", rate.rate.value()),
                 "has no device class or no precision");
  }
  if (!is_shape(key.shape)) {
    problems.add(fmt::format("the shape of {} is \"{}\"", text_of(key), key.shape),
                 "as in 1024x1024x64");
  }
  if (!is_positive(rate.rate.value())) {
    problems.add(fmt::format("{} is {} operations per second", text_of(key), rate.rate.value()),
                 "must be positive and finite");
  }
  problems.throw_if_any();
  place(rates_, key, rate);
}

void EfficiencyMatrix::add(const DeviceKey& key, const Value& value) {
  const char* name = to_string(key.second);
  if (key.first.empty()) throw UserError(fmt::format("{} of no device class", name));
  const bool may_be_zero = key.second != DeviceQuantity::memory_bytes &&
                           key.second != DeviceQuantity::memory_bytes_per_s;
  if (!is_positive(value.value) && !(may_be_zero && value.value == 0)) {
    throw UserError(fmt::format("{} of {} is {}", name, key.first, value.value),
                    may_be_zero ? "must be 0 or more and finite" : "must be positive and finite");
  }
  place(values_, key, value);
}

void EfficiencyMatrix::add(LinkScope scope, const std::string& a, const std::string& b,
                           const Curve& curve) {
  if (a.empty() || b.empty()) throw UserError("a link has an end without a name");
  if (curve.curve.empty())
    throw UserError(fmt::format("the link of {} and {} has no points", a, b));
  place(links_, LinkKey(scope, std::min(a, b), std::max(a, b)), curve);
}

void EfficiencyMatrix::merge(const EfficiencyMatrix& added) {
  for (const auto& [key, rate] : added.rates_) place(rates_, key, rate);
  for (const auto& [key, value] : added.values_) place(values_, key, value);
  for (const auto& [key, curve] : added.links_) place(links_, key, curve);
}

std::optional<double> EfficiencyMatrix::value(const std::string& device_class,
                                              DeviceQuantity quantity) const {
  const auto entry = values_.find({device_class, quantity});
  if (entry == values_.end()) return std::nullopt;
  return entry->second.value;
}

const EfficiencyMatrix::Curve* EfficiencyMatrix::link(LinkScope scope, const std::string& a,
                                                      const std::string& b) const {
  const auto entry = links_.find(LinkKey(scope, std::min(a, b), std::max(a, b)));
  return entry == links_.end() ? nullptr : &entry->second;
}

EfficiencyMatrix matrix_of(const Cluster& cluster) {
  EfficiencyMatrix matrix;
  for (const DeviceClass& device : cluster.classes) {
    const Origin given{Provenance::file, "cluster " + cluster.name};
    for (const auto& [precision, rate] : device.rates) {
      matrix.add({device.name, "", "", precision}, {rate, given});
    }
    for (const auto& [quantity, member] : tariffs) {
      if (device.*member) matrix.add({device.name, quantity}, {*(device.*member), given});
    }
    if (device.memory.value() == 0) continue;
    matrix.add({device.name, DeviceQuantity::memory_bytes},
               {static_cast<double>(device.memory.value()), given});
  }
  for (const Efficiency& entry : cluster.efficiency) {
    const Origin origin = origin_of(entry);
    const auto* const stated = std::ranges::find_if(
        stated_rates, [&](const auto& row) { return entry.operation == row.operation; });
    if (stated != std::end(stated_rates)) {
      const double rate = entry.rate.value();
      matrix.add({entry.device_class, stated->quantity},
                 {stated->inverse ? 1 / rate : rate, origin});
    } else if (!entry.precision.empty() && is_shape(entry.shape)) {
      matrix.add({entry.device_class, entry.operation, entry.shape, entry.precision},
                 {entry.rate, origin});
    }
  }
  for (const Link& link : cluster.links) {
    if (link.ranks || link.curve.empty()) continue;
    matrix.add(LinkScope::zones, link.from, link.to, {link.curve, origin_of(link.source)});
  }
  return matrix;
}

EfficiencyMatrix scaled_rates(const EfficiencyMatrix& known, const std::string& device_class,
                              const std::string& precision, double factor, const Origin& origin) {
  EfficiencyMatrix scaled;
  for (const auto& [key, rate] : known.rates()) {
    if (key.device_class != device_class || key.precision != precision) continue;
    scaled.add(key, {OpsPerSecond(rate.rate.value() * factor), origin});
  }
  for (const auto& [operation, quantity, inverse] : stated_rates) {
    const auto value = known.value(device_class, quantity);
    if (!value || *value <= 0) continue;
    scaled.add({device_class, quantity}, {inverse ? *value / factor : *value * factor, origin});
  }
  return scaled;
}

void apply(const EfficiencyMatrix& matrix, Cluster& cluster) {
  const auto put = [&](Efficiency entry) {
    const auto same = [&](const Efficiency& e) {
      return std::tie(e.device_class, e.operation, e.shape, e.precision) ==
             std::tie(entry.device_class, entry.operation, entry.shape, entry.precision);
    };
    std::erase_if(cluster.efficiency, same);
    cluster.efficiency.push_back(std::move(entry));
  };
  for (DeviceClass& device : cluster.classes) {
    for (const auto& [key, rate] : matrix.rates()) {
      if (key.device_class != device.name) continue;
      if (key.operation.empty()) {
        device.rates[key.precision] = rate.rate;
      } else {
        put({device.name, key.operation, key.shape, key.precision, rate.rate, rate.origin.source,
             rate.origin.provenance});
      }
    }
    for (const auto& [quantity, member] : tariffs) {
      if (const auto value = matrix.value(device.name, quantity)) device.*member = value;
    }
    for (const auto& [operation, quantity, inverse] : stated_rates) {
      const auto known = matrix.values().find({device.name, quantity});
      if (known == matrix.values().end() || known->second.value <= 0) continue;
      const auto& [value, origin] = known->second;
      // A description may give a shape or a precision with such a rate, which nobody reads.
      std::erase_if(cluster.efficiency, [&, name = operation](const Efficiency& entry) {
        return entry.device_class == device.name && entry.operation == name;
      });
      put({device.name, operation, "", "", OpsPerSecond(inverse ? 1 / value : value), origin.source,
           origin.provenance});
    }
  }
}

}  // namespace heteroperf

#pragma once

#include <array>
#include <compare>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// The origin of an entry of the matrix.
struct Origin {
  Provenance provenance = Provenance::file;
  std::string source;  ///< a file, the date of a measurement, a formula
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// The properties of a device class that are one number each.
enum class DeviceQuantity {
  memory_bytes,
  memory_bytes_per_s,
  launch_s,  ///< seconds that an operation takes before it computes
  idle_watts,
  busy_watts,
  price_per_hour,
};
constexpr std::array<const char*, 6> value_names(DeviceQuantity) {
  return {"memory_bytes", "memory_bytes_per_s", "launch_s",
          "idle_watts",   "busy_watts",         "price_per_hour"};
}

/// Says if a link's ends are device classes or zones.
enum class LinkScope { classes, zones };
constexpr std::array<const char*, 2> value_names(LinkScope) { return {"classes", "zones"}; }

/// The rates and times that device classes and links achieve, with the origin of each.
class EfficiencyMatrix {
 public:
  /// Names one kind of operation ("gemm", "attention"; empty stands for any) and one shape
  /// ("1024x1024x64"; empty stands for any) in one precision. A name with a slash means one pass of
  /// the kind as the engine runs it ("gemm+gelu/forward"; runners/plan/README.md, Measured
  /// operations).
  struct OperationKey {
    std::string device_class, operation, shape, precision;
    auto operator<=>(const OperationKey&) const = default;
  };
  struct Rate {
    OpsPerSecond rate{0};
    Origin origin;
    friend bool operator==(const Rate&, const Rate&) = default;
  };
  struct Value {
    double value = 0;
    Origin origin;
    friend bool operator==(const Value&, const Value&) = default;
  };
  struct Curve {
    LinkCurve curve;
    Origin origin;
    friend bool operator==(const Curve&, const Curve&) = default;
  };
  using DeviceKey = std::pair<std::string, DeviceQuantity>;
  using LinkKey = std::tuple<LinkScope, std::string, std::string>;  ///< the two ends stand in order

  /// Each replaces an entry of the same or an earlier provenance, and leaves one of a later
  /// provenance. Throws UserError for impossible entries: a rate or size that is not positive and
  /// finite, a shape that is none, an empty curve, empty names.
  void add(const OperationKey& key, const Rate& rate);
  void add(const DeviceKey& key, const Value& value);
  void add(LinkScope scope, const std::string& a, const std::string& b, const Curve& curve);
  /// Adds all entries of `added`.
  void merge(const EfficiencyMatrix& added);

  const std::map<OperationKey, Rate>& rates() const { return rates_; }
  const std::map<DeviceKey, Value>& values() const { return values_; }
  const std::map<LinkKey, Curve>& links() const { return links_; }
  std::optional<double> value(const std::string& device_class, DeviceQuantity quantity) const;
  /// Returns null where the pair is not known in either order.
  const Curve* link(LinkScope scope, const std::string& a, const std::string& b) const;

  friend bool operator==(const EfficiencyMatrix&, const EfficiencyMatrix&) = default;

 private:
  std::map<OperationKey, Rate> rates_;
  std::map<DeviceKey, Value> values_;
  std::map<LinkKey, Curve> links_;
};

/// Collects the entries of a cluster's description: its classes' rates and memory, its efficiency
/// entries ("memory" is bandwidth; those without a precision or with a shape of another form are
/// left out), and its labels' links as zones.
EfficiencyMatrix matrix_of(const Cluster& cluster);

/// The entries that say how fast a class computes in one precision, its memory bandwidth and its
/// launches, as they are where all of it runs `factor` times as fast.
EfficiencyMatrix scaled_rates(const EfficiencyMatrix& known, const std::string& device_class,
                              const std::string& precision, double factor, const Origin& origin);

/// Puts the matrix's rates, memory bandwidths, prices and watts of the cluster's classes into the
/// classes and among the efficiency entries, in place of those of the same key. Stage times and
/// pacing read them there.
void apply(const EfficiencyMatrix& matrix, Cluster& cluster);

/// Writes the file format heteroperf-efficiency, version 1 (runners/plan/README.md).
std::string efficiency_matrix_text(const EfficiencyMatrix& matrix);
/// Reads it back. Throws UserError with every problem and its path: unknown keys, wrong types,
/// numbers that are not positive and finite, entries that are there twice, links of unlike
/// directions.
EfficiencyMatrix parse_efficiency_matrix(const std::string& text, const std::string& origin);
EfficiencyMatrix read_efficiency_matrix(const std::filesystem::path& file);

}  // namespace heteroperf

#pragma once

#include <array>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

struct Origin {
  Provenance provenance = Provenance::file;
  std::string source;  ///< file, date of the measurement, formula
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// What is known of a device class as one number each.
enum class DeviceQuantity {
  memory_bytes,
  memory_bytes_per_s,
  launch_s,  ///< of an operation, before it computes
  idle_watts,
  busy_watts,
  price_per_hour,
};
constexpr std::array<const char*, 6> value_names(DeviceQuantity) {
  return {"memory_bytes", "memory_bytes_per_s", "launch_s",
          "idle_watts",   "busy_watts",         "price_per_hour"};
}

/// Whether a link's ends are device classes or zones.
enum class LinkScope { classes, zones };
constexpr std::array<const char*, 2> value_names(LinkScope) { return {"classes", "zones"}; }

/// An operation that somebody wants the time of.
struct OperationWork {
  double operations = 0, bytes = 0;  ///< strict operations; memory read and written
  double size = 0;                   ///< product of the shape's extents; 0: unknown
};

/// What device classes and links achieve, and who says so.
class EfficiencyMatrix {
 public:
  /// Of one kind of operation ("gemm", "attention"; empty: any) and one shape ("1024x1024x64";
  /// empty: any) in one precision. A name with a slash is of one pass of the kind as the engine
  /// runs it ("gemm+gelu/forward"; runners/plan/README.md, Measured operations).
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
  using LinkKey = std::tuple<LinkScope, std::string, std::string>;  ///< the ends in order

  /// Each replaces what is there of the same or an earlier provenance, and leaves what is there of
  /// a later one. Throws UserError for what cannot be: a rate or size that is not positive and
  /// finite, a shape that is none, an empty curve, names that are empty.
  void add(const OperationKey& key, const Rate& rate);
  void add(const DeviceKey& key, const Value& value);
  void add(LinkScope scope, const std::string& a, const std::string& b, const Curve& curve);
  /// Adds all of `other`.
  void merge(const EfficiencyMatrix& other);

  const std::map<OperationKey, Rate>& rates() const { return rates_; }
  const std::map<DeviceKey, Value>& values() const { return values_; }
  const std::map<LinkKey, Curve>& links() const { return links_; }
  std::optional<double> value(const std::string& device_class, DeviceQuantity quantity) const;
  /// Null where neither end's pair is known.
  const Curve* link(LinkScope scope, const std::string& a, const std::string& b) const;

  struct Time {
    double seconds = 0;
    Origin origin;
  };
  /// launch + operations / rate, with the rate of the operation's entry of the nearest size
  /// (ratio), else of any operation of the class. Without either: the roofline launch +
  /// max(operations / fastest rate of the class in that precision, bytes / memory bandwidth), as
  /// analytic. Without operations: launch + bytes / memory bandwidth. Throws UserError naming all
  /// that is missing.
  Time time(const std::string& device_class, const std::string& operation,
            const std::string& precision, const OperationWork& work) const;

  friend bool operator==(const EfficiencyMatrix&, const EfficiencyMatrix&) = default;

 private:
  const Rate* nearest(const OperationKey& wanted, double size) const;
  const Rate* fastest(const std::string& device_class, const std::string& precision) const;

  std::map<OperationKey, Rate> rates_;
  std::map<DeviceKey, Value> values_;
  std::map<LinkKey, Curve> links_;
};

/// What a cluster's description says: its classes' rates and memory, its efficiency entries
/// ("memory" is bandwidth; those without a precision or with a shape of another form are left out),
/// its labels' links as zones.
EfficiencyMatrix matrix_of(const Cluster& cluster);

/// Puts the matrix's rates, memory bandwidths, prices and watts of the cluster's own classes into
/// the classes and among its efficiency entries, in place of those of the same key, as stage times
/// and pacing read them.
void apply(const EfficiencyMatrix& matrix, Cluster& cluster);

}  // namespace heteroperf

#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/rank_clusters.hpp"

namespace heteroperf {

struct Machine;

enum class DeviceKind { cpu, cuda, paced };
constexpr std::array<const char*, 3> value_names(DeviceKind) { return {"cpu", "cuda", "paced"}; }

/// Chips that are alike: they have the same rate and the same memory. One rank drives one device.
struct DeviceClass {
  std::string name;
  DeviceKind kind = DeviceKind::cpu;
  Bytes memory{0};  ///< memory of one device
  int count = 1;    ///< number of devices
  int threads = 1;  ///< CPU threads that compute for one device
  /// Measured operations per second of one device, by precision ("fp32", "bf16", "fp64"). It is
  /// empty until a probe or a run has measured it.
  std::map<std::string, OpsPerSecond> rates = {};

  /// The price of an hour of one device in any one currency, and its power while it waits and while
  /// it computes. Absent values are unknown.
  std::optional<double> price_per_hour = {}, idle_watts = {}, busy_watts = {};

  /// Returns true where its time is modelled: results are then marked and never ranked.
  bool emulated() const { return kind == DeviceKind::paced; }
};

/// Describes this machine as `ranks` equal CPU devices of `threads_per_rank` threads, which share
/// its memory evenly. Both numbers are above 0.
DeviceClass cpu_device_class(const Machine& machine, int ranks, int threads_per_rank);

/// The place of one rank in the cluster.
struct RankPlace {
  std::string device_class;        ///< name of one of Cluster::classes
  std::string host;                ///< empty when unknown
  std::string cluster;             ///< the cluster's label
  std::vector<std::string> cards;  ///< names of Cluster::cards, nearest first; may be empty
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// The link of two ranks, or of any two ranks of two clusters; it is the same in both directions.
struct Link {
  std::string from, to;  ///< cluster labels, equal for links inside; or both empty
  /// A pair with a link of its own, first < second.
  std::optional<std::pair<RankId, RankId>> ranks;
  LinkCurve curve;
  std::string source;  ///< "measured", "given", …
  friend bool operator==(const Link&, const Link&) = default;
};

/// The origin of a number. Where two kinds give one number, the later kind holds.
enum class Provenance { analytic, file, probe };
constexpr std::array<const char*, 3> value_names(Provenance) {
  return {"analytic", "file", "probe"};
}

/// An entry of the efficiency matrix: the rate that a class achieves on one kind of operation.
struct Efficiency {
  std::string device_class, operation, shape, precision;  ///< "gemm", "1024x1024x1024", "fp32"
  OpsPerSecond rate{0};
  std::string source;  ///< "measured 2026-11-21T…", a file, a formula
  /// Where it is absent, a source that begins with "measured" counts as a probe's, others as a
  /// file's.
  std::optional<Provenance> provenance = {};
  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

/// The most ranks that a description may have.
inline constexpr int most_cluster_ranks = 65536;

/// The machine as the planner, pacing and cost models see it.
struct Cluster {
  std::string name;
  std::vector<std::string> assumptions;  ///< the describer's; printed with predictions
  std::vector<DeviceClass> classes;
  std::vector<NetworkCard> cards;
  std::vector<RankPlace> ranks;
  std::vector<Link> links;
  std::vector<Efficiency> efficiency;

  /// Returns the pair's own curve, else that of its clusters. Requires check_cluster().
  const LinkCurve& link(RankId a, RankId b) const;
  /// Groups ranks by their cluster labels, with a bridge per distinct card and shares by bandwidth.
  RankClusters rank_clusters() const;
};

/// Throws UserError with every problem: an unknown class, card or label, a pair of ranks without a
/// link, two curves for one pair, a rate that is not positive.
void check_cluster(const Cluster& cluster);

/// The ranks of one device class, ascending.
struct ClassRanks {
  std::string device_class;
  std::vector<RankId> ranks;
};
/// Lists all classes that have ranks, in the order of their first ones.
std::vector<ClassRanks> ranks_by_class(const Cluster& cluster);

/// Returns the class with that name, or that of a rank. Requires check_cluster().
const DeviceClass& class_of(const Cluster& cluster, const std::string& name);
const DeviceClass& class_of(const Cluster& cluster, RankId rank);

/// Returns true when the ranks are emulated devices. Throws UserError for a cluster that mixes
/// emulated and real ones, as they keep different times.
bool is_emulated(const Cluster& cluster);

/// Names the descriptions that come with the program (runners/cluster/descriptions).
std::vector<std::string> shipped_cluster_names();

/// Returns such a description. Throws UserError naming the nearest name.
Cluster shipped_cluster(const std::string& name);

/// Reads the cluster file of that path; where there is none, takes the shipped description of that
/// name. Throws UserError as these do.
Cluster find_cluster(const std::string& file_or_name);

namespace detail {
struct ShippedText {
  const char* name;
  const char* text;
};
std::vector<ShippedText> shipped_texts();
std::vector<ShippedText> shipped_chips();
}  // namespace detail

}  // namespace heteroperf

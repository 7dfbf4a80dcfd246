#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/device_class.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/rank_clusters.hpp"

namespace heteroperf {

/// A network card; ranks that name the same card share its bandwidth.
struct NetworkCard {
  std::string name;
  BytesPerSecond bandwidth{0};  ///< 0: unknown, does not limit
  Bytes burst{0};               ///< that pass unlimited after a pause, as shapers have it
  friend bool operator==(const NetworkCard&, const NetworkCard&) = default;
};

/// Where one rank lives.
struct RankPlace {
  std::string device_class;        ///< names one of Cluster::classes
  std::string host;                ///< "" when unknown
  std::string cluster;             ///< label
  std::vector<std::string> cards;  ///< names of Cluster::cards, nearest first; may be empty
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// How two ranks, or any two ranks of two clusters, are linked; the same in both directions.
struct Link {
  std::string from, to;  ///< cluster labels, equal for links inside; or both empty
  std::optional<std::pair<RankId, RankId>> ranks;  ///< a pair of its own, first < second
  LinkCurve curve;
  std::string source;  ///< "measured", "given", …
  friend bool operator==(const Link&, const Link&) = default;
};

/// Where a number comes from: of two for one thing, the later kind holds.
enum class Provenance { analytic, file, probe };
constexpr std::array<const char*, 3> value_names(Provenance) {
  return {"analytic", "file", "probe"};
}

/// One entry of the efficiency matrix: what a class achieves on one kind of operation.
struct Efficiency {
  std::string device_class, operation, shape, precision;  ///< "gemm", "1024x1024x1024", "fp32"
  OpsPerSecond rate{0};
  std::string source;  ///< "measured 2026-11-21T…", file, formula
  /// Where it is not said, a source that begins with "measured" is a probe's, any other a file's.
  std::optional<Provenance> provenance = {};
  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

/// That a description may have.
inline constexpr int most_cluster_ranks = 65536;

/// The machine as planner, pacing and cost models see it.
struct Cluster {
  std::string name;
  std::vector<std::string> assumptions;  ///< of whoever described it; printed with predictions
  std::vector<DeviceClass> classes;
  std::vector<NetworkCard> cards;
  std::vector<RankPlace> ranks;
  std::vector<Link> links;
  std::vector<Efficiency> efficiency;

  /// The pair's own curve, else its clusters'. Requires check_cluster().
  const LinkCurve& link(RankId a, RankId b) const;
  /// By the ranks' cluster labels; a bridge per distinct card, shares by bandwidth.
  RankClusters rank_clusters() const;
};

/// Throws UserError with everything wrong: unknown class, card or label, a pair of ranks without a
/// link, two curves for one pair, a rate that is not positive.
void check_cluster(const Cluster& cluster);

/// The ranks of one device class, ascending.
struct ClassRanks {
  std::string device_class;
  std::vector<RankId> ranks;
};
/// All classes that have ranks, in the order of their first ones.
std::vector<ClassRanks> ranks_by_class(const Cluster& cluster);

/// The class with that name, or that of a rank. Requires check_cluster().
const DeviceClass& class_of(const Cluster& cluster, const std::string& name);
const DeviceClass& class_of(const Cluster& cluster, RankId rank);

/// True when the ranks are emulated devices. Throws UserError for a cluster that mixes emulated and
/// real ones, as they keep different times.
bool is_emulated(const Cluster& cluster);

}  // namespace heteroperf

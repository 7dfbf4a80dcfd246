#include "runners/cluster/cluster_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/cluster.hpp"

// ClusterReader builds a Cluster key by key and notes every problem with the path of its key. The
// checks that look at the cluster as a whole come from check_cluster(), whose problems are added to
// the same list.

namespace heteroperf {
namespace {

constexpr const char* cluster_format_name = "heteroperf-cluster";
constexpr int cluster_format_version = 1;

/// Returns the shortest bandwidth that makes exactly this curve, if the curve is α + n·β.
std::optional<BytesPerSecond> plain_bandwidth(const LinkCurve& curve) {
  if (curve.points().size() != 2 || curve.points().front().size != Bytes(0)) return std::nullopt;
  for (int digits = 1; digits <= 17; ++digits) {
    const BytesPerSecond rounded(
        std::stod(fmt::format("{:.{}g}", curve.bandwidth().value(), digits)));
    if (LinkCurve(curve.latency(), rounded) == curve) return rounded;
  }
  return std::nullopt;
}

/// Tells if two numbers differ by no more than their printing.
bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

/// Writes a curve as latency and bandwidth where these say it all, else as points.
void put_curve(const LinkCurve& curve, nlohmann::json& entry) {
  if (curve.empty()) return;
  if (const auto bandwidth = plain_bandwidth(curve)) {
    entry["latency_s"] = curve.latency().value();
    entry["bandwidth_bytes_per_s"] = bandwidth->value();
    return;
  }
  entry["points"] = link_points_json(curve);
  // These serve people who read the file and do not compute.
  entry["latency_s"] = curve.latency().value();
  entry["bandwidth_bytes_per_s"] = curve.bandwidth().value();
}

nlohmann::json to_json(const NetworkCard& card) {
  nlohmann::json entry = {{"name", card.name}};
  if (card.bandwidth != BytesPerSecond(0)) entry["bandwidth_bytes_per_s"] = card.bandwidth.value();
  if (card.burst != Bytes(0)) entry["burst_bytes"] = card.burst.value();
  return entry;
}

nlohmann::json to_json(const RankPlace& place) {
  nlohmann::json entry = {{"class", place.device_class}, {"cluster", place.cluster}};
  if (!place.host.empty()) entry["host"] = place.host;
  if (!place.cards.empty()) entry["cards"] = place.cards;
  return entry;
}

/// Lists ranks; equal neighbours become one group.
nlohmann::json to_json(const std::vector<RankPlace>& ranks) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[begin]) ++end;
    nlohmann::json entry = to_json(ranks[begin]);
    if (end - begin > 1) entry["count"] = end - begin;
    list.push_back(std::move(entry));
    begin = end;
  }
  return list;
}

nlohmann::json to_json(const Link& link) {
  nlohmann::json entry;
  if (link.ranks) {
    entry["between"] = {link.ranks->first.value(), link.ranks->second.value()};
  } else {
    entry["between"] = {link.from, link.to};
  }
  put_curve(link.curve, entry);
  if (!link.source.empty()) entry["source"] = link.source;
  return entry;
}

nlohmann::json to_json(const Efficiency& efficiency) {
  nlohmann::json entry = {{"class", efficiency.device_class},
                          {"operation", efficiency.operation},
                          {"ops_per_second", efficiency.rate.value()}};
  if (!efficiency.shape.empty()) entry["shape"] = efficiency.shape;
  if (!efficiency.precision.empty()) entry["precision"] = efficiency.precision;
  if (!efficiency.source.empty()) entry["source"] = efficiency.source;
  if (efficiency.provenance) entry["provenance"] = to_string(*efficiency.provenance);
  return entry;
}

template <class Element>
nlohmann::json list_of(const std::vector<Element>& elements) {
  nlohmann::json list = nlohmann::json::array();
  for (const Element& element : elements) list.push_back(to_json(element));
  return list;
}

/// Builds a Cluster from a document and notes every problem on the way.
class ClusterReader {
 public:
  explicit ClusterReader(const std::string& where) : problems_(where) {}

  Cluster read(const Json& document) {
    ObjectReader reader(document, "", problems_);
    reader.expect_format(cluster_format_name, cluster_format_version);
    reader.require({"classes", "ranks"});
    reader.read("name", cluster_.name);
    reader.read("assumptions", cluster_.assumptions);
    reader.for_each("classes", *this, &ClusterReader::read_class);
    reader.for_each("cards", *this, &ClusterReader::read_card);
    reader.for_each("ranks", *this, &ClusterReader::read_ranks);
    reader.for_each("links", *this, &ClusterReader::read_link);
    reader.for_each("efficiency", *this, &ClusterReader::read_efficiency);
    reader.finish();
    count_devices();
    if (reader.has("classes") && reader.has("ranks")) {
      try {
        check_cluster(cluster_);
      } catch (const UserError& error) {
        problems_.add_all(error);
      }
    }
    problems_.throw_if_any();
    return std::move(cluster_);
  }

 private:
  /// Reads a device class, with a count that may be missing. A class with problems is added all the
  /// same, so that ranks that name it are not wrong.
  void read_class(const Json& entry, const std::string& path) {
    DeviceClass device = read_device_class(entry, path, problems_);
    if (device.name.empty()) return;
    if (!entry.contains("count")) uncounted_.push_back(device.name);
    cluster_.classes.push_back(std::move(device));
  }

  /// Reads a card. One without a name is left out, unless the name is there and empty.
  void read_card(const Json& entry, const std::string& path) {
    ObjectReader reader(entry, path, problems_);
    NetworkCard card;
    reader.require({"name"});
    reader.read("name", card.name);
    reader.read("bandwidth_bytes_per_s", card.bandwidth);
    reader.read("burst_bytes", card.burst);
    reader.finish();
    if (reader.has("name")) cluster_.cards.push_back(std::move(card));
  }

  /// Reads a group of equal ranks; `per_host` spreads them over numbered hosts.
  void read_ranks(const Json& entry, const std::string& path) {
    ObjectReader reader(entry, path, problems_);
    RankPlace place;
    int count = 1, per_host = 0;
    reader.read("count", count, 1, most_cluster_ranks);
    reader.read("per_host", per_host, 1, most_cluster_ranks);
    reader.read("class", place.device_class);
    reader.read("host", place.host);
    reader.read("cluster", place.cluster);
    reader.read("cards", place.cards);
    reader.finish();
    const std::size_t total = cluster_.ranks.size() + static_cast<std::size_t>(count);
    if (total > most_cluster_ranks) {
      problems_.add(fmt::format("{} is rank {}", path, total),
                    fmt::format("at most {}", most_cluster_ranks));
      return;
    }
    const std::string host = place.host;
    for (int i = 0; i < count; ++i) {
      if (per_host > 0) place.host = fmt::format("{}-{:04}", host, i / per_host);
      cluster_.ranks.push_back(place);
    }
  }

  /// Reads a link with its ends, its curve and its source.
  void read_link(const Json& entry, const std::string& path) {
    ObjectReader reader(entry, path, problems_);
    reader.require({"between"});
    Link link;
    const bool fits = read_between(reader.value("between"), path + ".between", link);
    if (entry.is_object()) link.curve = read_curve(reader);
    reader.read("source", link.source);
    reader.finish();
    if (fits) add_link(std::move(link), entry["between"]);
  }

  /// Reads the two ends of a link, which are labels or ranks.
  bool read_between(const Json* between, const std::string& path, Link& link) {
    constexpr const char* expected = "two cluster labels or two ranks";
    if (between == nullptr) return false;
    if (!between->is_array() || between->size() != 2) {
      return note_wrong(*between, path, expected, problems_);
    }
    const Json &a = (*between)[0], &b = (*between)[1];
    if (a.is_string() && b.is_string()) {
      link.from = a.get<std::string>();
      link.to = b.get<std::string>();
      return true;
    }
    if (a.is_string() || b.is_string()) return note_wrong(*between, path, expected, problems_);
    std::array<int, 2> ranks = {0, 0};
    const bool fits = read_value(a, path + "[0]", ranks[0], problems_, 0, most_cluster_ranks - 1) &&
                      read_value(b, path + "[1]", ranks[1], problems_, 0, most_cluster_ranks - 1);
    if (!fits) return false;
    link.ranks.emplace(RankId(std::min(ranks[0], ranks[1])), RankId(std::max(ranks[0], ranks[1])));
    return true;
  }

  /// After a problem it returns any curve, which keeps the link from counting as missing.
  LinkCurve read_curve(ObjectReader& reader) {
    const std::string path = reader.path_of("points");
    const bool has_points = reader.has("points");
    const bool has_latency = reader.has("latency_s"),
               has_bandwidth = reader.has("bandwidth_bytes_per_s");
    double latency_s = 0, bandwidth = 1;
    reader.read("latency_s", latency_s);
    reader.read("bandwidth_bytes_per_s", bandwidth);
    try {
      if (has_points) {
        const LinkCurve curve(read_link_points(reader, problems_));
        if ((has_latency && !near(latency_s, curve.latency().value())) ||
            (has_bandwidth && !near(bandwidth, curve.bandwidth().value()))) {
          throw UserError("latency_s or bandwidth_bytes_per_s is not that of the points",
                          fmt::format("they give {:g} s and {:g} B/s", curve.latency().value(),
                                      curve.bandwidth().value()),
                          "Leave them out: the points say it all");
        }
        return curve;
      }
      if (!has_latency || !has_bandwidth) {
        throw UserError("latency_s and bandwidth_bytes_per_s, or points, are missing");
      }
      return {Seconds(latency_s), BytesPerSecond(bandwidth)};
    } catch (const UserError& error) {
      problems_.add_all(error, path.substr(0, path.rfind('.')) + ": ");
      return {Seconds(0), BytesPerSecond(1)};
    }
  }

  /// Adds a link. The other direction of a link that is there, with the same curve, adds nothing.
  void add_link(Link link, const Json& between) {
    const auto reverse = link_directions_.find(Json{between[1], between[0]}.dump());
    const bool is_reverse = between[0] != between[1] && reverse != link_directions_.end();
    if (is_reverse && cluster_.links[reverse->second].curve == link.curve) return;
    link_directions_.emplace(between.dump(), cluster_.links.size());
    cluster_.links.push_back(std::move(link));
  }

  /// Reads an entry of the efficiency matrix.
  void read_efficiency(const Json& entry, const std::string& path) {
    ObjectReader reader(entry, path, problems_);
    Efficiency efficiency;
    reader.require({"class", "operation", "ops_per_second"});
    reader.read("class", efficiency.device_class);
    reader.read("operation", efficiency.operation);
    reader.read("shape", efficiency.shape);
    reader.read("precision", efficiency.precision);
    reader.read("ops_per_second", efficiency.rate);
    reader.read("source", efficiency.source);
    if (reader.has("provenance")) reader.read("provenance", efficiency.provenance.emplace());
    reader.finish();
    if (reader.has("class") && reader.has("operation") && reader.has("ops_per_second")) {
      cluster_.efficiency.push_back(std::move(efficiency));
    }
  }

  /// Counts the ranks of classes without a count, so that a file written by hand need not count
  /// twice.
  void count_devices() {
    for (DeviceClass& device : cluster_.classes) {
      if (std::ranges::find(uncounted_, device.name) == uncounted_.end()) continue;
      const auto ranks = std::ranges::count(cluster_.ranks, device.name, &RankPlace::device_class);
      device.count = std::max(1, static_cast<int>(ranks));
    }
  }

  DocumentProblems problems_;
  Cluster cluster_;
  std::vector<std::string> uncounted_;                  ///< classes without a count
  std::map<std::string, std::size_t> link_directions_;  ///< `between` as written, to the link
};

}  // namespace

nlohmann::json to_json(const Cluster& cluster) {
  nlohmann::json document = {{"_format", cluster_format_name},
                             {"_version", cluster_format_version},
                             {"classes", list_of(cluster.classes)},
                             {"ranks", to_json(cluster.ranks)},
                             {"links", list_of(cluster.links)}};
  if (!cluster.name.empty()) document["name"] = cluster.name;
  if (!cluster.assumptions.empty()) document["assumptions"] = cluster.assumptions;
  if (!cluster.cards.empty()) document["cards"] = list_of(cluster.cards);
  if (!cluster.efficiency.empty()) document["efficiency"] = list_of(cluster.efficiency);
  return document;
}

Cluster cluster_from_json(const nlohmann::json& json, const std::string& where) {
  return ClusterReader(where).read(Json(json));
}

Cluster read_cluster(const std::filesystem::path& file) {
  const std::string text =
      read_text_file(file, "cluster file", "`heteroperf probe -o FILE` writes one.");
  return ClusterReader(file.string())
      .read(parse_strict_json(text, file.string(), cluster_format_name));
}

nlohmann::json link_points_json(const LinkCurve& curve) {
  nlohmann::json points = nlohmann::json::array();
  for (const LinkCurve::Point& point : curve.points()) {
    points.push_back({{"bytes", point.size.value()}, {"time_s", point.time.value()}});
  }
  return points;
}

std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems) {
  std::vector<LinkCurve::Point> points;
  reader.for_each("points", [&](const Json& entry, const std::string& path) {
    ObjectReader point(entry, path, problems);
    LinkCurve::Point& read = points.emplace_back();
    point.require({"bytes", "time_s"});
    point.read("bytes", read.size);
    point.read("time_s", read.time);
    point.finish();
  });
  return points;
}

std::vector<std::string> shipped_cluster_names() {
  std::vector<std::string> names;
  for (const detail::ShippedText& shipped : detail::shipped_texts())
    names.emplace_back(shipped.name);
  return names;
}

Cluster shipped_cluster(const std::string& name) {
  for (const detail::ShippedText& shipped : detail::shipped_texts()) {
    if (name == shipped.name) return cluster_from_json(nlohmann::json::parse(shipped.text), name);
  }
  throw unknown_name("shipped cluster", name, shipped_cluster_names());
}

Cluster find_cluster(const std::string& file_or_name) {
  std::error_code error;
  const bool there = std::filesystem::exists(file_or_name, error);
  const bool path = file_or_name.find_first_of("/.") != std::string::npos;
  return there || path ? read_cluster(file_or_name) : shipped_cluster(file_or_name);
}

}  // namespace heteroperf

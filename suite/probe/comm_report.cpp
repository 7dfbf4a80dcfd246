// The three forms of what `comm` measured: a table for people, CSV for spreadsheets, both printed
// row by row, and a JSON document. *algbw* is the size of the buffers over the time of a call;
// *busbw* multiplies it by a factor of the collective and the number of ranks (as nccl-tests), so
// that it compares with the rate of a link whatever the collective. Both are in GB/s of 1e9 bytes.
//
// The verdict stands in one order: wrong elements make speed meaningless, so they come before a
// bandwidth below --min-bw. A document of a session that failed names the failed ranks and keeps
// the sizes that were measured.
#include "suite/probe/comm_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/id.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/text/document.hpp"
#include "results/text/number_text.hpp"
#include "runners/comm/element_types.hpp"
#include "suite/probe/cluster_report.hpp"

namespace heteroperf {
namespace {

/// The reason says whether clusters were given or found.
std::string clusters_text(const RankClusters& clusters) {
  const auto cluster_text = [](const RankCluster& cluster) {
    return fmt::format("{} [{}]", cluster.label, ranks_text(cluster));
  };
  return fmt::format("{} ({})", joined(clusters.clusters, ", ", cluster_text), clusters.reason);
}

/// A time in seconds, which people compare in microseconds.
Datum time_datum(std::optional<double> seconds) {
  constexpr double micro = 1e6;
  return Datum(seconds).as(seconds ? fmt::format("{:.2f}", *seconds * micro) : "-");
}
Datum rate_datum(std::optional<double> gigabytes_per_s) {
  return Datum(gigabytes_per_s).as(gigabytes_per_s ? fmt::format("{:.3f}", *gigabytes_per_s) : "-");
}
Datum count_datum(std::optional<std::uint64_t> count) {
  return Datum(count).as(count ? std::to_string(*count) : "-");
}

/// The measurements at one size, for people and as CSV. Rows are printed as they come, so the names
/// of the columns are as wide as their widest cells.
Table table_of(const CommResult& result) {
  constexpr Audience programs = Audience::programs;
  Table table{.key = "results",
              .columns = {{"bytes", "      bytes", Unit::bytes},
                          {"elements", "  elements", Unit::none},
                          {"algorithm", "algorithm         ", Unit::none},
                          {"wire", "wire", Unit::none, programs},
                          {"median_s", "  median_us", Unit::seconds},
                          {"min_s", "     min_us", Unit::seconds},
                          {"p95_s", "     p95_us", Unit::seconds},
                          {"ci95_low_s", "low end", Unit::seconds, programs},
                          {"ci95_high_s", "high end", Unit::seconds, programs},
                          {"algbw_gbps", "   algbw", Unit::none},
                          {"busbw_gbps", "   busbw", Unit::none},
                          {"wrong", " wrong", Unit::none},
                          {"in_place_median_s", " in_place_us", Unit::seconds},
                          {"in_place_busbw_gbps", "   busbw", Unit::none},
                          {"in_place_wrong", " wrong", Unit::none},
                          {"wire_bytes", "wire", Unit::bytes, programs},
                          {"predicted_s", "predicted_us", Unit::seconds},
                          {"link_utilization", "  link", Unit::fraction}}};
  const CallTime& time = result.timing.time;
  std::optional<double> in_place_s, in_place_busbw, predicted_s;
  std::optional<std::uint64_t> in_place_wrong, wire_bytes;
  if (result.in_place) {
    in_place_s = result.in_place->time.median.value();
    in_place_busbw = result.in_place->busbw;
    in_place_wrong = result.in_place->wrong;
  }
  if (result.traffic) wire_bytes = result.traffic->wire.value();
  if (result.choice.predicted) predicted_s = result.choice.predicted->value();
  table.add(
      {count_datum(result.bytes.value()), result.elements, to_string(result.choice.algorithm),
       to_string(result.wire), time_datum(time.median.value()), time_datum(time.fastest.value()),
       time_datum(time.p95.value()), time.ci95.low, time.ci95.high, rate_datum(result.timing.algbw),
       rate_datum(result.timing.busbw), count_datum(result.timing.wrong), time_datum(in_place_s),
       rate_datum(in_place_busbw), count_datum(in_place_wrong), wire_bytes, time_datum(predicted_s),
       Datum(result.link_utilization)
           .as(result.link_utilization ? fmt::format("{:.0f}%", 100 * *result.link_utilization)
                                       : "-")});
  // A row of one size does not know that the others have numbers here.
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::string& shown = table.rows.front()[i].shown;
    if (shown == "-") shown = fmt::format("{:>{}}", shown, table.columns[i].label.size());
  }
  return table;
}

Json time_json(const CallTime& time) {
  return {{"median", time.median.value()},
          {"min", time.fastest.value()},
          {"p95", time.p95.value()},
          {"ci95", {time.ci95.low, time.ci95.high}},
          {"iterations", time.iterations}};
}

/// The same keys out of place and in place, the latter in an object of its own.
void put_timing(Json& json, const CommTiming& timing) {
  json["time_s"] = time_json(timing.time);
  json["algbw"] = timing.algbw;
  json["busbw"] = timing.busbw;
  if (timing.wrong) json["wrong"] = whole_number_json(*timing.wrong);
}

Json result_json(const CommResult& result) {
  Json json{{"bytes", whole_number_json(result.bytes.value())},
            {"elements", whole_number_json(result.elements)},
            {"algorithm", to_string(result.choice.algorithm)},
            {"reason", result.choice.reason},
            {"wire", to_string(result.wire)}};
  put_timing(json, result.timing);
  if (result.in_place) {
    json["in_place"] = Json::object();
    put_timing(json["in_place"], *result.in_place);
  }
  // Logical bytes are the values that cross between clusters; wire bytes what is left of them after
  // compression.
  if (result.traffic) {
    json["logical_bytes"] = whole_number_json(result.traffic->logical.value());
    json["wire_bytes"] = whole_number_json(result.traffic->wire.value());
    json["segment_bytes"] = whole_number_json(result.choice.segment.value());
  }
  if (result.choice.predicted) json["predicted_s"] = result.choice.predicted->value();
  if (result.link_utilization) json["link_utilization"] = *result.link_utilization;
  if (result.largest_error) {
    json["error"] = {{"largest", *result.largest_error}, {"rms", *result.rms_error}};
  }
  return json;
}

/// Clusters with their bridges, and where each rank runs.
Json topology_json(const CommReport& report) {
  Json clusters = Json::array();
  for (const RankCluster& cluster : report.clusters.clusters) {
    Json bridges = Json::array();
    for (const Bridge& bridge : cluster.bridges) {
      Json entry{{"rank", bridge.rank.value()}, {"share", bridge.share}};
      // A *bridge* is a rank that carries the traffic of its cluster to the others, for a share of
      // it.
      if (!bridge.card.empty()) entry["card"] = bridge.card;
      bridges.push_back(std::move(entry));
    }
    clusters.push_back(
        {{"label", cluster.label}, {"ranks", cluster.ranks}, {"bridges", std::move(bridges)}});
  }
  Json topology{{"reason", report.clusters.reason}, {"path", report.path}, {"hosts", report.hosts}};
  if (!report.devices.empty()) topology["devices"] = report.devices;
  topology["clusters"] = std::move(clusters);
  return topology;
}

}  // namespace

const char* CommReport::status() const {
  if (failure && failure->kind() != ErrorKind::interrupted) return "failed";
  return ended && !failure ? "complete" : "partial";
}

std::uint64_t CommReport::wrong_elements() const {
  std::uint64_t wrong = 0;
  for (const CommResult& result : results) {
    wrong += result.timing.wrong.value_or(0);
    if (result.in_place) wrong += result.in_place->wrong.value_or(0);
  }
  return wrong;
}

CommReport::Verdict CommReport::verdict() const {
  if (const std::uint64_t wrong = wrong_elements(); wrong > 0) {
    return {"wrong", fmt::format("{} wrong elements", wrong)};
  }
  if (request.least_busbw && best_busbw() < *request.least_busbw) {
    return {"regression", fmt::format("the best busbw is {:.3f} GB/s (--min-bw {:g})", best_busbw(),
                                      *request.least_busbw)};
  }
  return {"pass", ""};
}

double CommReport::best_busbw() const {
  double best = 0;
  for (const CommResult& result : results) {
    best = std::max({best, result.timing.busbw, result.in_place ? result.in_place->busbw : 0});
  }
  return best;
}

std::string comm_heading(const CommReport& report) {
  const CaseShape& shape = report.request.shape;
  return fmt::format(
      "{} of {}{}, {} ranks over {}{}, wire {}\npath: {}\nclusters: {}\n"
      "times in microseconds, bandwidths in GB/s (1e9 bytes); a call takes what its slowest rank "
      "takes\n",
      to_string(shape.collective), to_string(shape.type),
      reduces(shape.collective) ? fmt::format(" ({})", reduction_name(shape.reduction)) : "",
      report.ranks, report.transport, report.emulated() ? " (paced: emulated links)" : "",
      to_string(report.request.wire), report.path, clusters_text(report.clusters));
}

std::string comm_row(const CommReport& report, CommForm form) {
  const Table table = table_of(report.results.back());
  const std::string text = form == CommForm::csv ? csv_text(table) : console_text(table);
  return report.results.size() == 1 ? text : text.substr(text.find('\n') + 1);
}

std::string comm_json_text(const CommReport& report) {
  const CaseShape& shape = report.request.shape;
  Json json = new_document("heteroperf-comm");
  json.update({{"status", report.status()},
               {"collective", to_string(shape.collective)},
               {"type", to_string(shape.type)}});
  // Before all sizes are measured a verdict could still change.
  if (report.ended) {
    const CommReport::Verdict verdict = report.verdict();
    json["verdict"] = verdict.name;
    json["reasons"] = Json::array();
    if (!verdict.reason.empty()) json["reasons"].push_back(verdict.reason);
  }
  if (reduces(shape.collective)) json["reduction"] = reduction_name(shape.reduction);
  // A session that failed while it was built knows neither ranks nor clusters.
  if (report.ranks > 0) json.update({{"ranks", report.ranks}, {"transport", report.transport}});
  json.update({{"emulated", report.emulated()},
               {"checksums", report.request.checksum},
               {"units", {{"algbw", "GB/s"}, {"busbw", "GB/s"}}}});
  json["results"] = Json::array();
  for (const CommResult& result : report.results) {
    json["results"].push_back(result_json(result));
  }
  if (!report.clusters.clusters.empty()) {
    json["clusters"] = Json::array();
    for (const RankCluster& cluster : report.clusters.clusters) {
      json["clusters"].push_back(cluster.ranks);
    }
    json["topology"] = topology_json(report);
  }
  if (report.pace) {
    json["pace"] = {{"waits", whole_number_json(report.pace->waits)},
                    {"late_waits", whole_number_json(report.pace->late_waits)},
                    {"greatest_lag_s", report.pace->greatest_lag.value()},
                    {"cards_divided", report.pace->cards_divided}};
  }
  if (report.failure) {
    json["failed_ranks"] = report.failed_ranks;
    Document problem{"heteroperf-comm"};
    add_error(problem, *report.failure);
    json["error"] = Json::parse(json_text(problem)).at("error");
  }
  return json.dump(2) + "\n";
}

}  // namespace heteroperf

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runners/comm/element_types.hpp"
#include "suite/error_report_json.hpp"
#include "suite/verbs/comm_report.hpp"
#include "suite/verbs/whole_number_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json time_json(const CallTime& time) {
  return {{"median", time.median.value()},
          {"min", time.fastest.value()},
          {"p95", time.p95.value()},
          {"ci95", {time.ci95.low, time.ci95.high}},
          {"iterations", time.iterations}};
}

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

Json ranks_json(const std::vector<RankId>& ranks) {
  Json json = Json::array();
  for (const RankId rank : ranks) json.push_back(rank.value());
  return json;
}

Json topology_json(const CommReport& report) {
  Json clusters = Json::array();
  for (const RankCluster& cluster : report.clusters.clusters) {
    Json bridges = Json::array();
    for (const Bridge& bridge : cluster.bridges) {
      Json one{{"rank", bridge.rank.value()}, {"share", bridge.share}};
      if (!bridge.card.empty()) one["card"] = bridge.card;
      bridges.push_back(std::move(one));
    }
    clusters.push_back({{"label", cluster.label},
                        {"ranks", ranks_json(cluster.ranks)},
                        {"bridges", std::move(bridges)}});
  }
  Json topology{{"reason", report.clusters.reason}, {"path", report.path}, {"hosts", report.hosts}};
  if (!report.devices.empty()) topology["devices"] = report.devices;
  topology["clusters"] = std::move(clusters);
  return topology;
}

}  // namespace

std::string comm_json_text(const CommReport& report) {
  const CaseShape& shape = report.request.shape;
  Json json{{"_format", "heteroperf-comm"},
            {"_version", 1},
            {"status", report.status()},
            {"collective", to_string(shape.collective)},
            {"type", to_string(shape.type)}};
  if (report.ended) {
    const CommReport::Verdict verdict = report.verdict();
    json["verdict"] = verdict.name;
    json["reasons"] = Json::array();
    if (!verdict.reason.empty()) json["reasons"].push_back(verdict.reason);
  }
  if (reduces(shape.collective)) json["reduction"] = reduction_name(shape.reduction);
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
      json["clusters"].push_back(ranks_json(cluster.ranks));
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
    json.update(Json::parse(error_report_text(*report.failure)));
  }
  return json.dump(2) + "\n";
}

}  // namespace heteroperf

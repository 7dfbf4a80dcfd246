#include "suite/verbs/comm_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "metrics/base/byte_size.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

constexpr double micro = 1e6;

std::string cluster_text(const RankCluster& cluster) {
  std::vector<int> ranks;
  for (const RankId rank : cluster.ranks) ranks.push_back(rank.value());
  return fmt::format("{} [{}]", cluster.label, fmt::join(ranks, " "));
}

std::string clusters_text(const RankClusters& clusters) {
  std::vector<std::string> texts;
  for (const RankCluster& cluster : clusters.clusters) texts.push_back(cluster_text(cluster));
  return fmt::format("{} ({})", fmt::join(texts, ", "), clusters.reason);
}

std::string count_or_dash(const std::optional<std::uint64_t>& count) {
  return count ? std::to_string(*count) : "-";
}

/// One column of the table and of the CSV.
struct Column {
  const char* title;
  int width;
  std::string (*text)(const CommResult&);
};

const std::array<Column, 14> columns{{
    {"bytes", 11, [](const CommResult& r) { return std::to_string(r.bytes.value()); }},
    {"elements", 10, [](const CommResult& r) { return std::to_string(r.elements); }},
    {"algorithm", 18,
     [](const CommResult& r) { return std::string(to_string(r.choice.algorithm)); }},
    {"median_us", 11,
     [](const CommResult& r) {
       return fmt::format("{:.2f}", r.timing.time.median.value() * micro);
     }},
    {"min_us", 11,
     [](const CommResult& r) {
       return fmt::format("{:.2f}", r.timing.time.fastest.value() * micro);
     }},
    {"p95_us", 11,
     [](const CommResult& r) { return fmt::format("{:.2f}", r.timing.time.p95.value() * micro); }},
    {"algbw", 8, [](const CommResult& r) { return fmt::format("{:.3f}", r.timing.algbw); }},
    {"busbw", 8, [](const CommResult& r) { return fmt::format("{:.3f}", r.timing.busbw); }},
    {"wrong", 6, [](const CommResult& r) { return count_or_dash(r.timing.wrong); }},
    {"in_place_us", 12,
     [](const CommResult& r) {
       return r.in_place ? fmt::format("{:.2f}", r.in_place->time.median.value() * micro) : "-";
     }},
    {"busbw", 8,
     [](const CommResult& r) {
       return r.in_place ? fmt::format("{:.3f}", r.in_place->busbw) : "-";
     }},
    {"wrong", 6,
     [](const CommResult& r) { return r.in_place ? count_or_dash(r.in_place->wrong) : "-"; }},
    {"predicted_us", 12,
     [](const CommResult& r) {
       return r.choice.predicted ? fmt::format("{:.2f}", r.choice.predicted->value() * micro) : "-";
     }},
    {"link", 6,
     [](const CommResult& r) {
       return r.link_utilization ? fmt::format("{:.0f}%", *r.link_utilization * 100) : "-";
     }},
}};

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
  std::string text = fmt::format(
      "{} of {}{}, {} ranks over {}{}, wire {}\npath: {}\nclusters: {}\n"
      "times in microseconds, bandwidths in GB/s (1e9 bytes); a call takes what its slowest rank "
      "takes\n",
      to_string(shape.collective), to_string(shape.type),
      reduces(shape.collective) ? fmt::format(" ({})", reduction_name(shape.reduction)) : "",
      report.ranks, report.transport, report.emulated() ? " (paced: emulated links)" : "",
      to_string(report.request.wire), report.path, clusters_text(report.clusters));
  for (const Column& column : columns) text += fmt::format("{:>{}} ", column.title, column.width);
  text.back() = '\n';
  return text;
}

std::string comm_row(const CommReport&, const CommResult& result) {
  std::string text;
  for (const Column& column : columns) {
    text += fmt::format("{:>{}} ", column.text(result), column.width);
  }
  text.back() = '\n';
  return text;
}

std::string comm_csv_heading() {
  return "bytes,elements,algorithm,wire,median_s,min_s,p95_s,ci95_low_s,ci95_high_s,algbw_gbps,"
         "busbw_gbps,wrong,in_place_median_s,in_place_busbw_gbps,in_place_wrong,wire_bytes,"
         "predicted_s,link_utilization\n";
}

std::string comm_csv_row(const CommReport&, const CommResult& result) {
  const CallTime& time = result.timing.time;
  std::string text = fmt::format(
      "{},{},{},{},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.6g},{:.6g},{}", result.bytes.value(),
      result.elements, to_string(result.choice.algorithm), to_string(result.wire),
      time.median.value(), time.fastest.value(), time.p95.value(), time.ci95.low, time.ci95.high,
      result.timing.algbw, result.timing.busbw,
      result.timing.wrong ? std::to_string(*result.timing.wrong) : "");
  text += result.in_place
              ? fmt::format(",{:.9g},{:.6g},{}", result.in_place->time.median.value(),
                            result.in_place->busbw,
                            result.in_place->wrong ? std::to_string(*result.in_place->wrong) : "")
              : ",,,";
  text += result.traffic ? fmt::format(",{}", result.traffic->wire.value()) : ",";
  text += result.choice.predicted ? fmt::format(",{:.9g}", result.choice.predicted->value()) : ",";
  text += result.link_utilization ? fmt::format(",{:.6g}", *result.link_utilization) : ",";
  return text + "\n";
}

}  // namespace heteroperf

// This section shows the memory per rank. The plan reckons what each rank must hold, part by part,
// and the run measures how much it held at its fullest. The two stand side by side, since a rank
// that needs more than was planned may run out of memory at a larger size. The measured bar has one
// part only, because a process cannot say what its bytes are for.

#include <fmt/format.h>

#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

/// The parts of a planned rank, from the bottom of its bar to the top.
constexpr std::pair<const char*, std::uint64_t RankPlanEvent::*> memory_parts[] = {
    {"weights", &RankPlanEvent::weights_bytes},
    {"gradients", &RankPlanEvent::gradients_bytes},
    {"optimizer", &RankPlanEvent::optimizer_bytes},
    {"activations", &RankPlanEvent::activations_bytes},
    {"buffers", &RankPlanEvent::buffers_bytes}};
constexpr double mebibyte = 1024.0 * 1024.0;

/// Per rank a bar stacked of what the plan says, and one of what was measured.
ReportChart memory_chart(const ReportRun& run, const std::string& id) {
  ReportChart chart{id + "memory",
                    "Memory per rank at its fullest, planned and measured",
                    ChartKind::stacked_bars,
                    {"rank"},
                    {"memory", "MiB"}};
  const auto& peaks = run.summary.peak_bytes;
  for (const auto& [name, bytes] : memory_parts) chart.series.push_back({name});
  if (!peaks.empty()) chart.series.push_back({"measured peak"});
  const auto add_bar = [&](const std::string& name) {
    chart.categories.push_back(name);
    for (ChartSeries& series : chart.series) series.y.push_back(0);
  };
  for (const RankUse& use : run.summary.plan.ranks) {
    if (!use.plan) continue;
    add_bar(fmt::format("rank {}, planned", use.rank));
    for (std::size_t i = 0; i < std::size(memory_parts); ++i) {
      const std::uint64_t bytes = (*use.plan).*memory_parts[i].second;
      chart.series[i].y.back() = static_cast<double>(bytes) / mebibyte;
    }
    const std::size_t index = use.rank;
    if (index >= peaks.size()) continue;
    add_bar(fmt::format("rank {}, measured", use.rank));
    chart.series.back().y.back() = static_cast<double>(peaks[index]) / mebibyte;
  }
  chart.description = "What the plan says that each rank holds, beside what it held at most.";
  return chart;
}

}  // namespace

ReportSection memory_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Memory"};
  if (run.journal.first<RankPlanEvent>() != nullptr) {
    section.charts.push_back(memory_chart(run, id));
  }
  const auto& peaks = run.summary.peak_bytes;
  if (peaks.empty()) {
    section.paragraphs = {"Not every rank reported its peak."};
    return section;
  }
  Table table = report_table("Peak memory per rank", {"rank", "peak [byte]"});
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    table.add({fmt::format("rank {}", rank), fmt::format("{}", peaks[rank])});
  }
  section.tables.push_back(std::move(table));
  return section;
}

}  // namespace heteroperf

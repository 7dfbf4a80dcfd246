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
  const auto add = [&](const std::string& name, std::vector<double> values) {
    chart.categories.push_back(name);
    for (std::size_t i = 0; i < chart.series.size(); ++i) chart.series[i].y.push_back(values[i]);
  };
  for (const RankUse& use : run.summary.plan.ranks) {
    if (!use.plan) continue;
    std::vector<double> planned;
    for (const auto& [name, bytes] : memory_parts) {
      planned.push_back(static_cast<double>((*use.plan).*bytes) / mebibyte);
    }
    // The last series is the measured peak, of which a planned bar has nothing.
    planned.push_back(0);
    add(fmt::format("rank {}, planned", use.rank), std::move(planned));
    const std::size_t index = use.rank;
    if (index >= peaks.size()) continue;
    std::vector<double> measured(chart.series.size(), 0);
    measured.back() = static_cast<double>(peaks[index]) / mebibyte;
    add(fmt::format("rank {}, measured", use.rank), std::move(measured));
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

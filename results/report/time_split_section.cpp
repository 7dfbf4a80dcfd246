// This section shows where the time goes. Each rank splits the time of the steady window into
// computing, exposed communication, bubble, waiting for data, and the rest. *Exposed* communication
// is what a rank waited for a message that was under way, a *bubble* what it waited for a message
// that was not sent yet. The bars show seconds per step, per rank, per position of the pipeline and
// per class of devices, as means over the ranks of a bar. A run that ended early, or a search, has
// at most the split of the whole window.

#include <fmt/format.h>

#include <map>

#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

/// The parts of a bar from the bottom up.
constexpr std::pair<const char*, double StepSplit::*> split_parts[] = {
    {"compute", &StepSplit::compute_s},
    {"exposed communication", &StepSplit::communication_s},
    {"bubble", &StepSplit::bubble_s},
    {"data", &StepSplit::data_s},
    {"other", &StepSplit::other_s}};

/// Bars with their names: one per rank, or one per set of ranks whose times are added up.
struct SplitBars {
  std::vector<std::string> names;
  std::vector<RankTimeGroup> groups;

  void add(const std::string& name, const RankTimeEvent& time) {
    // Bars keep the order in which they are first met.
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return groups[i].add(time);
    }
    names.push_back(name);
    groups.emplace_back().add(time);
  }
};

/// Total seconds over total steps, so a bar of several ranks is their mean.
ReportChart split_chart(const std::string& id, const SplitBars& bars, const std::string& what,
                        std::string description) {
  ReportChart chart{id + "split-" + what.substr(what.rfind(' ') + 1),
                    "Where the time of a step goes, per " + what,
                    ChartKind::stacked_bars,
                    {what},
                    {"window time per step, gaps between steps included", "s"},
                    std::move(description)};
  chart.categories = bars.names;
  for (const auto& [name, seconds] : split_parts) {
    ChartSeries series{name};
    for (const RankTimeGroup& group : bars.groups) {
      const auto steps = static_cast<double>(std::max<std::uint64_t>(1, group.steps));
      series.y.push_back(group.split.*seconds / steps);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

/// The share of computing in percent; 0 without any time.
double computing_percent(double compute_s, double wall_s) {
  return wall_s > 0 ? 100 * compute_s / wall_s : 0;
}

/// The split over all ranks together.
std::string computing_of_ranks(const SplitBars& ranks) {
  double compute_s = 0, wall_s = 0;
  for (const RankTimeGroup& group : ranks.groups) {
    compute_s += group.split.compute_s;
    wall_s += group.wall_s;
  }
  return fmt::format("{} ranks; computing takes {:.1f} % of their time.", ranks.names.size(),
                     computing_percent(compute_s, wall_s));
}

/// The number of ranks of each bar, as bars hold unlike numbers of them.
std::string computing_of_bars(const SplitBars& bars) {
  constexpr std::size_t most_bars = 8;
  if (bars.names.size() > most_bars) return fmt::format("{} bars.", bars.names.size());
  std::string text;
  for (std::size_t i = 0; i < bars.names.size(); ++i) {
    const RankTimeGroup& group = bars.groups[i];
    text += fmt::format("{}{}: {:.1f} %", i == 0 ? "Computing takes, of the time of " : "; ",
                        bars.names[i], computing_percent(group.split.compute_s, group.wall_s));
  }
  return text + ".";
}

/// A chart per position or per class makes sense from two bars on.
void add_charts(const ReportRun& run, const std::string& id, ReportSection& section) {
  SplitBars by_rank, by_stage, by_class;
  for (const RankUse& use : run.summary.plan.ranks) {
    if (!use.time) continue;
    by_rank.add(fmt::format("rank {}", use.rank), *use.time);
    if (!use.plan) continue;
    // A rank may hold several stages, and all ranks of a position hold the same ones.
    const auto& stages = use.plan->stages;
    by_stage.add(fmt::format("position {}: stage {}", use.plan->position, fmt::join(stages, ", ")),
                 *use.time);
    by_class.add(use.plan->device_class, *use.time);
  }
  if (!by_rank.names.empty()) {
    section.charts.push_back(split_chart(id, by_rank, "rank", computing_of_ranks(by_rank)));
  }
  for (const auto& [bars, what] : {std::pair(&by_stage, "stage"), {&by_class, "device class"}}) {
    if (bars->names.size() < 2) continue;
    section.charts.push_back(split_chart(id, *bars, what, computing_of_bars(*bars)));
  }
}

/// The uses of the steady window's time.
constexpr std::pair<const char*, double TimeShares::*> window_parts[] = {
    {"compute", &TimeShares::compute_s},
    {"exposed communication", &TimeShares::communication_s},
    {"bubble", &TimeShares::bubble_s},
    {"data", &TimeShares::data_s},
    {"evaluation", &TimeShares::evaluation_s},
    {"other", &TimeShares::other_s}};

/// The split of the steady window, a mean over groups: a search tells no more.
Table window_table(const TimeShares& time, double window_s) {
  Table table = report_table("The steady window by use, mean over groups of ranks",
                             {"use", "time [s]", "share"});
  for (const auto& [name, seconds] : window_parts) {
    table.add({name, number_cell(time.*seconds),
               window_s > 0 ? fmt::format("{:.1f} %", 100 * time.*seconds / window_s) : ""});
  }
  return table;
}

/// The same as bars, where there is nothing finer.
ReportChart window_chart(const TimeShares& time, const std::string& id) {
  ReportChart chart{id + "split-window",
                    "Where the time of the steady window goes",
                    ChartKind::stacked_bars,
                    {""},
                    {"time", "s"}};
  chart.categories = {"mean over groups"};
  for (const auto& [name, seconds] : window_parts) {
    chart.series.push_back({name, SeriesMark::line, {}, {time.*seconds}});
  }
  chart.description = "Mean over the groups of ranks.";
  return chart;
}

}  // namespace

ReportSection time_split_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Time per rank and stage"};
  add_charts(run, id, section);
  if (run.summary.time && run.summary.window) {
    const TimeShares& time = *run.summary.time;
    if (section.charts.empty()) section.charts.push_back(window_chart(time, id));
    section.tables.push_back(window_table(time, run.summary.window->seconds()));
  }
  if (section.charts.empty()) {
    section.paragraphs = {"No rank has reported where its time went."};
  } else {
    section.paragraphs = {
        "A wait for a message is bubble until its sender sent it, and exposed communication after "
        "that. Ranks report at the end of the measured phase, on their own clocks."};
  }
  return section;
}

}  // namespace heteroperf

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "metrics/statistics.hpp"
#include "results/report/run_sections.hpp"

namespace heteroperf {
namespace {

constexpr double nanosecond = 1e-9;

/// Ranks that do the same work: of one place in the pipeline; all, where the plan has not told.
std::map<std::int32_t, std::int32_t> positions(const ReportRun& run) {
  std::map<std::int32_t, std::int32_t> of;
  for (const RankUse& use : run.summary.plan.ranks) {
    if (use.plan) of[use.rank] = use.plan->position;
  }
  return of;
}

struct RankSlowness {
  std::int32_t rank = 0;
  double median_s = 0;  ///< computing in a step
  double worst_s = 0;   ///< of a value, which is a mean of `steps_per_value` steps
  double relative = 1;  ///< median / median of its peers
};

std::vector<double> seconds_of(const RankStepsEvent& event) {
  std::vector<double> seconds;
  for (const std::int64_t ns : event.compute_ns) {
    seconds.push_back(static_cast<double>(ns) * nanosecond);
  }
  return seconds;
}

/// So many neighbours are one cell that the chart stays quick to draw.
std::size_t values_per_cell(std::size_t ranks, std::size_t values) {
  constexpr std::size_t most_cells = 6000;
  std::size_t per_cell = 1;
  while (ranks * ((values + per_cell - 1) / per_cell) > most_cells && per_cell < values) {
    per_cell *= 2;
  }
  return per_cell;
}

std::vector<double> cells_of(const std::vector<double>& values, std::size_t per_cell) {
  std::vector<double> cells;
  for (std::size_t i = 0; i < values.size(); i += per_cell) {
    const std::size_t count = std::min(per_cell, values.size() - i);
    cells.push_back(mean(std::span(values).subspan(i, count)));
  }
  return cells;
}

/// Median over every value of the ranks of one position.
std::map<std::int32_t, double> peer_medians(const std::vector<const RankStepsEvent*>& events,
                                            const std::map<std::int32_t, std::int32_t>& position) {
  std::map<std::int32_t, std::vector<double>> values;
  for (const RankStepsEvent* event : events) {
    const auto found = position.find(event->rank);
    auto& own = values[found == position.end() ? 0 : found->second];
    const auto seconds = seconds_of(*event);
    own.insert(own.end(), seconds.begin(), seconds.end());
  }
  std::map<std::int32_t, double> medians;
  for (const auto& [place, seconds] : values) medians[place] = median(seconds);
  return medians;
}

ReportTable slowness_table(std::vector<RankSlowness> ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const RankSlowness& a, const RankSlowness& b) {
    return std::tie(b.relative, a.rank) < std::tie(a.relative, b.rank);
  });
  ReportTable table{
      "Ranks from slow to fast",
      {"rank", "computing in a step, median [s]", "against its peers' median", "slowest [s]"},
      {}};
  for (const RankSlowness& one : ranks) {
    table.rows.push_back({fmt::format("rank {}", one.rank), number_cell(one.median_s),
                          fmt::format("{:+.1f} %", 100 * (one.relative - 1)),
                          number_cell(one.worst_s)});
  }
  return table;
}

void fill_ranks(const ReportRun& run, const std::vector<const RankStepsEvent*>& events,
                const std::string& id, ReportSection& section) {
  const auto position = positions(run);
  const auto medians = peer_medians(events, position);
  ReportChart chart;
  chart.id = id + "stragglers";
  chart.title = "Computing of each rank against its peers, step by step";
  chart.kind = ChartKind::grid;
  chart.x = {"step", ""};
  chart.y = {"time of a step's computing / median of the ranks at the same place", ""};
  chart.colours = {1, 1.5};
  const RankStepsEvent& first = *events.front();
  const std::size_t per_cell = values_per_cell(events.size(), first.compute_ns.size());
  const std::uint64_t cell_steps = per_cell * first.steps_per_value;
  for (std::uint64_t i = 0; i < first.steps; i += cell_steps) {
    chart.edges.push_back(static_cast<double>(first.first_step + i));
  }
  chart.edges.push_back(static_cast<double>(first.first_step + first.steps));
  std::vector<RankSlowness> slowness;
  for (const RankStepsEvent* event : events) {
    const auto found = position.find(event->rank);
    const double peers_s = medians.at(found == position.end() ? 0 : found->second);
    const auto seconds = seconds_of(*event);
    ChartSeries series{fmt::format("rank {}", event->rank)};
    for (const double value : cells_of(seconds, per_cell)) {
      series.y.push_back(peers_s > 0 ? value / peers_s : 1);
    }
    const double middle_s = median(seconds);
    slowness.push_back({event->rank, middle_s, *std::max_element(seconds.begin(), seconds.end()),
                        peers_s > 0 ? middle_s / peers_s : 1});
    chart.series.push_back(std::move(series));
  }
  const auto slowest = std::max_element(
      slowness.begin(), slowness.end(),
      [](const RankSlowness& a, const RankSlowness& b) { return a.relative < b.relative; });
  chart.description = fmt::format("{} ranks. The slowest against its peers is rank {}: {:+.1f} %.",
                                  events.size(), slowest->rank, 100 * (slowest->relative - 1));
  if (cell_steps > 1) {
    chart.note = fmt::format("Each cell is the mean of {} consecutive steps.", cell_steps);
  }
  section.charts.push_back(std::move(chart));
  section.tables.push_back(slowness_table(std::move(slowness)));
}

/// Seconds of [from, to] in which the group was in a step, by equal parts of the time.
void add_busy(const StepEvent& step, std::int64_t zero_ns, double width_ns,
              std::vector<double>& busy) {
  const auto index = [&](std::int64_t t_ns) {
    const double at = static_cast<double>(t_ns - zero_ns) / width_ns;
    return std::clamp<std::size_t>(at > 0 ? static_cast<std::size_t>(at) : 0, 0, busy.size() - 1);
  };
  for (std::size_t i = index(step.t_start_ns); i <= index(step.t_end_ns); ++i) {
    const double from =
        std::max(static_cast<double>(step.t_start_ns - zero_ns), width_ns * static_cast<double>(i));
    const double to = std::min(static_cast<double>(step.t_end_ns - zero_ns),
                               width_ns * static_cast<double>(i + 1));
    if (to > from) busy[i] += (to - from) / width_ns;
  }
}

/// Of a search, whose groups train different models: who waited when.
void fill_groups(const ReportRun& run, const std::string& id, ReportSection& section) {
  constexpr std::size_t parts = 100;
  const auto steps = run.journal.all<StepEvent>();
  std::int64_t begin_ns = steps.front()->t_start_ns, end_ns = steps.front()->t_end_ns;
  for (const StepEvent* step : steps) {
    begin_ns = std::min(begin_ns, step->t_start_ns);
    end_ns = std::max(end_ns, step->t_end_ns);
  }
  const double width_ns = static_cast<double>(end_ns - begin_ns) / parts;
  if (!(width_ns > 0)) return;
  std::map<std::int32_t, std::vector<double>> busy;
  for (const StepEvent* step : steps) {
    auto& own = busy[step->group];
    own.resize(parts);
    add_busy(*step, begin_ns, width_ns, own);
  }
  ReportChart chart;
  chart.id = id + "groups";
  chart.title = "Groups of ranks: share of the time spent in steps";
  chart.kind = ChartKind::grid;
  chart.x = {"time since the start", "s"};
  chart.y = {"share of the time spent in steps", ""};
  chart.colours = {0, 1};
  const double zero_s = since_start_s(run.journal, begin_ns);
  for (std::size_t i = 0; i <= parts; ++i) {
    chart.edges.push_back(zero_s + static_cast<double>(i) * width_ns * nanosecond);
  }
  for (auto& [group, shares] : busy) {
    chart.series.push_back({fmt::format("group {}", group), SeriesMark::line, {}, shares});
  }
  chart.description = fmt::format(
      "{} groups. Where a cell is pale the group evaluated, or waited for a trial.", busy.size());
  section.charts.push_back(std::move(chart));
}

}  // namespace

ReportSection straggler_section(const ReportRun& run, const std::string& id) {
  ReportSection section;
  section.title = "Stragglers";
  std::vector<const RankStepsEvent*> events;
  for (const RankStepsEvent* event : run.journal.all<RankStepsEvent>()) {
    if (!event->compute_ns.empty()) events.push_back(event);
  }
  std::sort(events.begin(), events.end(),
            [](const RankStepsEvent* a, const RankStepsEvent* b) { return a->rank < b->rank; });
  if (!events.empty()) {
    fill_ranks(run, events, id, section);
  } else if (run.summary.search && run.summary.total_steps > 0) {
    fill_groups(run, id, section);
  }
  if (section.charts.empty()) {
    section.paragraphs = {
        "The journal does not say how long each rank computed in each step: ranks report it when "
        "the measured phase of a fixed model ends."};
  }
  return section;
}

}  // namespace heteroperf

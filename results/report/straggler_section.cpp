// Finds *stragglers*, ranks that compute more slowly than they should and make the others wait. A
// rank is held against its *peers*, the ranks of its group that hold the same stages on the same
// kind of device with the same tensor degree; other ranks have other work. It is compared within
// each step, since a step that is slow for everybody is nobody's fault, and against the median of
// its peers without itself, so that a slow rank does not hide in its own yardstick.
//
// A search trains a different model on each group, so there the share of time that each group
// spends in steps takes the place of this.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

using Events = std::vector<const RankStepsEvent*>;

/// The traits that tell the work of a rank from that of others: its group, and where the plan has
/// told who does what its position, device and tensor degree.
using RankWork = std::tuple<std::int32_t, std::int32_t, std::string, std::int32_t>;

struct RankSlowness {
  std::int32_t rank = 0;
  double median_s = 0;  ///< computing in a step
  double worst_s = 0;   ///< the worst value, which is a mean of `steps_per_value` steps
  /// For each value this rank's time over the median of its peers' at the same steps; empty where
  /// it has no peers.
  std::vector<double> against_peers;
  std::optional<double> relative;  ///< their median
};

/// So many neighbours are one cell that the chart stays quick to draw.
std::size_t values_per_cell(std::size_t ranks, std::size_t values) {
  constexpr std::size_t most_cells = 6000;
  std::size_t per_cell = 1;
  while (ranks * ((values + per_cell - 1) / per_cell) > most_cells && per_cell < values) {
    per_cell *= 2;
  }
  return per_cell;
}

/// Means over `per_cell` neighbours; the last cell may hold fewer.
std::vector<double> cells_of(const std::vector<double>& values, std::size_t per_cell) {
  std::vector<double> cells;
  for (std::size_t i = 0; i < values.size(); i += per_cell) {
    const std::size_t count = std::min(per_cell, values.size() - i);
    cells.push_back(mean(std::span(values).subspan(i, count)));
  }
  return cells;
}

/// The median of an ascending list without the element at `left_out`.
double median_without(const std::vector<double>& sorted, std::size_t left_out) {
  const std::size_t count = sorted.size() - 1;
  const auto at = [&](std::size_t i) { return sorted[i < left_out ? i : i + 1]; };
  return count % 2 == 1 ? at(count / 2) : (at(count / 2 - 1) + at(count / 2)) / 2;
}

/// A step that is slow for all of them is nobody's fault: each is held against the others in the
/// same step.
void compare_peers(const Events& peers, std::map<std::int32_t, RankSlowness>& slowness) {
  if (peers.size() < 2) return;
  std::size_t values = peers.front()->compute_ns.size();
  // A rank that ended early has fewer values, and only the common steps compare.
  for (const RankStepsEvent* event : peers) values = std::min(values, event->compute_ns.size());
  std::vector<double> sorted(peers.size());
  for (std::size_t i = 0; i < values; ++i) {
    std::transform(peers.begin(), peers.end(), sorted.begin(), [&](const RankStepsEvent* event) {
      return static_cast<double>(event->compute_ns[i]);
    });
    std::sort(sorted.begin(), sorted.end());
    for (const RankStepsEvent* event : peers) {
      const auto taken = static_cast<double>(event->compute_ns[i]);
      const auto place = std::lower_bound(sorted.begin(), sorted.end(), taken) - sorted.begin();
      // The rank's own value is left out of the sorted ones by its place.
      const double others = median_without(sorted, place);
      slowness[event->rank].against_peers.push_back(others > 0 ? taken / others : 1);
    }
  }
  for (const RankStepsEvent* event : peers) {
    RankSlowness& rank_slowness = slowness[event->rank];
    rank_slowness.relative = median(rank_slowness.against_peers);
  }
}

/// One entry per rank in the order of ranks; the events have at least one value each.
std::vector<RankSlowness> slowness_of(const ReportRun& run, const Events& events) {
  std::map<std::int32_t, const RankPlanEvent*> plans;
  for (const RankUse& use : run.summary.plan.ranks) {
    if (use.plan) plans[use.rank] = &*use.plan;
  }
  std::map<std::int32_t, RankSlowness> slowness;
  std::map<RankWork, Events> peers;
  for (const RankStepsEvent* event : events) {
    const std::vector<double> taken(event->compute_ns.begin(), event->compute_ns.end());
    slowness[event->rank] = {
        event->rank, median(taken) * nanosecond, std::ranges::max(taken) * nanosecond, {}, {}};
    RankWork work{event->group, -1, "", 0};
    if (const RankPlanEvent* plan = plans[event->rank]) {
      work = {event->group, plan->position, plan->device_class, plan->tensor_degree};
    }
    peers[work].push_back(event);
  }
  for (const auto& [work, members] : peers) compare_peers(members, slowness);
  std::vector<RankSlowness> list;
  for (auto& [rank, one] : slowness) list.push_back(std::move(one));
  return list;
}

/// The slowest first; ranks without peers come last.
Table slowness_table(std::vector<RankSlowness> ranks) {
  std::sort(ranks.begin(), ranks.end(), [](const RankSlowness& a, const RankSlowness& b) {
    return std::tie(b.relative, a.rank) < std::tie(a.relative, b.rank);
  });
  Table table = report_table("Ranks from slow to fast",
                             {"rank", "computing in a step, median [s]",
                              "against its peers in the same step, median", "slowest [s]"});
  for (const RankSlowness& slowness : ranks) {
    table.rows.push_back(
        {fmt::format("rank {}", slowness.rank), number_cell(slowness.median_s),
         slowness.relative ? fmt::format("{:+.1f} %", 100 * (*slowness.relative - 1)) : "no peers",
         number_cell(slowness.worst_s)});
  }
  return table;
}

/// Ranks that have peers; `first` tells the steps.
ReportChart slowness_chart(const std::string& id, const std::vector<RankSlowness>& ranks,
                           const RankStepsEvent& first) {
  ReportChart chart{id + "stragglers",
                    "Computing of each rank against its peers, step by step",
                    ChartKind::grid,
                    {"step"},
                    {"time of a step's computing / median of the rank's peers in the same step"}};
  // A cell is palest at the median of the peers; the deepest colour stands for at least 50 % more.
  chart.colours = {1, 1.5};
  const std::size_t per_cell = values_per_cell(ranks.size(), first.compute_ns.size());
  const std::uint64_t cell_steps = per_cell * first.steps_per_value;
  for (std::uint64_t i = 0; i < first.steps; i += cell_steps) {
    chart.edges.push_back(static_cast<double>(first.first_step + i));
  }
  chart.edges.push_back(static_cast<double>(first.first_step + first.steps));
  const RankSlowness* slowest = nullptr;
  for (const RankSlowness& slowness : ranks) {
    if (!slowness.relative) continue;
    if (slowest == nullptr || *slowness.relative > *slowest->relative) slowest = &slowness;
    chart.series.push_back({fmt::format("rank {}", slowness.rank),
                            SeriesMark::line,
                            {},
                            cells_of(slowness.against_peers, per_cell)});
  }
  chart.description =
      fmt::format("{} ranks have peers. The slowest against its own is rank {}: {:+.1f} %.",
                  chart.series.size(), slowest->rank, 100 * (*slowest->relative - 1));
  if (cell_steps > 1) {
    chart.note = fmt::format("Each cell is the mean of {} consecutive steps.", cell_steps);
  }
  return chart;
}

/// Adds the chart of ranks with peers, if there are any, and the table of all ranks.
void fill_ranks(const ReportRun& run, const Events& events, const std::string& id,
                ReportSection& section) {
  std::vector<RankSlowness> slowness = slowness_of(run, events);
  const auto alone =
      std::ranges::count_if(slowness, [](const RankSlowness& rank) { return !rank.relative; });
  section.paragraphs = {
      "A rank's peers are the others that hold the same stages on the same kind of device."};
  if (static_cast<std::size_t>(alone) == slowness.size()) {
    section.paragraphs.push_back("Here no rank has any, so that none is slower than it should be.");
  } else {
    ReportChart chart = slowness_chart(id, slowness, *events.front());
    if (alone > 0) chart.note += fmt::format(" Left out: {}, without peers.", alone);
    section.charts.push_back(std::move(chart));
  }
  section.tables.push_back(slowness_table(std::move(slowness)));
}

/// The waits in a search, whose groups train different models.
void fill_groups(const ReportRun& run, const std::string& id, ReportSection& section) {
  constexpr std::size_t parts = 100;
  const auto window = all_steps(run.journal);
  if (!window) return;
  std::map<std::int32_t, std::vector<StepWork>> groups;
  for (const StepEvent* step : run.journal.all<StepEvent>()) {
    const double seconds = static_cast<double>(step->t_end_ns - step->t_start_ns) * nanosecond;
    if (seconds > 0) groups[step->group].push_back({step->t_start_ns, step->t_end_ns, seconds});
  }
  ReportChart chart{id + "groups",
                    "Groups of ranks: share of the time spent in steps",
                    ChartKind::grid,
                    {"time since the start", "s"},
                    {"share of the time spent in steps"}};
  chart.colours = {0, 1};
  chart.tone = GridTone::good;
  const double zero_s = since_start_s(run.journal, window->start_ns);
  const double width_s = window->seconds() / parts;
  for (std::size_t i = 0; i <= parts; ++i) {
    chart.edges.push_back(zero_s + static_cast<double>(i) * width_s);
  }
  for (const auto& [group, steps] : groups) {
    std::vector<double> shares = sub_window_amounts(steps, *window, parts);
    for (double& share : shares) share /= width_s;
    chart.series.push_back(
        {fmt::format("group {}", group), SeriesMark::line, {}, std::move(shares)});
  }
  chart.description = fmt::format(
      "{} groups. Where a cell is pale the group evaluated, or waited for a trial.", groups.size());
  section.charts.push_back(std::move(chart));
}

}  // namespace

ReportSection straggler_section(const ReportRun& run, const std::string& id) {
  ReportSection section{"Stragglers"};
  Events events;
  for (const RankStepsEvent* event : run.journal.all<RankStepsEvent>()) {
    if (!event->compute_ns.empty()) events.push_back(event);
  }
  std::ranges::sort(events, {}, &RankStepsEvent::rank);
  if (!events.empty()) {
    fill_ranks(run, events, id, section);
  } else if (run.summary.search && run.summary.total_steps > 0) {
    fill_groups(run, id, section);
  }
  if (section.charts.empty() && section.tables.empty()) {
    section.paragraphs = {
        "The journal does not say how long each rank computed in each step: ranks report it when "
        "the measured phase of a fixed model ends."};
  }
  return section;
}

}  // namespace heteroperf

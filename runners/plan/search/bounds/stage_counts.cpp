// The part of StageRelaxation that counts the stages that follow.
//
// Under schedules in turn the k-th stage from the end keeps k micro-batches at once. Memory
// therefore depends on how many stages follow, and the dynamic program needs one list of covers per
// number of stages: list k holds for every layer the cheapest way to cover the layers from there to
// the end with k stages. A list is made from the one before it by adding one stage in front.
//
// More stages keep more, so a list entry counts only where it costs less than all shorter ones, and
// only while the budget still pays for the layers before it at their fractional least. This ends
// the lists soon. Once as many stages follow as there are micro-batches, more of them change
// nothing, and one last list with any number of stages closes the search.
#include <algorithm>

#include "metrics/base/quantity.hpp"
#include "runners/plan/search/bounds/stage_relaxation.hpp"

namespace heteroperf {
/// [layer]: at the prices as they are no way to do the layers before it costs less: fractions of
/// devices, each layer at its best.
std::vector<double> StageRelaxation::least_costs_before(const Step& step) const {
  std::vector<double> result(1, 0);
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(problem_.layers); ++layer) {
    double least = infinite;
    for (const Choice& choice : choices_) {
      if (choice.samples > step.samples) continue;
      const double busy = (choice.seconds[0][layer + 1] - choice.seconds[0][layer]) *
                          static_cast<double>(step.micro_batches) / step.seconds;
      least = std::min(least, busy * devices(choice, step) * prices_[choice.pool]);
    }
    result.push_back(result.back() + least / sum_slack);
  }
  return result;
}

/// One stage more than the last of the lists has, or any number of them. `most`: what costs more is
/// no use.
StageRelaxation::Covers StageRelaxation::covers(const std::vector<Covers>& lists, MoreStages more,
                                                const std::vector<double>& most, const Step& step) {
  const Covers& before = lists.back();
  Covers result(before.size(), Cover{infinite, -1, -1, 0});
  std::vector<int> firsts(choices_.size(),
                          problem_.layers);  // the longest range to the end at hand
  for (int end = problem_.layers; end > 0; --end) {
    const double own = more == MoreStages::any ? result[end].cost : infinite;
    const double after = std::min(before[end].cost, own);
    // One layer more at no cost: a stage that ends there has less to do.
    const double sooner = end > 1 ? before[static_cast<std::size_t>(end) - 1].cost : infinite;
    const double own_sooner = more == MoreStages::any && end > 1
                                  ? result[static_cast<std::size_t>(end) - 1].cost
                                  : infinite;
    if (after == infinite || std::min(sooner, own_sooner) <= after) continue;
    const std::size_t rest = own <= after ? lists.size() : lists.size() - 1;
    const double left = (step.seconds - heads_[static_cast<std::size_t>(end) - 1]) * sum_slack;
    for (std::size_t c = 0; c < choices_.size(); ++c) {
      const Choice& choice = choices_[c];
      if (choice.samples > step.samples || choice.least_s[static_cast<std::size_t>(end) - 1] *
                                                   static_cast<double>(step.micro_batches) >
                                               left) {
        c = choice.next - 1;
        continue;
      }
      const double sum = after + devices(choice, step) * prices_[choice.pool];
      if (sum >= most.front()) continue;
      int& first = firsts[c];
      first = std::min(first, end);
      while (first > 0 && takes(choice, {first - 1, end}, step)) --first;
      // All layers in one stage may need less: no table is held twice.
      const bool all = first > 0 && end == problem_.layers && takes(choice, {0, end}, step);
      if (first == end && !all) {
        // More samples need more.
        c = choice.next - 1;
        continue;
      }
      for (int from = all ? 0 : first; from < end; ++from) {
        Cover& cover = result[from];
        if (sum < cover.cost && sum < most[from]) {
          cover = {sum, end, static_cast<int>(c), rest};
        }
      }
    }
  }
  return result;
}

/// Adds stages from the last to the first, one at a time: the k-th from the end keeps k
/// micro-batches. More stages are of use where they cost less than fewer.
double StageRelaxation::least_counted_cost(const Step& step, std::vector<double>& used) {
  const std::size_t layers = problem_.layers;
  const std::vector<double> before = least_costs_before(step);
  double budget = 0;
  for (std::size_t p = 0; p < prices_.size(); ++p) budget += prices_[p] * problem_.pools[p].devices;
  // The most that a cover from a layer on may cost: the budget less the least for the layers
  // before.
  std::vector<double> most;
  for (const double one : before) most.push_back(budget * sum_slack * sum_slack - one);
  std::vector<Covers> by_count(1, Covers(layers + 1, Cover{infinite, -1, -1, 0}));
  by_count[0][layers].cost = 0;
  std::size_t best = 0;
  Step one = step;
  for (; one.followers < problem_.layers; ++one.followers) {
    // More stages than this change nothing.
    const bool all_kept = one.followers + 1 >= step.micro_batches;
    Covers next = covers(by_count, all_kept ? MoreStages::any : MoreStages::one, most, one);
    bool any = false;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (next[layer].cost == infinite) continue;
      any = any || layer > 0;
      most[layer] = next[layer].cost;
    }
    by_count.push_back(std::move(next));
    if (by_count.back()[0].cost < infinite) best = by_count.size() - 1;
    if (!any || all_kept) break;
  }
  if (best == 0) return infinite;
  const double cost = by_count[best][0].cost;
  // The way back through the lists says which devices the cheapest cover uses.
  for (std::size_t list = best, at = 0; at < layers;) {
    const Cover& cover = by_count[list][at];
    const Choice& choice = choices_[cover.choice];
    used[choice.pool] += devices(choice, step);
    at = cover.end;
    list = cover.rest;
  }
  return cost;
}

}  // namespace heteroperf

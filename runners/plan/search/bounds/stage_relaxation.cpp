// A lower bound of the step's time for plans with one stage per position.
//
// The question is_possible() is asked of one step time T and one size of micro-batches: could any
// plan do it? Devices get prices, and a dynamic program over layers finds the cheapest cuts, where
// a stage of layers [i, j) costs the price of the fractional replicas that do it within what T
// leaves. If even the cheapest cuts cost more than all devices together, the answer is no, at any
// prices; so every set of prices gives a valid bound, and changing them can only improve it. Prices
// rise where more of a pool is used than exists and fall elsewhere (a subgradient method with
// exponential steps). bound() bisects T and asks for every size of a micro-batch that divides the
// batch.
//
// A *choice* is a kind of replica: pool, degree and samples. Choices of one pool and degree stand
// next to each other, with growing samples, so that `next` can jump over all of those that cannot
// take a layer. Everything that would need rounding up (devices, replicas) stays fractional, and
// everything that depends on the rest of the plan takes its least value, for a bound must never be
// above any plan.
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
#include "runners/plan/search/bounds/stage_relaxation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/search/problem/layer_sums.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {
namespace {

/// Rounds of changing prices: usual ones; under counted stages on large problems; on other large
/// problems.
constexpr int price_rounds = 10, some_price_rounds = 6, few_price_rounds = 3;
/// The step of the prices is divided by 1 + decay · round.
constexpr double slow_decay = 0.3;
/// Other prices do not raise a cost that is below this part of the budget over it.
constexpr double hopeless = 0.85;
/// Layers times choices from which on rounds are few.
constexpr std::size_t many_steps = 50000;
constexpr double first_rate = 0.1;  ///< step of the prices in the first
constexpr double most_growth = 1e6;
/// The exact ledger of a stage may be less than the sum over its layers.
constexpr double memory_margin = 0.98;

/// The problem outlives it and has passed check_problem().
class StageRelaxation {
 public:
  StageRelaxation(const PlanningProblem& problem, const RelaxationTerms& terms)
      : problem_(problem), terms_(terms), sums_(problem), devices_(problem.devices()) {
    add_choices();
    set_heads();
    set_links();
  }

  double bound(double least_s, double most_s, double accuracy) {
    std::vector<SizeBound> sizes;
    for (const std::int64_t samples : micro_batch_sizes()) {
      sizes.push_back({samples, 0, prices_});
    }
    double low = least_s, high = most_s;
    // A known upper end may already be impossible.
    if (high < infinite && !is_any_possible(high, sizes)) return high;
    // Without an upper end it is looked for in steps that grow twice as fast each time.
    for (double grow = 1.01; high == infinite; grow = 1 + 2 * (grow - 1)) {
      if (grow > most_growth) return infinite;
      (is_any_possible(least_s * grow, sizes) ? high : low) = least_s * grow;
    }
    while (high > low * (1 + accuracy)) {
      const double middle = (low + high) / 2;
      (is_any_possible(middle, sizes) ? high : low) = middle;
    }
    return low;
  }

 private:
  /// Replicas of one pool and degree that take so many samples of a micro-batch.
  struct Choice {
    int pool = 0, degree = 0;
    std::int64_t samples = 1;
    /// [recomputation][layer]: of those before it.
    std::array<std::vector<double>, 3> seconds = {};
    /// [layer]: of it alone, of these samples or more; infinite where they have no memory for it.
    std::vector<double> least_s = {};
    std::size_t next = 0;  ///< the first choice of another pool or degree
  };
  /// The time that a step of T leaves.
  struct Step {
    double seconds = 0;
    std::int64_t samples = 1, micro_batches = 1;
    int followers = 0;  ///< stages that are known to follow the one at hand
  };
  /// Micro-batches of so many samples: no step of as much or less has them.
  struct SizeBound {
    std::int64_t samples = 1;
    double impossible_s = 0;
    std::vector<double> prices;  ///< the ones that gave the highest bound
  };
  /// Where the cheapest stages to cover the layers from one on end, and of which choice they are.
  struct Cover {
    double cost = 0;
    int end = -1, choice = -1;
    std::size_t rest = 0;  ///< which list has the cover of the layers from `end` on
  };
  /// The first price of a pool is the samples that its best replica does per device-second, so that
  /// equal work costs about the same everywhere.
  void add_choices() {
    prices_.assign(problem_.pools.size(), 0);
    for (std::size_t p = 0; p < problem_.pools.size(); ++p) {
      if (problem_.pools[p].devices == 0) continue;
      for (std::size_t d = 0; d < problem_.degrees.size(); ++d) {
        if (problem_.degrees[d] > problem_.pools[p].devices_per_node) continue;
        const std::size_t first = choices_.size();
        add_samples(static_cast<int>(p), static_cast<int>(d));
        set_least(first);
      }
    }
  }

  void add_samples(int pool, int degree) {
    for (std::int64_t samples = 1; samples <= problem_.most_samples; ++samples) {
      if (!sums_.known(pool, degree, samples)) continue;
      Choice choice{.pool = pool, .degree = degree, .samples = samples};
      for (std::size_t r = 0; r < 3; ++r) choice.seconds[r] = seconds_of(choice, r);
      const double seconds = std::max(choice.seconds[0].back(), 1e-300) * problem_.degrees[degree];
      double& price = prices_[pool];
      price = std::max(price, static_cast<double>(samples) / seconds);
      choices_.push_back(std::move(choice));
    }
  }

  /// Looks at the choices from `first` on, which are of one pool and degree.
  void set_least(std::size_t first) {
    std::vector<double> least(problem_.layers, infinite);
    // From the most samples down, so that `least` is the minimum over this choice and those after
    // it.
    for (std::size_t c = choices_.size(); c-- > first;) {
      Choice& choice = choices_[c];
      const double limit = problem_.pools[choice.pool].memory_bytes;
      for (int layer = 0; layer < problem_.layers; ++layer) {
        const LayerSums::Range range{layer, layer + 1};
        // Full recomputation and states over all devices: no plan holds less.
        const LayerSums::Holding holding{.recomputation = Recomputation::full,
                                         .state_replicas = devices_};
        const bool fits =
            !terms_.memory || limit <= 0 ||
            memory_margin * sums_.least_memory(choice.degree, choice.samples, range, holding) <=
                limit;
        const double seconds =
            choice.seconds[0][static_cast<std::size_t>(layer) + 1] - choice.seconds[0][layer];
        if (fits) least[layer] = std::min(least[layer], seconds);
      }
      choice.least_s = least;
      choice.next = choices_.size();
    }
  }

  /// One sample's way there, and there and back, each layer on its fastest replica; and a replica's
  /// least seconds for a sample of each layer.
  void set_heads() {
    heads_.assign(1, 0);
    ways_.assign(1, 0);
    replica_s_.assign(1, 0);
    for (int layer = 0; layer < problem_.layers; ++layer) {
      double forward = infinite, way = infinite, all = infinite;
      for (const DevicePool& pool : problem_.pools) {
        for (std::size_t d = 0; d < problem_.degrees.size() && pool.devices > 0; ++d) {
          if (problem_.degrees[d] > pool.devices_per_node) continue;
          for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
            if (pool.times[d][m].empty()) continue;
            const LayerTimes& t = pool.times[d][m][layer];
            forward = std::min(forward, t.forward_s);
            way = std::min(way, t.forward_s + t.input_gradient_s);
            all = std::min(all, t.total() / static_cast<double>(m + 1));
          }
        }
      }
      heads_.push_back(heads_.back() + (forward < infinite && terms_.filling ? forward : 0));
      ways_.push_back(ways_.back() + (way < infinite && terms_.filling ? way : 0));
      replica_s_.push_back(replica_s_.back() + (all < infinite ? all : 0));
    }
  }

  /// The best that a ring with a rank of the pool can have.
  void set_links() {
    for (std::size_t p = 0; p < problem_.pools.size(); ++p) {
      std::array<double, 2> best{infinite, infinite};
      for (std::size_t q = 0; q < problem_.pools.size(); ++q) {
        for (const LinkCurve* link : {&problem_.links[p][q], &problem_.links[q][p]}) {
          if (link->empty() || problem_.pools[q].devices < (p == q ? 2 : 1)) continue;
          best[0] = std::min(best[0], link->latency().value());
          best[1] = std::min(best[1], 1 / link->bandwidth().value());
        }
      }
      links_.push_back(best[1] < infinite ? best : std::array<double, 2>{0, 0});
    }
  }

  /// False is a proof that no plan takes the step; true says only that no proof was found.
  bool is_possible(const Step& step) {
    // Large problems get fewer rounds: a worse bound, but still a valid one.
    const bool many = choices_.size() * static_cast<std::size_t>(problem_.layers) > many_steps;
    if (!terms_.counts) {
      return is_afforded(step, &StageRelaxation::least_cost,
                         {many ? few_price_rounds : price_rounds, 1});
    }
    // The cheap tests come first.
    return is_afforded(step, &StageRelaxation::least_cost, {1, 1}) &&
           is_afforded(step, &StageRelaxation::least_counted_cost,
                       {many ? some_price_rounds : price_rounds, slow_decay});
  }

  using Cost = double (StageRelaxation::*)(const Step& step, std::vector<double>& used);
  /// Prices are changed so often, each time by less.
  struct PriceRounds {
    int count = 1;
    double decay = 1;
  };
  /// Asks `least` for the cheapest cuts at changing prices; false where they cost more than all
  /// devices.
  bool is_afforded(const Step& step, Cost least, PriceRounds rounds) {
    std::vector<double> best = prices_;
    double dearest = 0;
    for (int round = 0; round < rounds.count; ++round) {
      std::vector<double> used(prices_.size(), 0);
      const double cost = (this->*least)(step, used) / budget();
      // The price of all devices is the budget: costs above 1 prove that T is impossible.
      if (cost > sum_slack) return false;
      if (cost > dearest) dearest = cost, best = prices_;
      double most_used = 0;
      for (std::size_t p = 0; p < prices_.size(); ++p) {
        const double devices = problem_.pools[p].devices;
        if (devices > 0) most_used = std::max(most_used, used[p] / devices);
      }
      // Nothing is used too much, so these prices cannot prove more; or the proof is too far away.
      if (most_used <= 1 || cost < hopeless) break;
      const double rate = first_rate / (1 + rounds.decay * round);
      for (std::size_t p = 0; p < prices_.size(); ++p) {
        const double devices = problem_.pools[p].devices;
        if (devices > 0) prices_[p] *= std::exp(rate * (std::min(2.0, used[p] / devices) - 1));
      }
    }
    prices_ = best;
    return true;
  }

  /// The price of all devices.
  double budget() const {
    double sum = 0;
    for (std::size_t p = 0; p < prices_.size(); ++p) sum += prices_[p] * problem_.pools[p].devices;
    return sum;
  }

  /// The value of the cheapest cuts at the prices as they are; infinite where there are none.
  /// `used`: devices of each pool that these take.
  double least_cost(const Step& step, std::vector<double>& used) {
    const int layers = problem_.layers;
    std::vector<double> cost(static_cast<std::size_t>(layers) + 1, infinite);
    std::vector<int> from(static_cast<std::size_t>(layers) + 1, -1),
        by(static_cast<std::size_t>(layers) + 1, -1);
    std::vector<int> ends(choices_.size(), 0);  // the longest range from the layer at hand
    cost[0] = 0;
    for (int first = 0; first < layers; ++first) {
      // Covering more layers never costs less: the best way to here or beyond.
      if (cost[first] == infinite) return infinite;
      const double left = (step.seconds - heads_[first]) * sum_slack;
      for (std::size_t c = 0; c < choices_.size(); ++c) {
        const Choice& choice = choices_[c];
        // Neither these samples nor more of them take a layer.
        if (choice.samples > step.samples ||
            choice.least_s[first] * static_cast<double>(step.micro_batches) > left) {
          c = choice.next - 1;
          continue;
        }
        const double taken = devices(choice, step) * prices_[choice.pool];
        const double sum = cost[first] + taken;
        if (sum >= cost.back()) continue;
        int& end = ends[c];
        end = std::max(end, first);
        while (end < layers && takes(choice, {first, end + 1}, step)) ++end;
        // A stage of all that is left may need less: nothing follows it.
        const bool all = end < layers && takes(choice, {first, layers}, step);
        for (int to = all ? layers : end; to > first && sum < cost[to]; --to) {
          cost[to] = sum;
          from[to] = first;
          by[to] = static_cast<int>(c);
        }
      }
    }
    if (cost[layers] == infinite) return infinite;
    for (int at = layers; at > 0; at = from[at]) {
      const Choice& choice = choices_[by[at]];
      used[choice.pool] += devices(choice, step);
    }
    return cost[layers];
  }

  /// least_cost() with the number of stages that follow each stage; slower and tighter.
  double least_counted_cost(const Step& step, std::vector<double>& used) {
    const std::size_t layers = problem_.layers;
    const std::vector<double> before = least_costs_before(step);
    // The most that a cover from a layer on may cost: the budget less the least for the layers
    // before.
    std::vector<double> most;
    for (const double least : before) most.push_back(budget() * sum_slack * sum_slack - least);
    std::vector<Covers> by_count(1, Covers(layers + 1, Cover{infinite, -1, -1, 0}));
    by_count[0][layers].cost = 0;
    std::size_t best = 0;
    Step grown = step;
    for (; grown.followers < problem_.layers; ++grown.followers) {
      // More stages than this change nothing.
      const bool all_kept = grown.followers + 1 >= step.micro_batches;
      Covers next = covers(by_count, all_kept ? MoreStages::any : MoreStages::one, most, grown);
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

  using Covers = std::vector<Cover>;  ///< [layer]
  enum class MoreStages { one, any };
  /// One stage more than the last of the lists has, or any number of them. `most`: what costs more
  /// is no use.
  Covers covers(const std::vector<Covers>& lists, MoreStages more, const std::vector<double>& most,
                const Step& step) {
    const Covers& before = lists.back();
    Covers result(before.size(), Cover{infinite, -1, -1, 0});
    std::vector<int> firsts(choices_.size(),
                            problem_.layers);  // the longest range to the end at hand
    for (int end = problem_.layers; end > 0; --end) {
      const double with_more = more == MoreStages::any ? result[end].cost : infinite;
      const double after = std::min(before[end].cost, with_more);
      // One layer more at no cost: a stage that ends there has less to do.
      const double sooner = end > 1 ? before[static_cast<std::size_t>(end) - 1].cost : infinite;
      const double with_more_sooner = more == MoreStages::any && end > 1
                                          ? result[static_cast<std::size_t>(end) - 1].cost
                                          : infinite;
      if (after == infinite || std::min(sooner, with_more_sooner) <= after) continue;
      const std::size_t rest = with_more <= after ? lists.size() : lists.size() - 1;
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

  /// [layer]: at the prices as they are no way to do the layers before it costs less: fractions of
  /// devices, each layer at its best.
  std::vector<double> least_costs_before(const Step& step) const {
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

  /// True when a replica of the choice can do the range within the step. Cheap tests go first, for
  /// this is the inner loop.
  bool takes(const Choice& choice, LayerSums::Range range, const Step& step) const {
    // The stage waits until a micro-batch has come through the layers before it.
    const double left = step.seconds - heads_[range.first];
    const auto& sums = choice.seconds[0];
    const double work_s =
        (sums[range.end] - sums[range.first]) * static_cast<double>(step.micro_batches) / sum_slack;
    if (work_s > left) return false;
    if (!has_memory(choice, range, left / static_cast<double>(step.micro_batches), step,
                    Recomputation::full))
      return false;
    const double period_s = (left - after_work(choice, range, step)) /
                            static_cast<double>(step.micro_batches) * sum_slack;
    for (const Recomputation r :
         // Any kind that has time and memory is enough. Full recomputation needs the least memory,
         // so it is asked first.
         {Recomputation::full, Recomputation::none, Recomputation::selective}) {
      const auto& with = choice.seconds[static_cast<std::size_t>(r)];
      if (with[range.end] - with[range.first] > period_s) continue;
      if (has_memory(choice, range, period_s, step, r)) return true;
    }
    return false;
  }

  /// Seconds of the sums over replicas and of the optimizer after a stage's last pass, at the
  /// least.
  double after_work(const Choice& choice, LayerSums::Range range, const Step& step) const {
    if (!terms_.sums) return 0;
    // All replicas together do the batch; none is faster than the fastest.
    const double least_replicas =
        std::ceil((replica_s_[range.end] - replica_s_[range.first]) *
                  static_cast<double>(problem_.batch) / step.seconds / sum_slack);
    const bool cut = range.first > 0 || range.end < problem_.layers;
    const bool shares_table = cut && !problem_.tied_parameters.empty() &&
                              (range.first == 0 || range.end == problem_.layers);
    double elements = sums_.parameters(choice.degree, range);
    if (shares_table && range.first == 0) {
      elements -= problem_.tied_parameters[choice.degree];
    }
    const std::array<double, 2>& link = links_[choice.pool];
    const double latency = link[0], seconds_per_byte = link[1];
    const auto ring = [&](double replicas, double count) {
      if (replicas < 2) return 0.0;
      return 2 * (replicas - 1) / replicas * count * problem_.master_bytes * seconds_per_byte +
             2 * (replicas - 1) * latency;
    };
    double seconds = ring(least_replicas, elements);
    // First and last stage hold the table: a ring of two at the least.
    if (shares_table) {
      seconds += ring(2, problem_.tied_parameters.front() / problem_.degrees.back());
    }
    const double rate = problem_.pools[choice.pool].optimizer_rate;
    if (rate > 0) {
      const auto most_replicas =
          static_cast<double>(std::min<std::int64_t>(step.samples, devices_));
      seconds += optimizer_words * elements / most_replicas * problem_.master_bytes / rate;
    }
    return seconds;
  }

  /// True when the range's states and kept tensors, at their least, fit the choice's devices.
  bool has_memory(const Choice& choice, LayerSums::Range range, double period_s, const Step& step,
                  Recomputation recomputation) const {
    const double limit = problem_.pools[choice.pool].memory_bytes;
    if (!terms_.memory || limit <= 0) return true;
    LayerSums::Holding holding;
    holding.recomputation = recomputation;
    const double way_s = ways_.back() - ways_[range.first];
    const double kept =
        std::min(way_s / period_s / sum_slack, static_cast<double>(step.micro_batches));
    const std::int64_t counted = std::min<std::int64_t>(step.followers + 1, step.micro_batches);
    holding.in_flight = std::max(static_cast<int>(counted), static_cast<int>(std::ceil(kept)));
    holding.state_replicas = static_cast<int>(std::min<std::int64_t>(step.samples, devices_));
    return memory_margin * sums_.least_memory(choice.degree, choice.samples, range, holding) <=
           limit;
  }

  /// Devices that a stage takes when all its replicas are of this choice; fractional.
  double devices(const Choice& choice, const Step& step) const {
    return static_cast<double>(step.samples) / static_cast<double>(choice.samples) *
           problem_.degrees[choice.degree];
  }

  /// [layer]: of the layers before it.
  std::vector<double> seconds_of(const Choice& choice, std::size_t recomputation) const {
    const auto& layers = problem_.pools[choice.pool].times[choice.degree][choice.samples - 1];
    std::vector<double> sums(1, 0);
    for (const LayerTimes& t : layers) {
      const double again = recomputation == 0   ? 0
                           : recomputation == 1 ? t.attention_s
                                                : t.forward_s;
      sums.push_back(sums.back() + t.forward_s + t.input_gradient_s + t.weight_gradient_s + again);
    }
    return sums;
  }

  /// About 200 micro-batches first: the sooner a good step is known, the fewer others need a
  /// search.
  std::vector<std::int64_t> micro_batch_sizes() const {
    std::vector<std::int64_t> sizes = divisors(problem_.batch);
    const auto away = [&](std::int64_t samples) {
      constexpr double likely = 200;
      return std::abs(std::log(static_cast<double>(problem_.batch / samples) / likely));
    };
    std::ranges::sort(sizes, [&](std::int64_t a, std::int64_t b) {
      return std::pair(away(a), a) < std::pair(away(b), b);
    });
    return sizes;
  }

  /// True when micro-batches of any size may do it; of a size that cannot, `impossible_s` says so.
  bool is_any_possible(double seconds, std::vector<SizeBound>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (seconds <= sizes[i].impossible_s) continue;
      prices_ = sizes[i].prices;
      const bool possible =
          is_possible({seconds, sizes[i].samples, problem_.batch / sizes[i].samples, 0});
      sizes[i].prices = prices_;
      if (possible) {
        // It is the likeliest for less, too.
        std::rotate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(i),
                    sizes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return true;
      }
      sizes[i].impossible_s = seconds;
    }
    return false;
  }

  const PlanningProblem& problem_;
  RelaxationTerms terms_;
  LayerSums sums_;
  std::vector<Choice> choices_;
  std::vector<double> ways_;       ///< [layer]: through all before it and back
  std::vector<double> heads_;      ///< [layer]: a sample's way to it
  std::vector<double> replica_s_;  ///< [layer]: of layers before it, per sample on any replica
  std::vector<std::array<double, 2>> links_;  ///< [pool]: latency, seconds per byte, at best
  std::vector<double> prices_;
  int devices_ = 0;  ///< in all pools
};

}  // namespace

double relaxation_bound(const PlanningProblem& problem, const RelaxationTerms& terms,
                        double least_s, double most_s, double accuracy) {
  return StageRelaxation(problem, terms).bound(least_s, most_s, accuracy);
}

}  // namespace heteroperf

// Replays gates over runs that record_gate_runs.py has recorded: how often they call a copy of the
// base a regression, and how often they find the slowed one. Beside it what a U test over the
// iterations of all runs says, as if these were independent.
//
//   gate_replay_study runs.csv
//
// Every palindrome of a round (base, copy, slow, slow, copy, base) is a block of each pair; half a
// round and the half of the next make one the other way round. A gate looks at the blocks of a
// contiguous window one after another, as `heteroperf gate` does.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/sequential_test.hpp"

namespace heteroperf {
namespace {

struct Run {
  std::string kind;
  double throughput_log = 0, speed_log = 0;  ///< of the mean and of the median step
  std::vector<double> steps_s;
};

std::vector<Run> read_runs(const char* path) {
  std::ifstream file(path);
  std::vector<Run> runs;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string kind, throughput, median, steps, one;
    std::getline(fields, kind, ',');
    std::getline(fields, throughput, ',');
    std::getline(fields, median, ',');
    std::getline(fields, steps);
    Run run{kind, std::log(std::stod(throughput)), -std::log(std::stod(median)), {}};
    std::istringstream list(steps);
    while (std::getline(list, one, ';')) run.steps_s.push_back(std::stod(one));
    runs.push_back(std::move(run));
  }
  if (runs.empty()) throw UserError(fmt::format("{} holds no runs", path));
  return runs;
}

/// Four runs in order: base, head, head, base.
using Block = std::array<const Run*, 4>;

/// Blocks of (base, head) from consecutive runs, one after another in time.
std::vector<Block> blocks_of(const std::vector<Run>& runs, const std::string& base,
                             const std::string& head) {
  std::vector<const Run*> of_pair;
  for (const Run& run : runs) {
    if (run.kind == base || run.kind == head) of_pair.push_back(&run);
  }
  std::vector<Block> blocks;
  for (std::size_t i = 0; i + 4 <= of_pair.size();) {
    const Block block{of_pair[i], of_pair[i + 1], of_pair[i + 2], of_pair[i + 3]};
    const bool fits = block[0]->kind == base && block[1]->kind == head && block[2]->kind == head &&
                      block[3]->kind == base;
    if (fits) blocks.push_back(block);
    i += fits ? 4 : 1;
  }
  return blocks;
}

AbbaBlock logs(const Block& block, double Run::*metric) {
  return {block[0]->*metric, block[1]->*metric, block[2]->*metric, block[3]->*metric};
}

enum class Outcome { regression, cleared, undecided, control_alarm, too_noisy };

struct Replay {
  Outcome outcome = Outcome::undecided;
  std::size_t blocks = 0;
};

Outcome outcome_of(const std::vector<Judgement>& judged, const SequentialRule& rule) {
  const auto any = [&](auto wanted) { return std::any_of(judged.begin(), judged.end(), wanted); };
  if (any([](const Judgement& one) { return one.control_alarm; })) return Outcome::control_alarm;
  if (any([](const Judgement& one) { return one.verdict == ChangeVerdict::regression; })) {
    return Outcome::regression;
  }
  if (any([](const Judgement& one) { return one.verdict == ChangeVerdict::undecided; })) {
    return any([&](const Judgement& one) { return one.noise > rule.noise; }) ? Outcome::too_noisy
                                                                             : Outcome::undecided;
  }
  return Outcome::cleared;
}

Replay replay(const std::vector<Block>& blocks, std::size_t first, const SequentialRule& rule) {
  constexpr std::array metrics{&Run::throughput_log, &Run::speed_log};
  std::array<std::vector<double>, 2> effects, controls;
  Replay result;
  for (std::size_t n = 0; n < rule.most_blocks; ++n) {
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      const AbbaBlock block = logs(blocks[first + n], metrics[m]);
      effects[m].push_back(block.effect());
      controls[m].push_back(block.control());
    }
    result.blocks = n + 1;
    if (result.blocks < rule.fewest_blocks) continue;
    std::vector<Evidence> evidence;
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      evidence.push_back(
          {paired_log_ratio(effects[m]), paired_log_ratio(controls[m]), result.blocks});
    }
    result.outcome = outcome_of(judge_evidence(evidence, rule), rule);
    if (result.outcome == Outcome::regression || result.outcome == Outcome::cleared) break;
  }
  return result;
}

/// Two-sided p of Mann and Whitney's U by its normal approximation, without ties.
double u_test(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<std::pair<double, bool>> all;
  for (const double x : a) all.emplace_back(x, true);
  for (const double x : b) all.emplace_back(x, false);
  std::sort(all.begin(), all.end());
  double rank_sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].second) rank_sum += static_cast<double>(i + 1);
  }
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double u = rank_sum - n * (n + 1) / 2;
  const double z = (u - n * m / 2) / std::sqrt(n * m * (n + m + 1) / 12);
  return std::erfc(std::abs(z) / std::sqrt(2.0));
}

/// As a benchmark would that takes every iteration for a sample of its own: five blocks.
bool naive_alarm(const std::vector<Block>& blocks, std::size_t first, const SequentialRule& rule) {
  std::vector<double> base, head;
  for (std::size_t n = first; n < first + rule.fewest_blocks; ++n) {
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<double>& side = i == 0 || i == 3 ? base : head;
      side.insert(side.end(), blocks[n][i]->steps_s.begin(), blocks[n][i]->steps_s.end());
    }
  }
  const auto mean = [](const std::vector<double>& x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  };
  return mean(head) > mean(base) && u_test(base, head) < rule.alpha;
}

void study(const std::vector<Run>& runs, const std::string& base, const std::string& head,
           const SequentialRule& rule) {
  const std::vector<Block> blocks = blocks_of(runs, base, head);
  std::array<int, 5> counts{};
  int gates = 0, naive = 0;
  double used = 0;
  for (std::size_t first = 0; first + rule.most_blocks <= blocks.size(); ++first) {
    const Replay one = replay(blocks, first, rule);
    ++counts[static_cast<std::size_t>(one.outcome)];
    naive += naive_alarm(blocks, first, rule);
    used += static_cast<double>(one.blocks);
    ++gates;
  }
  if (gates == 0) return;
  fmt::print(
      "at most {:2} blocks, {:>4} -> {:<4} {:4} gates, {:4.1f} blocks: regression {:3}, cleared "
      "{:3}, undecided {:3} "
      "(and "
      "too noisy {:3}, control alarm {:3}); U test over iterations alarms {:3}\n",
      rule.most_blocks, base, head, gates, used / gates, counts[0], counts[1], counts[2], counts[4],
      counts[3], naive);
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  using namespace heteroperf;
  try {
    if (argc != 2) throw UserError("usage: gate_replay_study RUNS.csv");
    const std::vector<Run> runs = read_runs(argv[1]);
    for (const std::size_t most_blocks : {5, 8, 12}) {
      SequentialRule rule;
      rule.most_blocks = most_blocks;
      for (const auto& [base, head] : {std::pair("base", "copy"),
                                       {"copy", "base"},
                                       {"base", "slow"},
                                       {"copy", "slow"},
                                       {"slow", "base"},
                                       {"slow", "copy"}}) {
        study(runs, base, head, rule);
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "gate_replay_study: {}\n", error.what());
    return 2;
  }
}

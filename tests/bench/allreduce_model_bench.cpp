// How well the cost model predicts all-reduce and how much its choice loses against the fastest
// algorithm. On threads (--threads N) or as one rank of mpirun.
// Usage: allreduce_model_bench [--threads N] [--clusters a,a,b,b] [--first 1K] [--last 64M]
//                              [--rounds 15] [--paced-gbit R] [--name BED]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/comm/discovery/cost_probe.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

using Options = std::map<std::string, std::string>;

Options read_options(int count, char** arguments) {
  Options options{{"--threads", "0"}, {"--clusters", ""},    {"--first", "1K"}, {"--last", "64M"},
                  {"--rounds", "15"}, {"--paced-gbit", "0"}, {"--name", "bed"}};
  for (int i = 1; i < count; i += 2) {
    const auto found = options.find(arguments[i]);
    if (found == options.end() || i + 1 == count) {
      throw UserError(fmt::format("unknown option or no value: {}", arguments[i]));
    }
    found->second = arguments[i + 1];
  }
  return options;
}

Bytes size_of_text(const std::string& text) {
  return parse_selection(fmt::format("ring:0-{}", text)).front().last;
}

RankClusters clusters_of(const std::string& labels, int ranks) {
  if (labels.empty()) return clusters_by_label(std::vector<std::string>(ranks), ranks);
  std::vector<std::string> list{""};
  for (const char c : labels) {
    if (c == ',') {
      list.emplace_back();
    } else {
      list.back() += c;
    }
  }
  return clusters_by_label(list, ranks);
}

/// Every cluster behind one card of `gbit`; inside no limit that would be felt.
Cluster paced_cluster(const RankClusters& clusters, double gbit) {
  Cluster cluster;
  const BytesPerSecond rate(gbit * 1e9 / 8);
  cluster.name = "paced";
  cluster.classes.emplace_back();
  cluster.classes.back().name = "cpu";
  cluster.ranks.resize(static_cast<std::size_t>(clusters.ranks()));
  const auto link = [&](const std::string& a, const std::string& b, const LinkCurve& curve) {
    Link made;
    made.from = a;
    made.to = b;
    made.curve = curve;
    made.source = "given";
    cluster.links.push_back(made);
  };
  for (const RankCluster& one : clusters.clusters) {
    cluster.cards.push_back({one.label + "/eth0", rate});
    for (const RankId rank : one.ranks) {
      cluster.ranks[rank.index()] = {"cpu", one.label, one.label, {one.label + "/eth0"}};
    }
    link(one.label, one.label, LinkCurve(Seconds(1e-9), BytesPerSecond(1e13)));
    for (const RankCluster& other : clusters.clusters) {
      if (other.label > one.label) link(one.label, other.label, LinkCurve(Seconds(30e-6), rate));
    }
  }
  return cluster;
}

/// "1024 B 3.1 us, …".
std::string text_of(const LinkCurve& curve) {
  std::string text;
  for (const LinkCurve::Point& point : curve.points()) {
    text += fmt::format("{}{} B {:.1f} us", text.empty() ? "" : ", ", point.size.value(),
                        point.time.value() * 1e6);
  }
  return text.empty() ? "not measured" : text;
}

struct Candidate {
  Algorithm algorithm;
  std::unique_ptr<HybridCommunicator> group;
};

class Bench {
 public:
  Bench(Communicator& world, const Options& options)
      : world_(world),
        name_(options.at("--name")),
        rounds_(std::max(3, std::atoi(options.at("--rounds").c_str()))),
        clusters_(clusters_of(options.at("--clusters"), world.size())),
        inside_(world.split(static_cast<int>(clusters_.cluster_of(world.rank())),
                            world.rank().value())),
        first_(size_of_text(options.at("--first"))),
        last_(size_of_text(options.at("--last"))),
        values_(last_.value() / sizeof(float)) {}

  void run() {
    const auto begin = std::chrono::steady_clock::now();
    model_ = measure_cost_model(world_, *inside_, clusters_, last_);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    say(fmt::format("{}: {} ranks on {}, {} clusters, model measured in {:.2f} s\n", name_,
                    world_.size(), world_.transport(), clusters_.clusters.size(), seconds));
    say(fmt::format("  inside {}\n  inside, streamed {}\n  between {}\n  between, streamed {}\n",
                    text_of(model_.inside.front()), text_of(model_.inside_stream),
                    text_of(model_.between), text_of(model_.between_stream)));
    make_candidates();
    for (std::uint64_t n = first_.value(); n <= last_.value(); n *= 4) measure(Bytes(n));
    summarise();
  }

 private:
  void say(const std::string& text) const {
    if (world_.rank().value() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  std::unique_ptr<HybridCommunicator> group_with(std::vector<SelectionRule> rules) {
    HybridConfig config;
    config.clusters = clusters_;
    config.rules = std::move(rules);
    config.model = model_;
    return make_hybrid_communicator(world_.split(0, world_.rank().value()), std::move(config));
  }

  void make_candidates() {
    for (const Algorithm algorithm : all_algorithms()) {
      const bool across = algorithm == Algorithm::leader || algorithm == Algorithm::split_rail;
      if (across && clusters_.clusters.size() == 1) continue;
      candidates_.push_back(
          {algorithm, group_with({{algorithm, Bytes(0), Bytes(~std::uint64_t{0})}})});
    }
    auto_ = group_with({});
  }

  TimedTask task(HybridCommunicator& group, Bytes size) {
    return {[this, &group, size] {
      group.all_reduce(std::span<float>(values_.data(), size.value() / sizeof(float)),
                       Reduction::sum);
    }};
  }

  /// The slowest rank's times of every task in so many rounds.
  std::vector<std::vector<double>> timed(const std::vector<TimedTask>& tasks, int rounds) {
    std::vector<std::vector<double>> times(tasks.size());
    for (int round = 0; round < rounds; ++round) {
      const RoundTimes one = time_round(world_, tasks);
      for (std::size_t t = 0; t < tasks.size(); ++t) times[t].push_back(one.slowest(t));
    }
    return times;
  }

  /// Times of every task. Those that take three times as long as the best after three rounds are
  /// not repeated.
  std::vector<double> medians(std::vector<TimedTask> tasks) {
    const RoundTimes warm = time_round(world_, tasks);
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      const double call_s = warm.slowest(t);
      tasks[t].calls = static_cast<int>(std::clamp(1e-3 / call_s, 1.0, 100.0));
      tasks[t].untimed = call_s < 5e-3 ? 1 : 0;
    }
    std::vector<std::vector<double>> times = timed(tasks, 3);
    double best = 1e30;
    for (const auto& list : times) best = std::min(best, median(list));
    std::vector<TimedTask> fast;
    std::vector<std::size_t> which;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (median(times[t]) > 3 * best) continue;
      fast.push_back(tasks[t]);
      which.push_back(t);
    }
    const auto late = timed(fast, rounds_ - 3);
    for (std::size_t f = 0; f < fast.size(); ++f) {
      for (const double s : late[f]) times[which[f]].push_back(s);
    }
    std::vector<double> result;
    for (const auto& list : times) result.push_back(median(list));
    return result;
  }

  void measure(Bytes size) {
    std::vector<TimedTask> tasks;
    for (Candidate& candidate : candidates_) tasks.push_back(task(*candidate.group, size));
    const std::vector<double> measured = medians(std::move(tasks));
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const Choice choice = candidates_[c].group->choice(size, DataType::f32);
      const double predicted = choice.predicted.value_or(Seconds(0)).value();
      const double error = std::abs(predicted / measured[c] - 1);
      if (size.value() >= 65536) errors_.push_back(error);
      say(
          fmt::format("{:<12} {:>9} {:<19} {:>9} predicted {:>10.1f} us measured {:>10.1f} us "
                      "error {:>6.1f} %\n",
                      name_, size.value(), to_string(candidates_[c].algorithm),
                      choice.segment.value(), predicted * 1e6, measured[c] * 1e6, error * 100));
    }
    judge(size, measured);
  }

  void judge(Bytes size, const std::vector<double>& measured) {
    const auto best = static_cast<std::size_t>(std::min_element(measured.begin(), measured.end()) -
                                               measured.begin());
    const Choice choice = auto_->choice(size, DataType::f32);
    std::size_t chosen = 0;
    while (candidates_[chosen].algorithm != choice.algorithm) ++chosen;
    HybridCommunicator& fastest = *candidates_[best].group;
    const std::vector<double> again =
        medians({task(fastest, size), task(fastest, size), task(*auto_, size)});
    const double noise = std::abs(again[0] / again[1] - 1);
    const double regret = measured[chosen] / measured[best] - 1;
    const double lived = again[2] / std::min(again[0], again[1]) - 1;
    regrets_.push_back(regret);
    noises_.push_back(noise);
    excess_.push_back(regret - noise);
    say(fmt::format(
        "{:<12} {:>9} auto {}, best {}: regret {:.1f} %, auto itself {:.1f} %, "
        "A/A {:.1f} %\n",
        name_, size.value(), to_string(choice.algorithm), to_string(candidates_[best].algorithm),
        100 * regret, 100 * lived, 100 * noise));
  }

  void summarise() const {
    double logs = 0;
    for (const double regret : regrets_) logs += std::log1p(regret);
    const double mean_regret = std::expm1(logs / static_cast<double>(regrets_.size()));
    say(fmt::format(
        "{}: median error from 64 KiB {:.1f} %, regret geometric mean {:.1f} %, worst "
        "{:.1f} %, worst beyond A/A {:.1f} %, A/A median {:.1f} %\n",
        name_, errors_.empty() ? 0 : 100 * median(errors_), 100 * mean_regret,
        100 * *std::max_element(regrets_.begin(), regrets_.end()),
        100 * *std::max_element(excess_.begin(), excess_.end()), 100 * median(noises_)));
  }

  Communicator& world_;
  std::string name_;
  int rounds_;
  RankClusters clusters_;
  std::unique_ptr<Communicator> inside_;
  Bytes first_, last_;
  std::vector<float> values_;
  CostModel model_;
  std::vector<Candidate> candidates_;
  std::unique_ptr<HybridCommunicator> auto_;
  std::vector<double> errors_, regrets_, noises_, excess_;
};

void run_rank(World& world, const Options& options) {
  const double gbit = std::stod(options.at("--paced-gbit"));
  if (gbit > 0) {
    const int ranks = world.communicator->size();
    world.communicator =
        make_paced_communicator(std::move(world.communicator),
                                paced_cluster(clusters_of(options.at("--clusters"), ranks), gbit));
  }
  Bench(*world.communicator, options).run();
}

int run(int count, char** arguments) {
  const Options options = read_options(count, arguments);
  const CommConfig config;
  if (detect_launcher()) {
    World world = join_mpi_world(config);
    run_rank(world, options);
    leave_mpi_world(std::move(world));
    return 0;
  }
  run_on_threads(std::max(1, std::atoi(options.at("--threads").c_str())), config,
                 [&](World& world) { run_rank(world, options); });
  return 0;
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** arguments) {
  try {
    return heteroperf::run(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

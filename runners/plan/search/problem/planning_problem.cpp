// The checks of a PlanningProblem.
//
// Problems come from graphs, from profiles of other tools and from tests, and the search indexes
// their tables without asking. So everything is checked once, in three rounds, each of which needs
// the one before: numbers that make sense at all, tables of the right extents, and then values that
// are finite and not negative. Each round reports all that it finds.
#include "runners/plan/search/problem/planning_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

bool is_number(double value) { return std::isfinite(value) && value >= 0; }

class ProblemCheck {
 public:
  explicit ProblemCheck(const PlanningProblem& problem) : problem_(problem) {}

  void run() {
    check_counts();
    problems_.throw_if_any();
    check_extents();
    problems_.throw_if_any();
    for (const DevicePool& pool : problem_.pools) check_pool(pool);
    check_bytes();
    check_links();
    problems_.throw_if_any();
  }

 private:
  void check_counts() {
    if (problem_.layers < 1) problems_.add("a model without layers");
    if (problem_.batch < 1) {
      problems_.add(fmt::format("a batch of {} samples", problem_.batch), "", "Give at least 1.");
    }
    if (problem_.devices() < 1) {
      problems_.add("a cluster without devices", "no pool has one", "Add a device.");
    }
    if (problem_.devices() > most_devices) {
      problems_.add(fmt::format("{} devices", problem_.devices()),
                    fmt::format("plans have up to {} ranks", most_devices),
                    "Plan for a part of the machine, and repeat it by data parallelism.");
    }
    if (problem_.degrees.empty() || problem_.degrees.front() != 1) {
      problems_.add("tensor-parallel degrees that do not begin with 1");
    }
    if (problem_.most_samples < 1) problems_.add("tables without a micro-batch");
    std::set<std::string> names;
    for (const DevicePool& pool : problem_.pools) {
      if (!names.insert(pool.name).second) {
        problems_.add(fmt::format("two pools are called '{}'", pool.name));
      }
    }
  }

  /// Complains of a table with another number of entries than it should have.
  void expect(std::size_t is, std::size_t should, const char* what) {
    if (is == should) return;
    problems_.add(fmt::format("{}: {} entries", what, is), fmt::format("{} are needed", should));
  }

  void check_extents() {
    const std::size_t layers = problem_.layers;
    const std::size_t samples = problem_.most_samples;
    const std::size_t degrees = problem_.degrees.size();
    expect(problem_.bytes.size(), degrees, "memory tables");
    expect(problem_.parameters.size(), degrees, "parameter tables");
    expect(problem_.activation_bytes.size(), layers - 1, "activations between layers");
    expect(problem_.gradient_bytes.size(), layers - 1, "gradients between layers");
    if (!problem_.tied_parameters.empty()) {
      expect(problem_.tied_parameters.size(), degrees, "shares of a tied table");
    }
    expect(problem_.links.size(), problem_.pools.size(), "rows of links");
    for (const auto& row : problem_.links) expect(row.size(), problem_.pools.size(), "links");
    for (const auto& of_degree : problem_.parameters)
      expect(of_degree.size(), layers, "parameters");
    if (!problem_.frozen_bytes.empty()) {
      expect(problem_.frozen_bytes.size(), degrees, "tables of frozen weights");
      for (const auto& of_degree : problem_.frozen_bytes)
        expect(of_degree.size(), layers, "frozen weights");
    }
    for (const auto& of_degree : problem_.bytes) {
      expect(of_degree.size(), samples, "memory by micro-batch");
      for (const auto& of_samples : of_degree) expect(of_samples.size(), layers, "memory by layer");
    }
    for (const DevicePool& pool : problem_.pools) {
      expect(pool.times.size(), degrees, "time tables");
      for (const auto& of_degree : pool.times) {
        expect(of_degree.size(), samples, "times by micro-batch");
        for (const auto& of_samples : of_degree) {
          if (!of_samples.empty()) expect(of_samples.size(), layers, "times by layer");
        }
      }
    }
  }

  void check_pool(const DevicePool& pool) {
    if (pool.devices < 0 || pool.devices_per_node < 1) {
      problems_.add(fmt::format("pool '{}' has {} devices, {} per node", pool.name, pool.devices,
                                pool.devices_per_node));
    }
    if (!is_number(pool.memory_bytes) || !is_number(pool.optimizer_rate)) {
      problems_.add(fmt::format("pool '{}' has {} bytes of memory that move {} a second", pool.name,
                                pool.memory_bytes, pool.optimizer_rate));
    }
    for (std::size_t d = 0; d < pool.times.size(); ++d) {
      for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
        if (!check_times(pool, d, m)) return;
      }
    }
  }

  /// One message is enough of a table that is wrong throughout.
  bool check_times(const DevicePool& pool, std::size_t d, std::size_t m) {
    for (std::size_t l = 0; l < pool.times[d][m].size(); ++l) {
      const LayerTimes& t = pool.times[d][m][l];
      for (const double value :
           {t.forward_s, t.input_gradient_s, t.weight_gradient_s, t.attention_s}) {
        if (is_number(value)) continue;
        problems_.add(fmt::format("layer {} takes {} s on '{}' with tensor parallelism {} and {} "
                                  "samples",
                                  l, value, pool.name, problem_.degrees[d], m + 1),
                      "times are finite and not negative", "Mend the profile or the rates.");
        return false;
      }
    }
    return true;
  }

  void check_bytes() {
    for (const auto& of_degree : problem_.bytes) {
      for (const auto& of_samples : of_degree) {
        for (const LayerBytes& bytes : of_samples) {
          for (int r = 0; r < 3; ++r) {
            const std::size_t i = r;
            if (is_number(bytes.kept[i]) && is_number(bytes.extra[i])) continue;
            problems_.add(fmt::format("a layer keeps {} bytes", bytes.kept[i]));
            return;
          }
        }
      }
    }
  }

  void check_links() {
    for (std::size_t a = 0; a < problem_.pools.size(); ++a) {
      for (std::size_t b = 0; b < problem_.pools.size(); ++b) {
        if (!problem_.links[a][b].empty()) continue;
        if (a == b && problem_.pools[a].devices < 2) continue;
        problems_.add(fmt::format("no link from '{}' to '{}'", problem_.pools[a].name,
                                  problem_.pools[b].name),
                      "plans send in both directions", "Give the link, or leave a pool out.");
      }
    }
  }

  static constexpr int most_devices = 1 << 16;
  const PlanningProblem& problem_;
  ProblemList problems_;
};

}  // namespace

int PlanningProblem::devices() const {
  long long sum = 0;
  for (const DevicePool& pool : pools) sum += pool.devices;
  return static_cast<int>(std::min(sum, 1LL << 30));
}

std::vector<std::vector<double>> PlanningProblem::least_device_seconds() const {
  std::vector<std::vector<double>> result;
  for (const DevicePool& pool : pools) {
    std::vector<double>& row = result.emplace_back(1, 0.0);
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(layers); ++layer) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t d = 0; d < degrees.size(); ++d) {
        for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
          if (pool.times[d][m].empty()) continue;
          const double time = pool.times[d][m][layer].total();
          least = std::min(least, time * degrees[d] / static_cast<double>(m + 1));
        }
      }
      row.push_back(row.back() + least);
    }
  }
  return result;
}

void check_problem(const PlanningProblem& problem) { ProblemCheck(problem).run(); }

}  // namespace heteroperf

#include "tests/unit/runners/plan/search/brute_force.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

struct Copy {
  int pool, degree, samples;  // degree: 0 or 1, an index
};

struct Stage {
  int first, end;
  bool full;
  std::vector<Copy> copies;
};

class BruteForce {
 public:
  explicit BruteForce(const PlanningProblem& problem) : p_(problem) {
    for (const DevicePool& pool : p_.pools) free_.push_back(pool.devices);
  }

  double run() {
    for (int b = 1; b <= p_.batch; ++b) {
      if (p_.batch % b != 0) continue;
      samples_ = b;
      micro_batches_ = static_cast<int>(p_.batch) / b;
      next_stage(0);
    }
    return best_;
  }

 private:
  double time(const Copy& c, int layer, double LayerTimes::*pass) const {
    return p_.pools[c.pool].times[c.degree][c.samples - 1][layer].*pass;
  }
  double slowest(const Stage& s, double LayerTimes::*pass) const {
    double most = 0;
    for (const Copy& c : s.copies) {
      double sum = 0;
      for (int l = s.first; l < s.end; ++l) sum += time(c, l, pass);
      most = std::max(most, sum);
    }
    return most;
  }

  void next_stage(int first) {
    if (first == p_.layers) {
      for (const bool zero : {false, true}) best_ = std::min(best_, step_time(zero));
      return;
    }
    for (int end = first + 1; end <= p_.layers; ++end) {
      for (const bool full : {false, true}) {
        stages_.push_back({first, end, full, {}});
        add_copies(0, samples_);
        stages_.pop_back();
      }
    }
  }

  /// Kinds of copies in one fixed order: pool, degree, two samples before one.
  void add_copies(int kind, int open) {
    if (open == 0) return next_stage(stages_.back().end);
    if (open < 0) return;
    for (int k = kind; k < static_cast<int>(p_.pools.size()) * 4; ++k) {
      const Copy copy{k / 4, k / 2 % 2, k % 2 == 0 ? 2 : 1};
      const int devices = copy.degree + 1;
      if (devices > p_.pools[copy.pool].devices_per_node || free_[copy.pool] < devices) continue;
      free_[copy.pool] -= devices;
      stages_.back().copies.push_back(copy);
      const std::size_t stage = stages_.size() - 1;
      add_copies(k, open - copy.samples);
      stages_[stage].copies.pop_back();
      free_[copy.pool] += devices;
    }
  }

  bool fits(std::size_t s, bool zero) const {
    const Stage& stage = stages_[s];
    const int after = static_cast<int>(stages_.size() - s) - 1;
    const int kept_at_once = std::min(micro_batches_, std::min(micro_batches_, after) + 1);
    const bool alike = std::all_of(stage.copies.begin(), stage.copies.end(), [&](const Copy& c) {
      return c.degree == stage.copies.front().degree;
    });
    for (const Copy& c : stage.copies) {
      const auto& bytes = p_.bytes[c.degree][c.samples - 1];
      double elements = 0, whole = 0, extra = 0;
      for (int l = stage.first; l < stage.end; ++l) {
        elements += p_.parameters[c.degree][l];
        whole += bytes[l].kept[0];
        extra = std::max(extra, bytes[l].extra[0]);
      }
      if (!p_.tied_parameters.empty() && stage.end == p_.layers && stage.first > 0) {
        elements += p_.tied_parameters[c.degree];
      }
      const double spread = zero && alike ? static_cast<double>(stage.copies.size()) : 1;
      const double kept = stage.full ? bytes[stage.first].kept[2] : whole;
      double edges = 0;
      if (stage.first > 0) {
        edges += p_.activation_bytes[stage.first - 1][0] + p_.gradient_bytes[stage.first - 1][0];
      }
      if (stage.end < p_.layers) {
        edges += p_.activation_bytes[stage.end - 1][0] + p_.gradient_bytes[stage.end - 1][0];
      }
      const double total = elements * (p_.weight_bytes + p_.optimizer_bytes / spread) +
                           (kept_at_once - 1) * kept + whole + extra + edges * c.samples;
      if (total > p_.pools[c.pool].memory_bytes) return false;
    }
    return true;
  }

  double message(std::size_t s, double bytes_per_sample) const {
    double most = 0;
    int a = 0;
    for (const Copy& from : stages_[s].copies) {
      int b = 0;
      for (const Copy& to : stages_[s + 1].copies) {
        const int common = std::min(a + from.samples, b + to.samples) - std::max(a, b);
        if (common > 0) {
          const auto bytes = static_cast<std::uint64_t>(std::ceil(bytes_per_sample * common));
          most = std::max(most, p_.links[from.pool][to.pool].time(Bytes(bytes)).value());
        }
        b += to.samples;
      }
      a += from.samples;
    }
    return most;
  }

  double ring(const std::vector<Copy>& copies, double bytes) const {
    if (copies.size() < 2) return 0;
    double latency = 0, per_byte = 0;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const LinkCurve& link = p_.links[copies[i].pool][copies[(i + 1) % copies.size()].pool];
      latency = std::max(latency, link.latency().value());
      per_byte = std::max(per_byte, 1 / link.bandwidth().value());
    }
    const double n = static_cast<double>(copies.size());
    return 2 * (n - 1) / n * bytes * per_byte + 2 * (n - 1) * latency;
  }

  double step_time(bool zero) const {
    const int count = static_cast<int>(stages_.size());
    for (int s = 0; s < count; ++s) {
      if (!fits(s, zero)) return infinite;
    }
    const std::vector<double> ends = clock();
    const bool tied = !p_.tied_parameters.empty() && count > 1;
    double table = 0;
    if (tied) {
      std::vector<Copy> holders = stages_.front().copies;
      holders.insert(holders.end(), stages_.back().copies.begin(), stages_.back().copies.end());
      table =
          ring(holders, p_.tied_parameters[0] / p_.degrees[stages_.front().copies.front().degree] *
                            p_.master_bytes);
    }
    double step = 0, slowest_link = 0;
    int ranks = 0;
    std::vector<int> used(p_.pools.size(), 0);
    for (int s = 0; s < count; ++s) {
      const Stage& stage = stages_[s];
      double elements = 0;
      for (const Copy& c : stage.copies) {
        double own = 0;
        for (int l = stage.first; l < stage.end; ++l) own += p_.parameters[c.degree][l];
        if (tied && s == 0) own -= p_.tied_parameters[c.degree];
        elements = std::max(elements, own);
        used[c.pool] += c.degree + 1;
        ranks += c.degree + 1;
      }
      const bool holds = tied && (s == 0 || s + 1 == count);
      const double sum = ring(stage.copies, elements * p_.master_bytes) + (holds ? table : 0);
      if (holds) {
        elements += p_.tied_parameters[0] / p_.degrees[stage.copies.front().degree];
      }
      if (zero) elements /= static_cast<double>(stage.copies.size());
      double update = 0;
      for (const Copy& c : stage.copies) {
        const double rate = p_.pools[c.pool].optimizer_rate;
        if (rate > 0) update = std::max(update, 7 * elements * p_.master_bytes / rate);
      }
      const double ready = holds && sum > 0 ? std::max(ends.front(), ends.back()) : ends[s];
      step = std::max(step, std::max(ready + sum, ends[s]) + update);
    }
    for (std::size_t a = 0; a < used.size(); ++a) {
      for (std::size_t b = 0; b < used.size(); ++b) {
        if (used[a] == 0 || used[b] == 0 || (a == b && used[a] < 2)) continue;
        slowest_link = std::max(slowest_link, p_.links[a][b].time(Bytes(16)).value());
      }
    }
    return step + (ranks > 1 ? slowest_link * std::ceil(std::log2(ranks)) : 0);
  }

  /// Every pass starts at the latest of what it needs: repeated until nothing moves.
  std::vector<double> clock() const {
    const int count = static_cast<int>(stages_.size()), m = micro_batches_;
    std::vector<double> f(count), r(count), b(count), down(count, 0), up(count, 0);
    for (int s = 0; s < count; ++s) {
      f[s] = slowest(stages_[s], &LayerTimes::forward_s);
      r[s] = stages_[s].full ? f[s] : 0;
      b[s] = slowest(stages_[s], &LayerTimes::input_gradient_s) +
             slowest(stages_[s], &LayerTimes::weight_gradient_s);
      if (s + 1 == count) continue;
      down[s] = message(s, p_.activation_bytes[stages_[s].end - 1][0]);
      up[s] = message(s, p_.gradient_bytes[stages_[s].end - 1][0]);
    }
    std::vector<std::vector<double>> fe(count, std::vector<double>(m, 0)), be = fe;
    std::vector<double> ends(count, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < count; ++s) {
        double now = 0;
        int next_f = 0;
        const auto forward = [&] {
          const double arrived = s > 0 ? fe[s - 1][next_f] + down[s - 1] : 0;
          now = std::max(now, arrived) + f[s];
          moved = moved || fe[s][next_f] != now;
          fe[s][next_f++] = now;
        };
        while (next_f < std::min(m, count - 1 - s)) forward();
        for (int i = 0; i < m; ++i) {
          if (next_f < m) forward();
          const double arrived = s + 1 < count ? be[s + 1][i] + up[s] : 0;
          now = std::max(now + r[s], arrived) + b[s];
          moved = moved || be[s][i] != now;
          be[s][i] = now;
        }
        ends[s] = now;
      }
    }
    return ends;
  }

  const PlanningProblem& p_;
  std::vector<int> free_;
  std::vector<Stage> stages_;
  int samples_ = 1, micro_batches_ = 1;
  double best_ = infinite;
};

}  // namespace

double brute_force_step_time(const PlanningProblem& problem) { return BruteForce(problem).run(); }

}  // namespace heteroperf

#include "metrics/bootstrap.hpp"

#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

void draw_blocks(std::span<const double> values, std::size_t block_length, RandomStream& random,
                 std::span<double> resample) {
  std::size_t position = 0, left_in_block = 0;
  for (double& value : resample) {
    if (left_in_block == 0) {
      position = random.below(values.size());
      left_in_block = block_length;
    }
    value = values[position];
    position = position + 1 == values.size() ? 0 : position + 1;
    --left_in_block;
  }
}

}  // namespace

Interval bootstrap_interval(std::span<const double> values, const Statistic& statistic,
                            const BootstrapSettings& settings) {
  HETEROPERF_EXPECT(!values.empty());
  HETEROPERF_EXPECT(settings.resamples > 0 && settings.block_length > 0);
  HETEROPERF_EXPECT(settings.level > 0 && settings.level < 1);
  RandomStream random(settings.seed);
  std::vector<double> resample(values.size());
  std::vector<double> outcomes(static_cast<std::size_t>(settings.resamples));
  for (double& outcome : outcomes) {
    draw_blocks(values, static_cast<std::size_t>(settings.block_length), random, resample);
    outcome = statistic(resample);
  }
  const double tail = (1 - settings.level) / 2;
  return {quantile(outcomes, tail), quantile(outcomes, 1 - tail)};
}

}  // namespace heteroperf

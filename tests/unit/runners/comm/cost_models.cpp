#include "tests/unit/runners/comm/cost_models.hpp"

#include <fmt/format.h>

#include "runners/cluster/rank_clusters.hpp"

namespace heteroperf {
namespace {

RankClusters clusters_of_sizes(const std::vector<int>& sizes) {
  std::vector<std::string> labels;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    labels.insert(labels.end(), static_cast<std::size_t>(sizes[k]), fmt::format("c{}", k));
  }
  return clusters_by_label(labels, static_cast<int>(labels.size()));
}

LinkCurve random_curve(RandomStream& random) {
  std::vector<LinkCurve::Point> points;
  double time = 1e-6 * (0.1 + random.unit());
  for (std::uint64_t n = 256; n <= 64 << 20; n *= 4) {
    points.push_back({Bytes(n), Seconds(time)});
    time *= 1 + 4 * random.unit();
  }
  return LinkCurve(points);
}

}  // namespace

LinkCurve line(double latency_s, double seconds_per_byte) {
  return {Seconds(latency_s), BytesPerSecond(1 / seconds_per_byte)};
}

CostModel constant_model(const std::vector<int>& sizes) {
  CostModel model;
  model.clusters = clusters_of_sizes(sizes);
  model.inside.assign(sizes.size(), line(alpha, beta));
  model.reduction = line(0, gamma_s);
  model.native = line(5 * alpha, 5 * beta);
  if (sizes.size() == 1) return model;
  model.between = line(10 * alpha, 8 * beta);
  model.bf16_codec = line(0, beta / 10);
  model.int8_codec = line(0, beta / 5);
  return model;
}

CostModel random_model(RandomStream& random) {
  std::vector<int> sizes;
  const std::uint64_t clusters = 1 + random.below(3);
  for (std::uint64_t k = 0; k < clusters; ++k)
    sizes.push_back(1 + static_cast<int>(random.below(4)));
  CostModel model = constant_model(sizes);
  for (LinkCurve& curve : model.inside) curve = random_curve(random);
  for (LinkCurve* curve : {&model.between, &model.reduction, &model.native, &model.bf16_codec,
                           &model.int8_codec, &model.inside_stream, &model.between_stream}) {
    *curve = random_curve(random);
  }
  return model;
}

bool runs_on(Algorithm algorithm, const CostModel& model) {
  const bool across = algorithm == Algorithm::leader || algorithm == Algorithm::split_rail;
  return !across || model.clusters.clusters.size() > 1;
}

}  // namespace heteroperf

#include "runners/schedule/lower/tick_scale.hpp"

#include <algorithm>

namespace heteroperf {

TickScale::TickScale(const PipelineGraph& graph) {
  double total = graph.latency;
  for (int s = 0; s < static_cast<int>(graph.segments.size()); ++s) {
    const Segment& segment = graph.segments[s];
    total += 2 * graph.segment_work(s) * std::max(1.0, graph.fused_cost_factor) +
             2 * graph.latency * segment.micro_batches * graph.parts;
  }
  for (const Edge& edge : graph.edges) {
    total += (edge.activation_time + edge.gradient_time) * graph.segments[edge.from].micro_batches *
             graph.parts;
  }
  for (const Interaction& x : graph.interactions) {
    total += (x.cost + graph.latency) * graph.micro_batches;
  }
  if (!std::isfinite(total) || total <= 0) return;
  int exponent = 0;
  std::frexp(total, &exponent);
  scale_exponent_ = 60 - exponent;
  timed_ = true;
}

}  // namespace heteroperf

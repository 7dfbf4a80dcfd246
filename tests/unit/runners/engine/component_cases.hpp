#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/ops.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/graph/node_kinds.hpp"

namespace heteroperf::test {

// Small models of several components, and their training under any plan: what the tests of
// components and of their layouts share.

constexpr std::int64_t step_samples = 12;

/// Images of 17 rows and texts of 6 tokens.
ModelGraph tiny_towers(ContrastOver over = ContrastOver::step);
/// Images take the first 9 places of texts, of which other numbers of tokens are targets.
ModelGraph tiny_captioner();
/// The same with any number of images from none to three, whose rows take 27 places.
ModelGraph tiny_album(double dropout = 0);
/// Two streams of unlike widths with two exchanges.
ModelGraph tiny_streams();

/// Three steps in double precision and an evaluation gave these.
struct ComponentsOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0, accuracy = 0;
  Ops ops;                         ///< all ranks' in a step
  std::vector<Ops> component_ops;  ///< the same by component
  std::vector<std::uint64_t> border_bytes;
};

/// Trains on threads. Expects a step of `step_samples`, and components that add up to the whole.
ComponentsOutcome train_components(const ModelGraph& graph, Plan plan);
ComponentsOutcome train_components(const ModelGraph& graph, const EvenPlanRequest& request);

/// Expects the same numbers up to the order of sums.
void expect_same(const ComponentsOutcome& a, const ComponentsOutcome& b, const std::string& name);

std::string name_of_plan(const EvenPlanRequest& request);

}  // namespace heteroperf::test

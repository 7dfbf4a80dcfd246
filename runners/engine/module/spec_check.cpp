// Finds all the reasons why a training cannot run, before anything is allocated.
#include "runners/engine/module/torch_engine.hpp"

#include <fmt/format.h>

#include <variant>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/probe/peak_rate.hpp"

namespace heteroperf {
namespace {

/// Makes every operator once: an operator knows best what it refuses.
void check_operators(const TrainingSpec& spec, ProblemList& problems) {
  const std::vector<Node>& nodes = spec.graph.nodes();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (std::holds_alternative<Input>(nodes[n].attributes)) continue;
    collect_problems(problems,
                     [&] { make_operator(spec.graph, NodeId(n), scalar_type(spec.precision)); });
  }
}

/// A node that nothing takes would have no gradient.
void check_uses(const TrainingSpec& spec, ProblemList& problems) {
  const std::vector<Node>& nodes = spec.graph.nodes();
  for (std::size_t n = 0; n + 1 < nodes.size(); ++n) {
    if (!spec.graph.consumers(NodeId(n)).empty()) continue;
    problems.add(fmt::format("node '{}' has no way to the loss", nodes[n].name),
                 "nothing takes its output", "Remove it or connect it");
  }
}

std::string describe(const SampleSpec& s) {
  return s.kind == InputKind::images ? fmt::format("{}x{}x{} images", s.channels, s.height, s.width)
                                     : fmt::format("sequences of {} tokens", s.length);
}

/// The model was built for one shape of a sample.
void check_sample(const TrainingSpec& spec, ProblemList& problems) {
  const auto& input = std::get<Input>(spec.graph.node(spec.graph.input()).attributes);
  const SampleSpec wanted{input.kind, input.channels, input.height, input.width, input.length, 0};
  SampleSpec given = spec.data->spec();
  given.classes = 0;
  if (given == wanted) return;
  problems.add(
      fmt::format("the model takes {} but the data are {}", describe(wanted), describe(given)),
      spec.data->description(), "Build the model for the data's shape");
}

/// Targets must name an output of the model, one for each prediction.
void check_classes(const TrainingSpec& spec, ProblemList& problems) {
  const Node& loss = spec.graph.node(spec.graph.loss());
  const Shape& logits = spec.graph.node(loss.inputs.front()).output;
  const SampleSpec& data = spec.data->spec();
  if (data.classes > logits.back()) {
    problems.add(
        fmt::format("the data have {} classes, the model {} outputs", data.classes, logits.back()),
        spec.data->description(), "Build the model with as many classes or more");
  }
  const std::int64_t targets = data.kind == InputKind::images ? 1 : data.length;
  const std::int64_t positions = element_count(logits) / logits.back();
  if (targets != positions) {
    problems.add(
        fmt::format("a sample has {} targets, the model {} predictions", targets, positions));
  }
}

void check_device(const TrainingSpec& spec, ProblemList& problems) {
  if (!spec.gpu || !spec.pacing) return;
  problems.add("an emulated device on a GPU", "emulated devices compute on the host",
               "Use --device cpu or another cluster");
}

/// The plan was made ready for the same graph; the group must have its ranks.
void check_plan_ranks(const TrainingSpec& spec, int ranks, ProblemList& problems) {
  HETEROPERF_EXPECT(spec.ready->staged.stage_of.size() == spec.graph.nodes().size());
  if (spec.plan().ranks() != ranks) {
    problems.add(
        fmt::format("the plan is for {} ranks, the group has {}", spec.plan().ranks(), ranks),
        "every rank has its place in the plan", "Start as many ranks as the plan names");
  }
}

/// Every rank needs a sample of its own.
void check_data(const TrainingSpec& spec, int ranks, ProblemList& problems) {
  check_sample(spec, problems);
  check_classes(spec, problems);
  const std::uint64_t samples = spec.data->size(Split::train);
  if (samples < static_cast<std::uint64_t>(ranks)) {
    problems.add(fmt::format("{} ranks for {} training samples", ranks, samples),
                 spec.data->description(), "Use fewer ranks or more data");
  }
}

}  // namespace

void check_training_spec(const TrainingSpec& spec, int ranks) {
  ProblemList problems;
  check_device(spec, problems);
  spec.graph.loss();
  spec.graph.input();
  check_operators(spec, problems);
  check_uses(spec, problems);
  check_plan_ranks(spec, ranks, problems);
  check_data(spec, ranks, problems);
  problems.throw_if_any();
}

}  // namespace heteroperf

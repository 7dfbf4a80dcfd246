#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {

CheckedJournal::CheckedJournal(const Journal& checked)
    : journal(checked),
      outline(read_run_outline(checked)),
      graphs(checked),
      start(first<StartEvent>()),
      scale(first<ScaleEvent>()),
      workload(first<WorkloadEvent>()) {}

bool CheckedJournal::is_complete() const {
  const auto* stop = journal.last<StopEvent>();
  return stop != nullptr && stop->status == RunStatus::complete;
}

const ModelGraph* CheckedJournal::any_model() const {
  if (!is_search()) return model(std::nullopt);
  const auto trial = first<TrialEvent>();
  return trial ? graphs.find(trial->graph_hash) : nullptr;
}

std::optional<std::string> CheckedJournal::device_class(std::int32_t rank) const {
  if (!outline.plan || !outline.asked || rank < 0) return std::nullopt;
  // Classes are a cluster's; without one a rank is what it is bound to.
  if (outline.plan->of_search || outline.asked->cluster_file.empty()) {
    const auto place = static_cast<std::size_t>(rank);
    return place < outline.homes.size() ? std::optional(outline.homes[place].device) : std::nullopt;
  }
  const OutlinedReplica* replica = outline.plan->replica_of(rank);
  if (replica == nullptr || replica->device_class.empty()) return std::nullopt;
  return replica->device_class;
}

bool is_group(const CheckedJournal& run, std::int32_t group) {
  return run.scale && group >= 0 && group < run.scale->groups;
}

std::uint64_t tokens_of_sample(const ModelGraph& graph) {
  const auto& input = std::get<Input>(graph.node(graph.input()).attributes);
  return input.kind == InputKind::tokens ? static_cast<std::uint64_t>(input.length) : 0;
}

std::uint64_t targets_of_sample(const ModelGraph& graph) {
  const std::uint64_t tokens = tokens_of_sample(graph);
  return tokens > 0 ? tokens : 1;
}

SampleSpec sample_spec_of(const ModelGraph& graph) {
  const auto& input = std::get<Input>(graph.node(graph.input()).attributes);
  const NodeId logits = graph.node(graph.loss()).inputs.front();
  SampleSpec spec;
  spec.kind = input.kind;
  spec.channels = input.channels;
  spec.height = input.height;
  spec.width = input.width;
  spec.length = input.length;
  spec.classes = graph.node(logits).output.back();
  return spec;
}

}  // namespace heteroperf

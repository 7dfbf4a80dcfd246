// CheckedJournal holds what the checks of journal lines share: the journal, the documents of its
// opening lines (read once, as an outline), its model graphs, and the three lines that most rules
// refer to. A run can be killed at any moment, so a journal may end after any line and each of
// these may be absent; a rule that needs an absent one holds nothing. The questions that several
// checks ask (the class of a rank, the samples that a model takes) are answered here, so that all
// checks agree on the answers.
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
  // All trials of a search take the same samples, so the first one stands for all of them.
  if (!is_search()) return model(std::nullopt);
  const auto trial = first<TrialEvent>();
  return trial ? graphs.find(trial->graph_hash) : nullptr;
}

std::optional<std::string> CheckedJournal::device_class(std::int32_t rank) const {
  if (!outline.plan || !outline.asked || rank < 0) return std::nullopt;
  // Only a cluster file defines classes. Without one, and in a search, a rank is of the device that
  // it is bound to.
  if (outline.plan->of_search || outline.asked->cluster_file.empty()) {
    const std::size_t place = rank;
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

/// A language model predicts every token; a classifier gives one answer per image.
std::uint64_t targets_of_sample(const ModelGraph& graph) {
  const std::uint64_t tokens = tokens_of_sample(graph);
  return tokens > 0 ? tokens : 1;
}

SampleSpec sample_spec_of(const ModelGraph& graph) {
  const auto& input = std::get<Input>(graph.node(graph.input()).attributes);
  // The first input of the loss are the logits, whose last dimension has an entry per class, or per
  // token of the vocabulary.
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

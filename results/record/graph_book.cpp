// The model graphs of a journal, and the operations that a pass through them takes. A journal has
// the text of a graph on the first line that names its hash, and later lines name the hash alone.
// No hash is believed: every graph is built from its text, and its own hash is compared. Operations
// are proportional to the samples, so each graph is counted once per kind of pass, for one sample,
// and multiplied.
#include "results/record/graph_book.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

/// Counts beyond this are no honest line's; below it, sums of them fit into the 128 bits of an Ops.
constexpr double most_counted = 0x1p100;

}  // namespace

GraphBook::GraphBook(const Journal& journal) {
  for (std::size_t i = 0; i < journal.lines.size(); ++i) {
    const Event& event = journal.lines[i].event;
    if (const auto* workload = std::get_if<WorkloadEvent>(&event)) {
      workload_hash_ = workload->graph_hash;
      add(workload->graph_hash, workload->graph, i + 1);
    } else if (const auto* trial = std::get_if<TrialEvent>(&event)) {
      trial_hash_[trial->id] = trial->graph_hash;
      add(trial->graph_hash, trial->graph, i + 1);
    }
  }
}

/// A graph that cannot be read is a problem to tell, not an error: the journal's other lines may
/// still be checked.
void GraphBook::add(const std::string& hash, const JsonText& graph, std::size_t line) {
  if (graph.text.empty() || graphs_.contains(hash)) return;
  try {
    ModelGraph model = graph_from_text(graph.text, "the graph");
    if (const std::string actual = model.hash(); actual != hash) {
      problems_.push_back(
          fmt::format("line {}: the graph has the hash {}, not {}", line, actual, hash));
      return;
    }
    graphs_.emplace(hash, std::move(model));
  } catch (const Error& error) {
    problems_.push_back(fmt::format("line {}: {}", line, error.what()));
  }
}

const ModelGraph* GraphBook::find(const std::string& hash) const {
  const auto entry = graphs_.find(hash);
  return entry == graphs_.end() ? nullptr : &entry->second;
}

/// A trial's graph is the one that its latest line names.
const ModelGraph* GraphBook::of(std::optional<std::uint64_t> trial) const {
  if (!trial) return find(workload_hash_);
  const auto hash = trial_hash_.find(*trial);
  return hash == trial_hash_.end() ? nullptr : find(hash->second);
}

std::optional<Ops> GraphBook::count(std::optional<std::uint64_t> trial, std::uint64_t samples,
                                    Pass pass, std::optional<std::uint64_t> images) const {
  const ModelGraph* graph = of(trial);
  if (graph == nullptr) return std::nullopt;
  const auto [entry, added] = counts_.try_emplace({graph, pass, samples, images});
  std::optional<Ops>& ops = entry->second;
  if (!added) return ops;
  // No line may claim so many; those of one sample tell it before anything can overflow.
  if (strict_train_ops(*graph, 1).to_double() * static_cast<double>(samples) > most_counted) {
    return ops;
  }
  BatchExtent batch(samples);
  if (images) {
    const auto range = items_of_samples(*graph);
    if (!range || *images < samples * range->fewest || *images > samples * range->most) return ops;
    batch = extent_with_items(*graph, samples, *images);
  }
  switch (pass) {
    case Pass::strict_train:
      ops = strict_train_ops(*graph, batch);
      break;
    case Pass::strict_evaluation:
      ops = strict_evaluation_ops(*graph, batch);
      break;
    case Pass::padding_train:
      ops = padding_train_ops(*graph, batch);
      break;
    case Pass::aiperf_train:
      ops = count_graph(*graph, batch).conventions[Convention::aiperf].train();
      break;
  }
  return ops;
}

}  // namespace heteroperf

// A search can start from the trials of an earlier one. That run may itself have started from
// another, so the chain is followed back to its beginning and read oldest first: later trials have
// earlier ones as parents. A chain that leads back to a folder already seen is refused. Every trial
// must have the shapes of samples and classes of the new search, and no architecture may come
// twice, which the search itself checks when it restores them.
#include "suite/search/search_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "automl/search.hpp"
#include "automl/trial_json.hpp"
#include "metrics/base/error.hpp"
#include "results/record/run_folder.hpp"
#include "suite/config/run_config_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

HistoryEntry entry_of(const TrialEvent& event, const std::string& graph,
                      const std::vector<TrialOutcome::Milestone>& milestones) {
  Trial trial{.id = event.id,
              .parent = event.parent,
              .morph = event.morph,
              .graph = graph_from_text(graph, "trial graph"),
              .hyper = message_from_json<HyperParameters>(
                  nlohmann::ordered_json::parse(event.hyper_parameters.text), "hyper-parameters"),
              .steps = event.steps,
              .rung = event.rung};
  return {std::move(trial),
          TrialOutcome{.id = event.id,
                       .state = parse_value_name<TrialState>("trial state", to_string(event.state)),
                       .quality = event.quality.value_or(0.0),
                       .loss = event.loss.value_or(std::nan("")),
                       .steps = event.steps,
                       .ops = event.ops,
                       .reason = event.reason,
                       .milestones = milestones}};
}

/// The trials of one run in its order of outcomes. The line that begins a trial has the graph, the
/// line that ends it has the outcome, and its evaluations lie between them.
std::vector<HistoryEntry> history_from_journal(const Journal& journal) {
  std::map<std::string, std::string> graphs;
  std::map<std::uint64_t, std::vector<TrialOutcome::Milestone>> milestones;
  std::vector<HistoryEntry> entries;
  for (const JournalLine& line : journal.lines) {
    const auto* eval = std::get_if<EvalEvent>(&line.event);
    if (eval != nullptr && eval->trial) {
      milestones[*eval->trial].push_back({eval->accuracy, eval->loss});
    }
    const auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial == nullptr) continue;
    // Only the first line with a graph has its text; later ones name the hash.
    if (!trial->graph.text.empty()) graphs[trial->graph_hash] = trial->graph.text;
    if (trial->state == TrialStatus::running) continue;
    entries.push_back(entry_of(*trial, graphs.at(trial->graph_hash), milestones[trial->id]));
  }
  return entries;
}

constexpr const char* searching = "automl-image";

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw UserError(fmt::format("automl.history = '{}' is not usable", folder), why,
                  "Give the run folder of an automl-image run");
}

/// Any failure to read becomes a refusal that names the key and the folder.
template <class Read>
auto read_or_refuse(const std::string& folder, Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    refuse(folder, error.what());
  }
}

/// A suite is pointed to the folder of its search.
RunFiles find_run(const std::string& folder) {
  RunFiles files = read_or_refuse(folder, [&] { return open_run_folder(folder); });
  if (!std::filesystem::exists(files.journal()) && std::filesystem::exists(files.suite())) {
    refuse(folder,
           fmt::format("it is a suite; its search is in {}", (files.folder / searching).string()));
  }
  return files;
}

RunConfig config_of(const Journal& journal, const std::string& folder) {
  const auto* event = journal.last<ConfigEvent>();
  if (event == nullptr) refuse(folder, "its journal ends before the configuration");
  return read_or_refuse(folder, [&] { return run_config_from_json_text(event->config.text); });
}

/// The shapes of a classifier's input and output.
std::string sides_of(const ModelGraph& graph) {
  const NodeId logits = graph.node(graph.loss()).inputs.front();
  return fmt::format("samples {} and outputs {}", to_string(graph.node(graph.input()).output),
                     to_string(graph.node(logits).output));
}

}  // namespace

std::vector<HistoryEntry> read_search_history(const std::string& folder) {
  std::vector<HistoryEntry> history;
  std::vector<std::filesystem::path> visited;
  for (std::string next = folder; !next.empty();) {
    const RunFiles files = find_run(next);
    const Journal journal =
        read_or_refuse(next, [&] { return read_journal(files.journal().string()); });
    visited.push_back(std::filesystem::weakly_canonical(journal.path));
    if (std::count(visited.begin(), visited.end(), visited.back()) > 1) {
      refuse(folder, fmt::format("{} starts from itself", next));
    }
    const RunConfig config = config_of(journal, next);
    if (config.workload != searching) {
      refuse(next, fmt::format("it is a run of {}", config.workload));
    }
    const std::vector<HistoryEntry> older = history_from_journal(journal);
    history.insert(history.begin(), older.begin(), older.end());
    next = config.automl.history;
  }
  return history;
}

void check_search_history(const std::string& folder, const Workload* workload) {
  if (workload == nullptr) {
    find_run(folder);
    return;
  }
  const std::vector<HistoryEntry> history = read_search_history(folder);
  if (history.empty()) refuse(folder, "none of its trials has ended");
  const std::string wanted = sides_of(workload->graph);
  for (const HistoryEntry& entry : history) {
    const std::string sides = sides_of(entry.trial.graph);
    if (sides == wanted) continue;
    refuse(folder, fmt::format("its trial {} has {}, this run {}", entry.trial.id, sides, wanted));
  }
  Search(workload->graph, {}).restore(history);
}

}  // namespace heteroperf

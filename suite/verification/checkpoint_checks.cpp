// Holds every checkpoint of a run against the journal. The journal names each with its step and
// bytes; the folder itself has checksums of its files and the hash of the model graph. A checkpoint
// that passes belongs to this training and can be resumed from. Those that were pruned are no
// failure: only folders that are still there are checked.
#include "suite/verification/run_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/record/run_folder.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr const char* wanted = "a whole checkpoint that the journal names";

/// Adds up the sizes of all files of a checkpoint.
std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

/// Says what is wrong with a checkpoint; empty where all is well.
std::string problem_with(const CheckpointPlace& place, const Journal& journal) {
  const auto saved = journal.all<CheckpointEvent>();
  const auto named = std::find_if(saved.begin(), saved.end(), [&](const CheckpointEvent* event) {
    return event->n == place.step;
  });
  // A kill may lose the journal's last lines, and a rank may be lost between a checkpoint and its
  // line.
  const StopEvent* stop = journal.last<StopEvent>();
  if (named == saved.end() && stop != nullptr && stop->status != RunStatus::failed) {
    return "the journal does not name it";
  }
  try {
    const CheckpointReader reader(place.folder);
    reader.verify();
    if (reader.state().step != place.step) {
      return fmt::format("it is of step {}", reader.state().step);
    }
    const std::uint64_t bytes = bytes_in(place.folder);
    if (named != saved.end() && (*named)->bytes != bytes) {
      return fmt::format("it has {} bytes, not {}", bytes, (*named)->bytes);
    }
    if (const auto* workload = journal.first<WorkloadEvent>()) {
      reader.expect_graph(workload->graph_hash);
    }
  } catch (const UserError& error) {
    return error.what();
  } catch (const fs::filesystem_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::vector<VerifyCheck> check_checkpoints(const fs::path& run) {
  std::vector<VerifyCheck> checks;
  const auto places = list_checkpoints(run);
  if (places.empty()) return checks;
  Journal journal;
  try {
    journal = read_journal(RunFiles{run}.journal().string());
  } catch (const Error&) {
    return checks;  // the check of the journal tells
  }
  for (const CheckpointPlace& place : places) {
    const std::string problem = problem_with(place, journal);
    checks.push_back({place.folder.filename().string(), problem.empty(), wanted,
                      problem.empty() ? wanted : problem, CheckText::words});
  }
  return checks;
}

}  // namespace heteroperf

// The verb `history`: follows one metric over all runs in some folders and shows where its level
// changed, with the commits and the environment on both sides of the change. Runs that measure
// different things are different series. A metric that is no number has no level and is refused.

#include "metrics/base/error.hpp"
#include "results/history/run_history.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

class HistoryVerb : public Verb {
 public:
  HistoryVerb()
      : Verb({"history",
              "runs over time: where the level changed, with commit and environment",
              {"history results/", "history results/ --metric step_time_s --json"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "folders", folders_, "folders of runs");
    command.add_option("--metric", metric_, "what is followed");
  }

  ExitCode run(const GlobalOptions& options) override {
    const RecordMetric& metric = compared_metric(metric_);
    // Metrics without a unit are no numbers.
    if (metric.unit == Unit::none) {
      throw UserError(metric_ + " cannot be followed over time", "it is no number");
    }
    const std::vector<std::filesystem::path> paths(folders_.begin(), folders_.end());
    RunSet runs = find_runs(paths);
    require_some(runs, paths);
    const RunHistory history = run_history(std::move(runs), metric);
    print(history_document(history), options);
    // Folders without a usable run answer nothing, and scripts should notice.
    return history.series.empty() ? ExitCode::invalid_result : ExitCode::ok;
  }

 private:
  std::vector<std::string> folders_;
  std::string metric_ = "throughput";
};

}  // namespace

std::unique_ptr<Verb> make_history_verb() { return std::make_unique<HistoryVerb>(); }

}  // namespace heteroperf

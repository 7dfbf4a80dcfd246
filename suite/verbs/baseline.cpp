// The verb `baseline`: keeps records under a name, as files in a folder that a repository can hold,
// so that a later gate has something to compare with. The verb has four actions, which a table maps
// to functions.
//
// A baseline that silently becomes slower hides the regression that it should show. So `save` first
// judges the new runs against those that the name holds: where a metric is worse, or where that
// cannot be told, the old baseline stays and the exit code says which.
// --force replaces it all the same.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/comparison/run_set.hpp"
#include "results/text/document.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

/// Saved baselines with the runs in them. The runs are read from the files each time: a baseline is
/// nothing but its files. `refusal` is given for a save that was not done.
Document baselines_document(const std::vector<SavedBaseline>& baselines,
                            const BaselineReplacement& refusal = {}) {
  Document document{"heteroperf-baselines"};
  if (refusal.verdict != ReplacementVerdict::allowed) {
    document.data("refused.verdict", "verdict", Unit::none, to_string(refusal.verdict));
    document.data("refused.reasons", "reasons", Unit::none, refusal.reasons);
  }
  std::vector<Datum> list;
  for (const SavedBaseline& baseline : baselines) {
    const RunSet runs = find_runs({baseline.files.begin(), baseline.files.end()});
    std::vector<Datum> used, skipped;
    document.line(baseline.name);
    for (const RunDigest& run : runs.runs) {
      // The *key* of a run is what must agree before two runs are compared.
      std::vector<Member> key;
      for (const KeyField& field : run.key) key.push_back({field.name, field.value});
      used.emplace_back(std::vector<Member>{{"file", run.record.string()},
                                            {"run_id", run.run_id},
                                            {"created_utc", run.created_utc},
                                            {"commit", run.git_commit},
                                            {"key", std::move(key)},
                                            {"ops_per_second", run.number("ops_per_second")}});
      const Datum score = Datum(run.number("ops_per_second"));
      document.line(
          fmt::format("  {}  {} {} {}  {}", run.created_utc, run.workload, run.size,
                      score.absent() ? "no score" : value_text(score, Unit::operations_per_second),
                      run.record.filename().string()));
    }
    // A file that cannot be read is named rather than left out, since a gate would miss it.
    for (const SkippedEntry& file : runs.skipped) {
      skipped.emplace_back(
          std::vector<Member>{{"file", file.path.string()}, {"reason", file.reason}});
      document.line(fmt::format("  NOT USABLE {}: {}", file.path.filename().string(), file.reason));
    }
    list.emplace_back(
        std::vector<Member>{{"name", baseline.name},
                            {"runs", std::move(used)},
                            {"skipped", skipped.empty() ? Datum() : Datum(std::move(skipped))}});
  }
  document.data("baselines", "baselines", Unit::none, std::move(list));
  return document;
}

/// A metric with noise must be worse by this fraction to count.
constexpr double least_loss = 0.02;

/// The exit codes are those of a gate between the new runs and the old ones.
ExitCode exit_code_for(ReplacementVerdict verdict) {
  if (verdict == ReplacementVerdict::regression) return ExitCode::regression;
  return verdict == ReplacementVerdict::inconclusive ? ExitCode::inconclusive : ExitCode::ok;
}

/// Reads the options of the verb and calls its action.
class BaselineVerb : public Verb {
 public:
  BaselineVerb()
      : Verb({"baseline",
              "keep runs as files to compare with: save, list, show, rm",
              {"baseline save main results/latest", "baseline list --dir ci/baselines"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "action", action_, "save, list, show or rm");
    command.add_option("name", name_, "of the baseline");
    command.add_option("runs", runs_, "save: run folders, or folders of them");
    add_typed_option(command, "--dir", folder_, "DIR", "where baselines are kept");
    command.add_flag("--force", force_, "save: also in place of one that may be better");
  }

  ExitCode run(const GlobalOptions& options) override {
    using Action = ExitCode (BaselineVerb::*)(const GlobalOptions& options);
    constexpr Named<Action> actions[] = {{&BaselineVerb::save, "save"},
                                         {&BaselineVerb::list, "list"},
                                         {&BaselineVerb::show, "show"},
                                         {&BaselineVerb::remove, "rm"}};
    return (this->*parse_name(actions, "action", action_))(options);
  }

 private:
  ExitCode save(const GlobalOptions& options) {
    require_name();
    if (runs_.empty()) {
      throw UserError("baseline save takes a name and a run", "no run is given");
    }
    const RunSet runs = require_runs({runs_.begin(), runs_.end()});
    // Checked before the comparison: only whole runs can be compared.
    require_whole(runs);
    if (!force_) {
      const auto judged = judge_replacement(home(), runs, least_loss);
      if (judged.verdict != ReplacementVerdict::allowed) return refuse(judged, options);
    }
    const auto files = save_baseline(folder_, name_, runs.runs);
    if (options.json) {
      print(baselines_document({{name_, files}}), options);
    } else {
      for (const auto& file : files) fmt::print("saved {}\n", file.string());
    }
    return ExitCode::ok;
  }

  /// A partial or failed run is no measure for others.
  static void require_whole(const RunSet& runs) {
    for (const RunDigest& run : runs.runs) {
      if (run.status == "complete") continue;
      throw Error(ErrorKind::invalid_result,
                  {{run.run_id + " cannot be a baseline", "its status is " + run.status, ""}});
    }
  }

  std::filesystem::path home() const { return std::filesystem::path(folder_) / name_; }

  /// Says why the old baseline stays. With --json the document holds the refusal, too.
  ExitCode refuse(const BaselineReplacement& judged, const GlobalOptions& options) const {
    if (options.json) print(baselines_document({saved_baseline(folder_, name_)}, judged), options);
    fmt::print(stderr, "heteroperf: the baseline '{}' stays ({}). --force replaces it.\n", name_,
               fmt::join(judged.reasons, "; "));
    return exit_code_for(judged.verdict);
  }

  ExitCode list(const GlobalOptions& options) {
    print(baselines_document(saved_baselines(folder_)), options);
    return ExitCode::ok;
  }

  ExitCode show(const GlobalOptions& options) {
    require_name();
    print(baselines_document({saved_baseline(folder_, name_)}), options);
    return ExitCode::ok;
  }

  ExitCode remove(const GlobalOptions& options) {
    require_name();
    // Counted first; throws for a name that is not saved.
    const std::size_t files = saved_baseline(folder_, name_).files.size();
    remove_baseline(folder_, name_);
    if (options.json) {
      print(baselines_document(saved_baselines(folder_)), options);
    } else {
      fmt::print("removed {}: {} file{}\n", home().string(), files, files == 1 ? "" : "s");
    }
    return ExitCode::ok;
  }

  void require_name() const {
    if (name_.empty()) throw UserError("baseline " + action_ + " takes a name", "none is given");
  }

  std::string action_, name_, folder_ = usual_baseline_folder;
  std::vector<std::string> runs_;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_baseline_verb() { return std::make_unique<BaselineVerb>(); }

}  // namespace heteroperf

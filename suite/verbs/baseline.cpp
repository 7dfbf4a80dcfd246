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
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/comparison/baseline_replacement.hpp"
#include "results/comparison/baseline_store.hpp"
#include "results/comparison/run_set.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// The runs are read from the files each time: a baseline is nothing but its files.
RunSet runs_of(const SavedBaseline& baseline) {
  return find_runs({baseline.files.begin(), baseline.files.end()});
}

/// The *key* of a run is what must agree before two runs are compared.
Json run_json(const RunDigest& run) {
  Json json{{"file", utf8_text(run.record.string())},
            {"run_id", utf8_text(run.run_id)},
            {"created_utc", utf8_text(run.created_utc)},
            {"commit", utf8_text(run.git_commit)},
            {"key", Json::object()}};
  for (const KeyField& field : run.key) json["key"][field.name] = utf8_text(field.value);
  if (run.ops_per_second) json["ops_per_second"] = *run.ops_per_second;
  return json;
}

/// Saved baselines with the runs in them; files that cannot be read are named with the reason.
std::string baseline_listing_text(const std::vector<SavedBaseline>& baselines) {
  std::string text;
  for (const SavedBaseline& baseline : baselines) {
    const RunSet runs = runs_of(baseline);
    text += baseline.name + '\n';
    for (const RunDigest& run : runs.runs) {
      text += fmt::format(
          "  {}  {} {} {}  {}\n", run.created_utc, run.workload, run.size,
          run.ops_per_second ? with_prefix(*run.ops_per_second, operations_unit) : "no score",
          run.record.filename().string());
    }
    // A file that cannot be read is named rather than left out, since a gate would miss it.
    for (const SkippedEntry& one : runs.skipped) {
      text += fmt::format("  NOT USABLE {}: {}\n", one.path.filename().string(), one.reason);
    }
  }
  return text;
}

/// Writes the document of all actions. `refusal` is given for a save that was not done.
std::string baseline_listing_json_text(const std::vector<SavedBaseline>& baselines,
                                       const BaselineReplacement& refusal = {}) {
  Json json{{"_format", "heteroperf-baselines"}, {"_version", 1}};
  if (refusal.verdict != ReplacementVerdict::allowed) {
    json["refused"] = {{"verdict", to_string(refusal.verdict)}, {"reasons", refusal.reasons}};
  }
  json["baselines"] = Json::array();
  for (const SavedBaseline& baseline : baselines) {
    const RunSet runs = runs_of(baseline);
    Json entry{{"name", utf8_text(baseline.name)}, {"runs", Json::array()}};
    for (const RunDigest& run : runs.runs) entry["runs"].push_back(run_json(run));
    for (const SkippedEntry& one : runs.skipped) {
      entry["skipped"].push_back(
          {{"file", utf8_text(one.path.string())}, {"reason", utf8_text(one.reason)}});
    }
    json["baselines"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
  const char* name() const override { return "baseline"; }
  const char* summary() const override {
    return "keep runs as files to compare with: save, list, show, rm";
  }
  std::vector<std::string> examples() const override {
    return {"baseline save main results/latest", "baseline list --dir ci/baselines"};
  }
  void declare(CLI::App& command) override {
    command.add_option("action", action_, "save, list, show or rm")->required();
    command.add_option("name", name_, "of the baseline");
    command.add_option("runs", runs_, "save: run folders, or folders of them");
    command.add_option("--dir", folder_, "where baselines are kept")->type_name("DIR");
    command.add_flag("--force", force_, "save: also in place of one that may be better");
  }

  ExitCode run(const GlobalOptions& options) override {
    for (const BaselineAction& action : actions) {
      if (action_ == action.name) return (this->*action.run)(options);
    }
    throw unknown_name("action", action_, {"save", "list", "show", "rm"});
  }

 private:
  /// One word after `baseline`.
  struct BaselineAction {
    const char* name;
    ExitCode (BaselineVerb::*run)(const GlobalOptions& options);
  };
  static const BaselineAction actions[4];

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
      fmt::print("{}", baseline_listing_json_text({{name_, files}}));
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
    if (options.json) {
      fmt::print("{}", baseline_listing_json_text({saved_baseline(folder_, name_)}, judged));
    }
    fmt::print(stderr, "heteroperf: the baseline '{}' stays ({}). --force replaces it.\n", name_,
               fmt::join(judged.reasons, "; "));
    return exit_code_for(judged.verdict);
  }

  ExitCode list(const GlobalOptions& options) {
    print(saved_baselines(folder_), options);
    return ExitCode::ok;
  }

  ExitCode show(const GlobalOptions& options) {
    require_name();
    print({saved_baseline(folder_, name_)}, options);
    return ExitCode::ok;
  }

  ExitCode remove(const GlobalOptions& options) {
    require_name();
    // Counted first; throws for a name that is not saved.
    const std::size_t files = saved_baseline(folder_, name_).files.size();
    remove_baseline(folder_, name_);
    if (options.json) {
      fmt::print("{}", baseline_listing_json_text(saved_baselines(folder_)));
    } else {
      fmt::print("removed {}: {} file{}\n", home().string(), files, files == 1 ? "" : "s");
    }
    return ExitCode::ok;
  }

  static void print(const std::vector<SavedBaseline>& baselines, const GlobalOptions& options) {
    fmt::print("{}", options.json ? baseline_listing_json_text(baselines)
                                  : baseline_listing_text(baselines));
  }

  void require_name() const {
    if (name_.empty()) throw UserError("baseline " + action_ + " takes a name", "none is given");
  }

  std::string action_, name_, folder_ = usual_baseline_folder;
  std::vector<std::string> runs_;
  bool force_ = false;
};

const BaselineVerb::BaselineAction BaselineVerb::actions[4] = {{"save", &BaselineVerb::save},
                                                               {"list", &BaselineVerb::list},
                                                               {"show", &BaselineVerb::show},
                                                               {"rm", &BaselineVerb::remove}};

}  // namespace

std::unique_ptr<Verb> make_baseline_verb() { return std::make_unique<BaselineVerb>(); }

}  // namespace heteroperf

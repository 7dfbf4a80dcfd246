// The verb `rank`: orders records by a score. Only runs that are *closed*, which break no rule, get
// a rank; the others are listed below with their reasons. Each workload has a list of its own. A
// record cannot say everything that an order may need: watts come from a meter and availability
// from the vendor, so both are read from tables that name runs by their run_id. Results that others
// published can stand beside, without a rank.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/ranking/ranking.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/verb.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {
namespace {

/// The range of a count: the parser takes "-1" as the largest unsigned number.
const CLI::Range a_count(std::int64_t{0}, std::int64_t{1} << 40);

class RankVerb : public Verb {
 public:
  RankVerb()
      : Verb({"rank",
              "order closed records; the others are listed with their reasons",
              {"rank results/*/ --format html > ranking.html", "rank results --by ops_per_peak"}}) {
  }

  void declare(CLI::App& command) override {
    add_argument(command, "folders", folders_, "run folders, or folders of them");
    add_parsed_option(command, "--by", key_, parse_rank_key,
                      "ops, ops_per_device, ops_per_peak, ops_per_watt, regulated or hsr")
        ->default_str("ops");
    command.add_option("--format", format_, "console, csv, json or html");
    command.add_option("--kind", filter_.kind, "only homogeneous or heterogeneous runs");
    command.add_option("--precision", filter_.precision, "only runs in this precision");
    command.add_option("--workload", filter_.workload, "only runs of this workload");
    command.add_option("--min-devices", filter_.fewest_devices, "only runs on so many or more")
        ->check(a_count);
    command.add_option("--max-devices", filter_.most_devices, "only runs on so many or fewer")
        ->check(a_count);
    command.add_option("--min-nodes", filter_.fewest_nodes, "only runs on so many hosts or more")
        ->check(a_count);
    command.add_option("--max-nodes", filter_.most_nodes, "only runs on so many hosts or fewer")
        ->check(a_count);
    command.add_option("--availability", availability_,
                       "only available, preview or research systems, as --systems says");
    add_typed_option(command, "--systems", systems_, "FILE",
                     "CSV run_id,availability: whether others can have such a system");
    add_typed_option(command, "--power", power_, "FILE",
                     "CSV run_id,watts,level of what a meter measured, level 1 to 3: OPS per watt");
    add_typed_option(command, "--aiperf", published_, "FILE",
                     "a results.txt of AIPerf to list beside, without a rank")
        ->expected(1);
  }

  ExitCode run(const GlobalOptions& options) override {
    using enum DocumentForm;
    const DocumentForm named = parse_form(format_, {console, csv, json, html});
    const DocumentForm form = options.json ? json : named;
    check_filter();
    RankTables tables;
    if (!power_.empty()) tables.power = read_power_table(power_);
    if (!systems_.empty()) tables.availability = read_availability_table(systems_);
    const std::vector<std::filesystem::path> paths(folders_.begin(), folders_.end());
    RunSet runs = find_runs(paths);
    // Folders without any record are a mistake in the command.
    require_some(runs, paths);
    RankingReport ranking = rank_runs(std::move(runs), key_, filter_, tables);
    if (!published_.empty()) ranking.published.push_back(read_aiperf_results(published_));
    fmt::print("{}", ranking_text(ranking, form, style_of(options)));
    // No run that can be ranked is a result that scripts must notice.
    return ranking.lists.empty() ? ExitCode::invalid_result : ExitCode::ok;
  }

 private:
  /// Names in filters are parsed only to refuse unknown ones.
  void check_filter() {
    if (!availability_.empty())
      filter_.availability = parse_value_name<SystemAvailability>("availability", availability_);
    // Without the table every run would be filtered out.
    if (!availability_.empty() && systems_.empty()) {
      throw UserError("--availability " + availability_ + " without --systems",
                      "no record says whether others can have its system",
                      "Give --systems a CSV file run_id,availability.");
    }
    constexpr Named<int> kinds[] = {{0, "homogeneous"}, {1, "heterogeneous"}};
    // A misspelled filter would give an empty ranking without a reason.
    if (!filter_.workload.empty()) find_workload(filter_.workload);
    if (!filter_.precision.empty()) parse_precision(filter_.precision);
    if (!filter_.kind.empty()) parse_name(kinds, "kind", filter_.kind);
    check_range("devices", filter_.fewest_devices, filter_.most_devices);
    check_range("nodes", filter_.fewest_nodes, filter_.most_nodes);
  }

  /// Refuses a range that no run can lie in.
  static void check_range(const char* what, std::uint64_t fewest, std::uint64_t most) {
    if (fewest <= most) return;
    throw UserError(fmt::format("--min-{0} {1} is above --max-{0} {2}", what, fewest, most),
                    "no run is both");
  }

  RankFilter filter_;
  std::string power_, systems_, availability_;
  std::vector<std::string> folders_;
  RankKey key_ = RankKey::ops;
  std::string format_ = "console", published_;
};

}  // namespace

std::unique_ptr<Verb> make_rank_verb() { return std::make_unique<RankVerb>(); }

}  // namespace heteroperf

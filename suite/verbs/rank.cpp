#include <fmt/format.h>

#include "metrics/error.hpp"
#include "metrics/name_table.hpp"
#include "results/ranking/ranking.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

using RankingText = std::string (*)(const RankingReport& ranking);
constexpr Named<RankingText> forms[] = {{ranking_console_text, "console"},
                                        {ranking_csv_text, "csv"},
                                        {ranking_json_text, "json"},
                                        {ranking_html_text, "html"}};

class RankVerb : public Verb {
 public:
  const char* name() const override { return "rank"; }
  const char* summary() const override {
    return "order closed records; the others are listed with their reasons";
  }
  std::vector<std::string> examples() const override {
    return {"rank results/*/ --format html > ranking.html", "rank results --by ops_per_peak"};
  }
  void declare(CLI::App& command) override {
    command.add_option("folders", folders_, "run folders, or folders of them")->required();
    command
        .add_option("--by", by_,
                    "ops, ops_per_device, ops_per_peak, ops_per_watt, regulated or hsr")
        ->type_name("NAME")
        ->capture_default_str();
    command.add_option("--format", format_, "console, csv, json or html")->type_name("NAME");
    command.add_option("--kind", filter_.kind, "only homogeneous or heterogeneous runs")
        ->type_name("NAME");
    command.add_option("--precision", filter_.precision, "only runs in this precision")
        ->type_name("NAME");
    command.add_option("--workload", filter_.workload, "only runs of this workload")
        ->type_name("NAME");
    command.add_option("--min-devices", filter_.fewest_devices, "only runs on so many or more")
        ->type_name("N");
    command.add_option("--max-devices", filter_.most_devices, "only runs on so many or fewer")
        ->type_name("N");
    command
        .add_option("--power", power_,
                    "CSV run_id,watts,level of what a meter measured, level 1 to 3: OPS per watt")
        ->type_name("FILE");
    command
        .add_option("--aiperf", published_,
                    "a results.txt of AIPerf to list beside, without a rank")
        ->type_name("FILE")
        ->expected(1);
  }

  ExitCode run(const GlobalOptions& options) override {
    const RankingText form = parse_name(forms, "format", options.json ? "json" : format_);
    const RankKey key = parse_rank_key(by_);
    check_filter();
    const PowerTable power = power_.empty() ? PowerTable{} : read_power_table(power_);
    RankingReport ranking =
        rank_runs(find_runs({folders_.begin(), folders_.end()}), key, filter_, power);
    if (!published_.empty()) ranking.published.push_back(read_aiperf_results(published_));
    fmt::print("{}", form(ranking));
    return ExitCode::ok;
  }

 private:
  void check_filter() const {
    constexpr Named<int> kinds[] = {{0, "homogeneous"}, {1, "heterogeneous"}};
    if (!filter_.kind.empty()) parse_name(kinds, "kind", filter_.kind);
    if (filter_.fewest_devices <= filter_.most_devices) return;
    throw UserError(fmt::format("--min-devices {} is above --max-devices {}",
                                filter_.fewest_devices, filter_.most_devices),
                    "no run is both");
  }

  RankFilter filter_;
  std::string power_;
  std::vector<std::string> folders_;
  std::string by_ = "ops", format_ = "console", published_;
};

}  // namespace

std::unique_ptr<Verb> make_rank_verb() { return std::make_unique<RankVerb>(); }

}  // namespace heteroperf

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
    command.add_option("--by", by_, "ops, ops_per_device, ops_per_peak, regulated or hsr")
        ->type_name("NAME")
        ->capture_default_str();
    command.add_option("--format", format_, "console, csv, json or html")->type_name("NAME");
    command
        .add_option("--aiperf", published_,
                    "a results.txt of AIPerf to list beside, without a rank")
        ->type_name("FILE")
        ->expected(1);
  }

  ExitCode run(const GlobalOptions& options) override {
    const RankingText form = parse_name(forms, "format", options.json ? "json" : format_);
    RankingReport ranking =
        rank_runs(find_runs({folders_.begin(), folders_.end()}), parse_rank_key(by_));
    if (!published_.empty()) ranking.published.push_back(read_aiperf_results(published_));
    fmt::print("{}", form(ranking));
    return ExitCode::ok;
  }

 private:
  std::vector<std::string> folders_;
  std::string by_ = "ops", format_ = "console", published_;
};

}  // namespace

std::unique_ptr<Verb> make_rank_verb() { return std::make_unique<RankVerb>(); }

}  // namespace heteroperf

#include <fmt/format.h>

#include <filesystem>

#include "metrics/base/error.hpp"
#include "results/canonical_json.hpp"
#include "results/report/run_sections.hpp"
#include "results/report/runs_part.hpp"
#include "results/run_folder.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/verbs/report_timelines.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Runs that get a part of their own at most: the newest.
constexpr std::size_t most_run_parts = 4;

class ReportVerb : public Verb {
 public:
  const char* name() const override { return "report"; }
  const char* summary() const override {
    return "one HTML file of a run, or of several: charts, tables, why a score counts or not";
  }
  std::vector<std::string> examples() const override {
    return {"report results/latest", "report results/a results/b -o scaling.html"};
  }
  void declare(CLI::App& command) override {
    command
        .add_option("runs", paths_,
                    "run folders, finished or not, or folders of them; several give scaling, "
                    "mixed against homogeneous, and trend")
        ->required();
    command
        .add_option("-o,--output", output_,
                    "the file to write (default: report.html in the run's folder, of several runs "
                    "in the folder that holds them)")
        ->type_name("FILE");
    command
        .add_option("--trace", trace_,
                    "trace that `run --trace` wrote with the only run, or `simulate --trace` from "
                    "its plan.json; any other file is refused")
        ->type_name("FILE");
  }

  ExitCode run(const GlobalOptions& options) override {
    const ReportSources sources = report_sources({paths_.begin(), paths_.end()});
    if (!trace_.empty() && sources.folders.size() != 1) {
      throw UserError(fmt::format("--trace is given for {} runs", sources.folders.size()),
                      "a trace is of one run", "Report that run alone.");
    }
    // What the user names may be a pipe or a device, which nothing may take the place of.
    const OutputFile file(output_.empty() ? default_output(sources).string() : output_, "--output");
    const std::string html = report_html(page_of(sources));
    file.save(html);
    if (options.json) {
      fmt::print("{{\"report\":{},\"bytes\":{},\"runs\":{}}}\n", json_quoted(file.path()),
                 html.size(), sources.folders.size());
    } else {
      fmt::print("{}\n", file.path());
    }
    return ExitCode::ok;
  }

 private:
  ReportPage page_of(const ReportSources& sources) const {
    const bool alone = sources.folders.size() == 1 && sources.records.runs.size() <= 1;
    ReportPage page;
    page.title = "HeteroPerf report";
    if (!alone) page.parts.push_back(runs_part(sources));
    const std::size_t total = sources.folders.size();
    for (std::size_t i = total; i-- > (total > most_run_parts ? total - most_run_parts : 0);) {
      try {
        add_run(sources.folders[i], page);
      } catch (const Error& error) {
        if (alone || !trace_.empty()) throw;
        page.parts.front().sections.front().notices.push_back(
            {NoticeLevel::bad, fmt::format("No part for a run: {}", error.what())});
      }
    }
    if (total > most_run_parts) {
      page.parts.front().sections.front().paragraphs.push_back(fmt::format(
          "The newest {} of {} runs have a part of their own below.", most_run_parts, total));
    }
    return page;
  }

  void add_run(const fs::path& folder, ReportPage& page) const {
    ReportRun run = read_report_run(folder);
    add_timelines(run, trace_);
    page.parts.push_back(run_part(run, fmt::format("r{}-", page.parts.size())));
  }

  fs::path default_output(const ReportSources& sources) const {
    constexpr const char* name = "report.html";
    if (sources.folders.size() == 1) return sources.folders.front() / name;
    if (paths_.size() == 1 && fs::is_directory(paths_.front()))
      return fs::path(paths_.front()) / name;
    return name;
  }

  std::vector<std::string> paths_;
  std::string output_, trace_;
};

}  // namespace

std::unique_ptr<Verb> make_report_verb() { return std::make_unique<ReportVerb>(); }

}  // namespace heteroperf

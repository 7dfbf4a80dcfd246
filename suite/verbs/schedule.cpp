// The verb `schedule`: generates or imports a pipeline schedule, checks it, times it on the virtual
// clock and draws it. A schedule lists for each rank which pass of which micro-batch comes next. It
// is *lowered* by adding the messages that it implies; checks and times belong to the lowered form,
// while tables for other tools are written from the original. `all` runs every generator on the
// same request, and `auto` searches an order by itself.
//
// A schedule that is imported has its own ranks and micro-batches, so flags that would set them are
// excluded. Exit code 8 means that a schedule does not keep to --memory-limit.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "metrics/base/clock.hpp"
#include "metrics/base/document_kind.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/formats/gantt.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/search/search.hpp"
#include "suite/program/verb.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/verbs/schedule_flags.hpp"
#include "suite/verbs/schedule_report.hpp"

namespace heteroperf {
namespace {

/// A name decides before the content, so that a broken JSON file is reported as one.
bool is_json(const std::string& path) { return std::filesystem::path(path).extension() == ".json"; }

/// Reads the flags, makes the schedule and prints it in one of its formats.
class ScheduleVerb : public Verb {
 public:
  ScheduleVerb()
      : Verb({"schedule",
              "pipeline schedules: generate or import, check, time and draw",
              {"schedule zb-h1 --ranks 8 --micro-batches 24 --costs 18522,18086,9337,601",
               "schedule --import their_schedule.csv --costs-file costs.json --json",
               "schedule auto --ranks 8 --micro-batches 32 --memory-limit 12 --format svg",
               "schedule auto --graph two_towers.json --json"}}) {}

  void declare(CLI::App& command) override {
    auto* name = command.add_option("name", name_, "a name of `list schedules`, or all");
    auto* import = command.add_option("--import", import_,
                                      "check and time a pipeline table (.csv, as PyTorch writes "
                                      "it) or a schedule (.json)");
    import->excludes(name);
    auto* ranks = command.add_option("--ranks", ranks_, "pipeline ranks");
    auto* batches = command.add_option("--micro-batches", micro_batches_, "of one step");
    auto* graph =
        command.add_option("--graph", graph_,
                           "segments, edges, branches and their ranks (JSON); without ranks "
                           "auto places the branches");
    graph->excludes(import)->excludes(ranks);
    ranks->excludes(import);
    batches->excludes(import);
    command.add_option("--chunks", request_.chunks, "stages per rank")->excludes(import);
    command.add_option("--splits", request_.parts, "parts of a sequence (seq1f1b)")
        ->excludes(import);
    costs_.declare(command);
    network_.declare(command);
    command.add_option("--memory-limit", request_.memory_limit,
                       "activations of a micro-batch that a rank may hold");
    add_parsed_option(command, "--objective", request_.objective,
                      std::bind_front(parse_value_name<Objective>, "objective"),
                      "of auto: makespan (default) or span");
    command.add_option("--seed", request_.seed, "of the search (default 1)");
    command.add_option("--evaluations", request_.most_evaluations, "budget of the search");
    command.add_option("--format", format_, "text, json, csv, csv-comms, svg or trace");
    add_parsed_option(command, "--spelling", spelling_,
                      std::bind_front(parse_value_name<CsvSpelling>, "spelling"),
                      "of gradients in tables: iwb (I, W, B both) or bwbw (B, W, BW both)");
  }

  ExitCode run(const GlobalOptions& options) override {
    check_flags(options);
    // A table of all schedules has no single result to fail by.
    if (name_ == "all") return run_all(options);
    const ScheduleResult result =
        import_.empty() ? generated(find_generator(name_), request()) : evaluated(imported());
    if (options.json) format_ = "json";
    fmt::print("{}", parse_format()(result, spelling_.value_or(CsvSpelling::iwb), options));
    return result.checks.memory_ok ? ExitCode::ok : ExitCode::invalid_result;
  }

 private:
  using Render = std::string (*)(const ScheduleResult&, CsvSpelling, const GlobalOptions&);

  /// Flags that exclude each other are declared so; the rest is checked here.
  void check_flags(const GlobalOptions& options) {
    if (name_.empty() && import_.empty()) {
      throw UserError("no schedule is named", "", "Give a name of `list schedules`, or --import.");
    }
    if (options.json && format_ != "text" && format_ != "json") {
      throw UserError("--json does not go with --format " + format_, "stdout holds one document",
                      "Leave one of them out.");
    }
    if (name_ == "all" && format_ != "text" && format_ != "json") {
      throw UserError("all has no --format " + format_, "it prints a table", "Name one schedule.");
    }
    const double limit = request_.memory_limit.value_or(1);
    if (!(limit > 0) || !std::isfinite(limit)) {
      throw UserError(fmt::format("--memory-limit {:g} is not usable", limit),
                      "it counts activations of a micro-batch", "Give a number above 0.");
    }
    if (request_.most_evaluations < 1) {
      throw UserError(fmt::format("--evaluations {}", request_.most_evaluations), "",
                      "Give 1 or more.");
    }
    // Only to refuse unknown names before a long search.
    parse_format();
  }

  Render parse_format() const {
    static constexpr Named<Render> formats[] = {
        {text, "text"},
        {[](const auto& result, auto, auto&) { return schedule_json_text(result); }, "json"},
        {[](const auto& result, auto spelling, auto&) {
           return write_csv(result.schedule, spelling);
         },
         "csv"},
        {[](const auto& result, auto spelling, auto&) {
           return write_csv(result.lowered, spelling);
         },
         "csv-comms"},
        {[](const auto& result, auto, auto&) { return gantt_svg(result.lowered, result.timeline); },
         "svg"},
        {[](const auto& result, auto, auto&) {
           return trace_text(result.lowered, result.timeline,
                             trace_origin(TraceKind::simulated, ""));
         },
         "trace"}};
    return parse_name(formats, "format", format_);
  }

  static std::string text(const ScheduleResult& result, CsvSpelling, const GlobalOptions& options) {
    GanttStyle style;
    style.width = terminal_width() > 0 ? terminal_width() : 100;
    // A terminal without colours may be without box characters as well.
    style.colour = style.unicode = options.color;
    return gantt_text(result.lowered, result.timeline, style) +
           console_text(schedule_document(result));
  }

  /// The request of the flags; costs are given once the number of ranks is known to be sane.
  ScheduleRequest request() const {
    ScheduleRequest request = request_;
    if (!graph_.empty()) {
      if (costs_.given())
        throw UserError("--costs does not go with --graph", "it has its own costs");
      request.graph = read_pipeline_graph_file(graph_);
      if (micro_batches_) {
        request.graph->micro_batches = *micro_batches_;
        // Segments follow the new number unless they are given their own again.
        for (Segment& segment : request.graph->segments) segment.micro_batches = -1;
        normalise(*request.graph);
      }
      request.ranks = request.graph->ranks;
      request.micro_batches = request.graph->micro_batches;
      return request;
    }
    if (!ranks_ || !micro_batches_) {
      throw UserError("--ranks and --micro-batches are missing", "a schedule needs both",
                      "For example --ranks 4 --micro-batches 8.");
    }
    // Checked before costs are made for so many ranks.
    if (*ranks_ < 1 || *ranks_ > most_ranks) {
      throw UserError(fmt::format("--ranks {} is out of range", *ranks_), "",
                      fmt::format("Give 1 to {}.", most_ranks));
    }
    request.ranks = *ranks_;
    request.micro_batches = *micro_batches_;
    request.costs = costs_.costs(request.ranks);
    return request;
  }

  ScheduleResult evaluated(Schedule schedule) const {
    return evaluate_schedule(std::move(schedule), network_.options(), request_.memory_limit);
  }

  /// Makes a schedule; a search also reports its effort.
  ScheduleResult generated(const Generator& generator, const ScheduleRequest& request) const {
    if (generator.name != std::string("auto")) return evaluated(generator.make(request));
    const Stopwatch stopwatch;
    SearchResult search_result = search_auto(request);
    ScheduleResult result = evaluated(std::move(search_result.schedule));
    if (!result.checks.memory_ok) {
      throw UserError(fmt::format("auto found no order within --memory-limit {:g}",
                                  request.memory_limit.value_or(0)),
                      "every order tried holds more on some rank", "Raise the limit.");
    }
    result.search = {search_result.evaluations, stopwatch.elapsed_s(), search_result.proven,
                     search_result.out_of_time};
    result.placements = std::move(search_result.placements);
    return result;
  }

  /// Reads a schedule or a table. A table has no costs of its own, so the flags give them.
  Schedule imported() {
    const std::string text = read_text_file(import_, "table");
    if (is_json(import_) || !stated_format(text).empty()) {
      Schedule schedule = read_schedule_file(import_);
      if (costs_.given()) set_costs(schedule.graph, costs_.costs(schedule.graph.ranks));
      return schedule;
    }
    // A binary file is told as such, not as a table with strange cells.
    if (text.find('\0') != std::string::npos) {
      throw UserError(import_ + " is no pipeline table", "it is no text");
    }
    CsvSchedule table = read_csv(text, spelling_, {});
    // A table is written back in the spelling that it came in.
    if (!spelling_) spelling_ = table.spelling;
    set_costs(table.schedule.graph, costs_.costs(table.schedule.graph.ranks));
    return std::move(table.schedule);
  }

  /// Runs every generator on one request and compares their times in one table.
  ExitCode run_all(const GlobalOptions& options) const {
    const ScheduleRequest asked = request();
    std::vector<ScheduleResult> results;
    std::vector<SkippedSchedule> skipped;
    for (const Generator& generator : generators()) {
      try {
        ScheduleResult result = generated(generator, asked);
        if (!result.checks.memory_ok) {
          // A generator that cannot serve the request is listed with its reason.
          skipped.push_back({generator.name, "does not fit the memory limit"});
          continue;
        }
        results.push_back(std::move(result));
      } catch (const UserError& error) {
        skipped.push_back({generator.name, error.problems().front().text()});
      }
    }
    GlobalOptions shown = options;
    shown.json = options.json || format_ == "json";
    print(schedules_document(results, skipped), shown);
    return ExitCode::ok;
  }

  std::string name_, import_, graph_, format_ = "text";
  std::optional<CsvSpelling> spelling_;
  std::optional<int> ranks_, micro_batches_;
  ScheduleRequest request_;
  CostFlags costs_;
  NetworkFlags network_;
};

}  // namespace

std::unique_ptr<Verb> make_schedule_verb() { return std::make_unique<ScheduleVerb>(); }

}  // namespace heteroperf

// The verb `comm`: measures collectives in the way of nccl-tests. All ranks run a session together
// (probe/comm_session.cpp); rank 0 prints a row as soon as a size is measured, or one document at
// the end, and rewrites the file of --out after every size.
//
// Output must survive the death of ranks. In a world of processes every process collects the
// results, because the rank that speaks for a broken world may be another than rank 0. Threads
// share one process and one output, so there rank 0 alone collects.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "metrics/base/clock.hpp"
#include "results/text/number_text.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/probe/comm_session.hpp"
#include "suite/program/verb.hpp"
#include "suite/ranks/progress.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

/// The output of one process: rows as they come, or one document. Rank 0 speaks; every process
/// holds the results, for rank 0 may be the one that dies.
class CommOutput {
 public:
  CommOutput(const CommRequest& request, OutputFile file, bool csv, bool json)
      : file_(std::move(file)), csv_(csv), json_(json) {
    report_.request = request;
  }

  /// Called once the communicator stands, before the first size.
  void begin(CommReport report, bool speaks) {
    report_ = std::move(report);
    speaks_ = speaks;
    if (!json_ && !csv_ && speaks_) show(comm_heading(report_));
  }
  void add(CommResult result) {
    report_.results.push_back(std::move(result));
    if (!speaks_) return;
    if (!json_) show(comm_row(report_, csv_ ? CommForm::csv : CommForm::table));
    write_file();
  }
  void add(const PaceReport& pace) { report_.pace = pace; }
  /// Keeps what was measured and says what ended the session.
  void fail(const Error& error) {
    report_.failure = error;
    if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
      // A rank that was lost is named; any other error belongs to no rank.
      report_.failed_ranks = {peer->failure().rank.value()};
    }
    write_file();
    show_document();
  }
  /// Throws SystemError, with nothing shown yet, when the file could not be written.
  void complete() {
    report_.ended = true;
    write_file();
    if (!file_written_) {
      throw SystemError("cannot write " + file_.path(), "the disk may be full",
                        "Give --out another place.");
    }
    show_document();
  }
  const CommReport& report() const { return report_; }

 private:
  static void show(const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  void write_file() {
    if (file_.given()) file_written_ = file_.write(comm_json_text(report_));
  }
  void show_document() const {
    if (json_) show(comm_json_text(report_));
  }

  OutputFile file_;
  bool file_written_ = true, speaks_ = true;
  bool csv_;
  bool json_;
  CommReport report_;
};

/// Reads the flags, runs the session and turns its verdict into an exit code.
class CommVerb : public Verb {
 public:
  CommVerb()
      : Verb({"comm",
              "measure and check collectives between ranks, as nccl-tests does",
              {"comm allreduce -b 8 -e 128M -f 2 --ranks 4 --check",
               "comm allreduce --ranks 4 --transport mpi --clusters a,a,b,b --wire bf16 --json"},
              VerbRanks::all}) {}

  void declare(CLI::App& command) override {
    flags_.declare(command);
    command.footer(command.get_footer() + "\n" + config_keys_text("comm."));
  }

  ExitCode run(const GlobalOptions& options) override {
    const CommRequest request = flags_.request(options.sets);
    CommOutput output(request, OutputFile(flags_.out()), flags_.csv(), options.json);
    RankWork work;
    work.body = [&](World& world) { return measure(request, world, output, options); };
    work.keep = [&](const Error& error) { output.fail(error); };
    return run_session(request.session, work);
  }

 private:
  /// The part of every rank. Threads share `output`; of processes each has its own.
  static ExitCode measure(const CommRequest& request, World& world, CommOutput& output,
                          const GlobalOptions& options) {
    const bool first = world.communicator->rank() == RankId(0);
    std::optional<ProgressLine> progress;
    if (first) {
      progress.emplace(options);
      progress->say(fmt::format("{} ranks: finding clusters and the links' costs, then {}",
                                world.communicator->size(), plural(request.sizes.size(), "size")));
    }
    // Threads share the output, so only the first of them fills it.
    const bool holds_results = first || world.communicator->transport() != "threads";
    CommSession session(request, world);
    if (holds_results) output.begin(session.heading(), first);
    const Stopwatch stopwatch;
    std::size_t done = 0;
    for (const Bytes size : request.sizes) {
      // Collective, so all ranks stop before the same size.
      stop_if_asked(*world.communicator);
      // Rows that come as they are measured tell as much.
      if (progress && options.json) {
        progress->update({"measure",
                          static_cast<double>(done++) / static_cast<double>(request.sizes.size()),
                          stopwatch.elapsed_s()});
      }
      CommResult result = session.measure(size);
      if (holds_results) output.add(std::move(result));
    }
    if (progress) progress->finish();
    const auto pace = session.pace();
    if (!first) return ExitCode::ok;
    if (pace) output.add(*pace);
    output.complete();
    warn(output.report());
    return exit_code_for(output.report());
  }

  /// Warns of what a reader of the numbers should know: links that were not kept to, and a wire
  /// format that was never used.
  static void warn(const CommReport& report) {
    const double late = report.pace ? static_cast<double>(report.pace->late_waits) /
                                          static_cast<double>(report.pace->waits)
                                    : 0;
    // Without any wait there is no share, which is not above the limit either.
    if (late > 0.01) {
      print_warnings(
          {fmt::format("{:.0f} % of the waits ended later than modelled, by up to "
                       "{}: the machine is too slow for these links",
                       late * 100, seconds_text(report.pace->greatest_lag.value()))});
    }
    const bool compressed = report.request.wire != WireFormat::fp32;
    const auto plain =
        std::count_if(report.results.begin(), report.results.end(),
                      [](const CommResult& result) { return result.wire == WireFormat::fp32; });
    if (compressed && plain > 0) {
      print_warnings(
          {fmt::format("at {} of {} sizes nothing travels as {}: there is one "
                       "cluster, or an algorithm without bridges is taken",
                       plain, report.results.size(), to_string(report.request.wire))});
    }
  }

  /// Tells the verdict on stderr, so that it is seen beside the table.
  static ExitCode exit_code_for(const CommReport& report) {
    const CommReport::Verdict verdict = report.verdict();
    if (verdict.reason.empty()) return ExitCode::ok;
    fmt::print(stderr, "heteroperf: {}\n", verdict.reason);
    // Wrong results weigh more than slow ones.
    return report.wrong_elements() > 0 ? ExitCode::verification : ExitCode::regression;
  }

  CommFlags flags_;
};

}  // namespace

std::unique_ptr<Verb> make_comm_verb() { return std::make_unique<CommVerb>(); }

}  // namespace heteroperf

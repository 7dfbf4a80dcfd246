// The verb `ops`: which operators a device has, whether they compute what they must, and how fast
// they are. LibTorch's libraries take one instruction set per process, so of several devices each
// is looked at by a process of its own, one after another, and this one joins what they say.
#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "metrics/base/cache_folder.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/cluster/shared_module.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/probe/operator_report.hpp"
#include "suite/program/shell_command.hpp"
#include "suite/program/signals.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class OpsVerb : public Verb {
 public:
  OpsVerb()
      : Verb({"ops",
              "operators of devices: which there are, whether they are right, how fast they are",
              {"ops", "ops --check --device cuda,cpu --junit ops.xml",
               "ops --score --device cpu:base,cpu:avx2,cpu --record results/ops-1"}}) {}

  void declare(CLI::App& command) override {
    command.add_option("workloads", request_.workloads, "llm, image (default: both)");
    command.add_flag("--check", request_.check,
                     "hold every operator against the float64 reference, forward and backward; "
                     "exit code 9 where one is wrong");
    command.add_flag("--quick", request_.quick, "a check of fewer cases");
    command.add_flag("--score", request_.score,
                     "performance portability: the devices' efficiencies and their harmonic mean");
    command
        .add_option("--device", request_.devices,
                    "devices, one or a list: " + joined_names() + " (default: cpu)")
        ->delimiter(',');
    command
        .add_option("--precision", request_.precisions,
                    "fp32, bf16 or fp64, one or a list (default: fp32,bf16; of a score fp32)")
        ->delimiter(',');
    command.add_option("--size", request_.size, "of llm (default: micro)");
    command.add_option("--model", request_.model, "of image (default: resnet18)");
    command.add_option("--threads", request_.threads, "(default: one per usable core)");
    command.add_option("--seed", request_.seed, "of the operands of a check (default: 1)")
        ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
    add_typed_option(command, "--junit", junit_, "FILE", "write JUnit XML");
    add_typed_option(command, "-o,--out", out_, "FILE",
                     "write the times as an efficiency matrix, for `plan --profile`");
    add_typed_option(command, "--record", record_, "DIR",
                     "new folder for a record of the times, for `compare` and `gate`");
  }

  ExitCode run(const GlobalOptions& options) override {
    ProblemList problems;
    request_.validate(problems);
    check_files(problems);
    OutputFile junit, out;
    collect_problems(problems, [&] { junit = OutputFile(junit_, "--junit"); });
    collect_problems(problems, [&] { out = OutputFile(out_); });
    problems.throw_if_any();
    const RunName name = make_run_name("ops");
    if (!record_.empty()) create_run_folder(record_, "--record");
    install_stop_signals([] {});
    OperatorReport report;
    try {
      report = look_at_all(options);
    } catch (...) {
      // Nothing is left of a record that did not come about.
      std::error_code ignored;
      if (!record_.empty()) fs::remove(record_, ignored);
      throw;
    }
    report.name = name;
    const Document document = operators_document(request_, report);
    if (!record_.empty()) {
      write_file_atomically(RunFiles{record_}.record(), json_text(document));
    }
    if (junit.given()) junit.save(operators_junit(report));
    if (out.given()) out.save(efficiency_matrix_text(report.matrix));
    print(document, options);
    return report.is_right() ? ExitCode::ok : ExitCode::verification;
  }

 private:
  OperatorReport look_at_all(const GlobalOptions& options) const {
    OperatorReport report;
    for (const std::string& device : request_.devices) {
      if (request_.devices.size() == 1) {
        return report_operators(request_, read_device(device), [&](const std::string& what) {
          if (options.verbosity != Verbosity::quiet) fmt::print(stderr, "heteroperf: {}\n", what);
        });
      }
      report_elsewhere(device, options, report);
    }
    return report;
  }

  void check_files(ProblemList& problems) const {
    for (const auto& [given, flag] :
         {std::pair(!out_.empty(), "--out"), {!record_.empty(), "--record"}}) {
      if (!request_.check || !given) continue;
      problems.add(fmt::format("{} with --check", flag), "a check has no times",
                   "Leave one of both out");
    }
    if (junit_.empty() || request_.check) return;
    problems.add("--junit without --check", "only a check can fail", "Add --check");
  }

  static std::string joined_names() { return fmt::format("{}", fmt::join(device_names(), ", ")); }

  /// Looks at one device by a process of its own.
  void report_elsewhere(const std::string& name, const GlobalOptions& options,
                        OperatorReport& report) const {
    constexpr double deadline_s = 1800;
    const PrivateFolder place("ops-");
    const fs::path matrix = place.path() / "matrix.json";
    OperatorsRequest alone = request_;
    alone.devices = {name};
    std::string words = alone.words() + " --json --no-color";
    if (options.verbosity == Verbosity::quiet) words += " -q";
    if (!request_.check) words += " --out " + shell_quoted(matrix.string());
    // Files are written by this process alone.
    const char* const no_files = "unset HETEROPERF_OPS_RECORD HETEROPERF_OPS_JUNIT; exec ";
    ShellCommand command;
    command.line = no_files + shell_quoted(program_path().string()) + words;
    command.out = place.path() / "out";
    command.err = place.path() / "err";
    command.deadline_s = deadline_s;
    command.orphan = OrphanFate::ends;
    if (options.verbosity != Verbosity::quiet) fmt::print(stderr, "heteroperf: {}\n", name);
    const CommandOutcome outcome = run_shell_command(command);
    if (outcome.end == CommandEnd::interrupted) {
      throw Error(ErrorKind::interrupted, {{"the operators' measurement was stopped", "", ""}});
    }
    const bool told = outcome.end == CommandEnd::exited &&
                      (outcome.exit_code == static_cast<int>(ExitCode::ok) ||
                       outcome.exit_code == static_cast<int>(ExitCode::verification));
    if (!told) {
      const bool broke = outcome.end == CommandEnd::exited &&
                         outcome.exit_code == static_cast<int>(ExitCode::run_failed);
      throw SystemError(fmt::format("{} could not be looked at", name),
                        last_words(command.err, outcome),
                        fmt::format("Try `heteroperf ops --device {}`", name),
                        outcome.end == CommandEnd::timed_out ? ErrorKind::timeout
                        : broke                              ? ErrorKind::run_failed
                                                             : ErrorKind::environment);
    }
    add_operators(read_regular_file(command.out), name, report);
    if (!request_.check) report.matrix.merge(read_efficiency_matrix(matrix));
  }

  OperatorsRequest request_;
  std::string junit_, out_, record_;
};

}  // namespace

std::unique_ptr<Verb> make_ops_verb() { return std::make_unique<OpsVerb>(); }

}  // namespace heteroperf

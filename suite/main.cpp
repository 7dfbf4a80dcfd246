#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "runners/comm/world.hpp"
#include "suite/error_report_json.hpp"
#include "suite/verb.hpp"
#include "suite/verbs/verbs.hpp"
#include "suite/version.hpp"

namespace heteroperf {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 regression, 4 inconclusive,\n"
    "5 environment (nothing measured), 6 run failed, 7 timeout, 8 result invalid by rules,\n"
    "9 verification failed, 10 not comparable, 130 interrupted (partial record kept).\n";

void declare_global(CLI::App& command, GlobalOptions& options, int& quiet, int& verbose) {
  command.add_flag("--json", options.json, "one JSON document on stdout, nothing else");
  command.add_option("--set", options.sets, "change one configuration key: path.to.key=value")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
  command.add_flag("--no-color{false},--color{true}", options.color, "plain or coloured text");
  command.add_flag("-q,--quiet", quiet, "no progress");
  command.add_flag("-v,--verbose", verbose, "more detail on stderr");
}

std::string examples_text(const Verb& verb) {
  std::string text = "Examples:\n";
  for (const std::string& example : verb.examples()) text += "  heteroperf " + example + "\n";
  return text;
}

bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

ExitCode report(const Error& error, bool json) {
  const ExitCode code = exit_code_of(error.kind());
  if (json) std::cout << error_report_text(error) << std::flush;
  for (const Problem& problem : error.problems()) {
    fmt::print(stderr, "heteroperf: {}\n", problem.text());
  }
  return code;
}

// CLI11 words its errors well enough; it only lacks the nearest valid name.
ExitCode report(const CLI::ParseError& error, bool json) {
  return report(UserError(error.what(), "", "See `heteroperf --help`"), json);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"HeteroPerf: how many useful AI operations per second does this machine deliver?"};
  app.name("heteroperf");
  app.set_version_flag("--version", std::string("heteroperf ") + version_text());
  app.require_subcommand(1);
  app.footer(std::string("`heteroperf VERB --help` shows a verb's options and examples.\n") +
             exit_codes);

  GlobalOptions options;
  // mpirun gives its first rank a terminal whatever its own output is.
  options.color =
      std::getenv("NO_COLOR") == nullptr && isatty(STDOUT_FILENO) == 1 && !detect_launcher();
  int quiet = 0, verbose = 0;
  const auto verbs = all_verbs();
  std::vector<std::string> names;
  for (const auto& verb : verbs) {
    CLI::App* command = app.add_subcommand(verb->name(), verb->summary());
    command->footer(examples_text(*verb));
    declare_global(*command, options, quiet, verbose);
    verb->declare(*command);
    names.emplace_back(verb->name());
  }

  const bool json = wants_json(argc, argv);
  try {
    if (argc > 1 && argv[1][0] != '-' &&
        std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      const std::string nearest = nearest_name(argv[1], names);
      throw UserError(fmt::format("unknown verb '{}'", argv[1]),
                      fmt::format("one of {}", fmt::join(names, " ")),
                      nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
    }
    app.parse(argc, argv);
    if (verbose > 0) options.verbosity = Verbosity::verbose;
    if (quiet > 0) options.verbosity = Verbosity::quiet;
    const std::string chosen = app.get_subcommands().front()->get_name();
    for (const auto& verb : verbs) {
      if (chosen == verb->name()) return static_cast<int>(verb->run(options));
    }
    return static_cast<int>(ExitCode::usage);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    std::cout << (chosen.empty() ? app.help() : chosen.front()->help());
    return 0;
  } catch (const CLI::CallForVersion&) {
    std::cout << "heteroperf " << version_text() << "\n";
    return 0;
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(report(error, json));
  } catch (const Error& error) {
    return static_cast<int>(report(error, json));
  } catch (const std::exception& error) {
    return static_cast<int>(
        report(Error(ErrorKind::internal, {{"unexpected failure", error.what(), ""}}), json));
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  // A file that may not grow is an error to report, not a reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  heteroperf::keep_argv(argc, argv);
  return heteroperf::parse_and_run(argc, argv);
}

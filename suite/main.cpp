// The entry of the program: it declares all verbs, reads the command line, runs the one verb that
// was named, and turns every error into a message and an exit code. Verbs throw; nothing else in
// the program prints an error of its own.
//
// Under a launcher the same command line runs on every rank. A verb that works on all ranks runs on
// all; any other runs everywhere but is heard from rank 0 alone, since the rest have their output
// closed. Only the verb that runs reads its variables from the environment.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "metrics/base/clock.hpp"
#include "results/comparison/journal_memory.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/comm/world.hpp"
#include "suite/program/command_line.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"
#include "suite/program/version.hpp"

namespace heteroperf {
namespace {

/// All of them in lines of a terminal's width.
std::string exit_codes_text() {
  constexpr std::size_t widest = 100;
  std::string text, line = "Exit codes:";
  for (const ExitCodeMeaning& row : exit_code_meanings()) {
    const std::string word = fmt::format(" {} {},", static_cast<int>(row.code), row.meaning);
    if (line.size() + word.size() > widest) {
      text += line + '\n';
      line = word.substr(1);
    } else {
      line += word;
    }
  }
  line.back() = '.';
  return text + line + '\n';
}

/// Flags as they were given.
struct GlobalFlags {
  bool colour = false, plain = false, quiet = false, verbose = false;
};

/// The group of the options that all verbs share; --help prints it last.
constexpr const char* common_options = "Common options";

/// Declares the options that all verbs share.
void declare_global(CLI::App& command, const Verb& verb, GlobalOptions& options,
                    GlobalFlags& flags) {
  command.option_defaults()->group(common_options);
  command.add_flag("--json", options.json, "one JSON document on stdout, nothing else");
  CLI::Option* const set =
      command.add_option("--set", options.sets, "change one configuration key: path.to.key=value")
          ->type_name("KEY=VALUE")
          ->take_all()
          ->allow_extra_args(false);
  if (verb.facts.ranks != VerbRanks::all) set->group("");  // not in --help; refused with its reason
  command.add_flag("--no-color", flags.plain, "plain text, as with NO_COLOR");
  command.add_flag("--color", flags.colour, "coloured text even without a terminal");
  command.add_flag("-q,--quiet", flags.quiet, "no progress");
  command.add_flag(
      "-v,--verbose", flags.verbose,
      "on stderr: options taken from the environment, the time it took, its exit code");
  // The library prints groups in the order of their first options: --help is made anew, behind the
  // verb's own ones.
  command.set_help_flag("-h,--help", "print this help and exit")->group(common_options);
}

/// The flag that says less wins: --no-color over --color, --quiet over --verbose.
void apply(const GlobalFlags& flags, GlobalOptions& options) {
  if (flags.colour) options.color = true;
  if (flags.plain) options.color = false;
  if (flags.verbose) options.verbosity = Verbosity::verbose;
  if (flags.quiet) options.verbosity = Verbosity::quiet;
}

std::string examples_text(const Verb& verb) {
  std::string text = "Examples:\n";
  for (const std::string& example : verb.facts.examples) text += "  heteroperf " + example + "\n";
  return text;
}

/// Looked up before the command line is parsed, since errors of parsing must be JSON, too.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return environment_flag("HETEROPERF_JSON");
}

/// Who speaks for this process: under a launcher every rank runs the same command, and rank 0
/// alone answers. Exit codes are every rank's.
struct Voice {
  std::optional<LaunchedRank> launched;
  bool json = false;

  bool first() const { return !launched || launched->rank == 0; }
};

/// Closes the output of this process: an answer that rank 0 gives alone may not be heard from all
/// ranks.
void keep_silent() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

/// mpirun ends every rank when one has failed; a silent one that is faster than rank 0 would take
/// the message away. Where rank 0 fails as well, this rarely waits to the end.
void let_first_rank_speak(const Voice& voice) {
  if (!voice.first()) std::this_thread::sleep_for(std::chrono::seconds(2));
}

ExitCode report(const Error& error, const Voice& voice) {
  const ExitCode code = exit_code_of(error.kind());
  // An error of usage is the same on all ranks; others, such as a missing library, are told with
  // the rank's number.
  if (!voice.first() && error.kind() == ErrorKind::usage) return code;
  if (voice.json && voice.first()) std::cout << error_report_text(error) << std::flush;
  const std::string who = voice.first() ? "" : fmt::format("rank {}: ", voice.launched->rank);
  for (const Problem& problem : error.problems()) {
    // Files and commands of others speak here too: nothing of theirs steers the terminal.
    fmt::print(stderr, "heteroperf: {}{}\n", who, utf8_text(problem.text()));
  }
  return code;
}

/// Refuses --set on a verb without configuration, where it would change nothing.
void require_no_sets(const Verb& verb, const GlobalOptions& options) {
  if (verb.facts.ranks == VerbRanks::all || options.sets.empty()) return;
  throw UserError(fmt::format("--set {} changes nothing", options.sets.front()),
                  fmt::format("{} has no configuration keys", verb.facts.name),
                  "Leave it out; run, comm and probe have them.");
}

/// Without a verb the program takes only options that print and end.
void require_program_option(const std::string& word, const std::vector<std::string>& words,
                            const CLI::App& app) {
  if (app.get_option_no_throw(word) != nullptr) return;
  for (const CLI::App* command : app.get_subcommands({})) {
    const bool is_named = std::find(words.begin(), words.end(), command->get_name()) != words.end();
    if (!is_named || command->get_option_no_throw(word) == nullptr) continue;
    throw UserError(fmt::format("{} stands before the verb", word), "options follow their verb",
                    fmt::format("Try `heteroperf {} {}`.", command->get_name(), word));
  }
  throw UserError({unknown_option(word, app)});
}

void require_known_verb(const std::string& name, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw UserError(fmt::format("unknown verb '{}'", name),
                  fmt::format("one of {}", fmt::join(names, " ")), suggest_name(name, names));
}

/// Refuses empty text for a number, which the library takes as none: it is most likely a variable
/// of a script that was not set.
void require_no_empty_number(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_number =
        type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
    if (!is_number || std::ranges::count(option->results(), "") == 0) continue;
    throw UserError(fmt::format("{} is empty text", option->get_name()), "it takes a number",
                    "Leave it out, or give a number.");
  }
}

/// Warns of variables that no option reads; with --verbose it names those that one did.
void note_environment(const CLI::App& app, const CLI::App& command, const GlobalOptions& options) {
  for (const std::string& warning : environment_warnings(app)) {
    fmt::print(stderr, "heteroperf: warning: {}\n", warning);
  }
  if (options.verbosity != Verbosity::verbose) return;
  for (const std::string& setting : environment_of(command)) {
    fmt::print(stderr, "heteroperf: {} from the environment\n", setting);
  }
}

/// Flushes what was printed, which may still be in a buffer when the disk is full.
bool output_arrived() {
  std::cout.flush();
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return true;
  fmt::print(stderr, "heteroperf: cannot write to standard output ({})\n",
             errno == 0 ? "an earlier write failed" : std::strerror(errno));
  return false;
}

/// A path that cannot be used is the user's mistake, unless the disk is full or broken.
Error refused_path(const std::filesystem::filesystem_error& error) {
  const std::string path = error.path1().empty() ? "a file" : error.path1().string();
  const std::string problem = "cannot use " + path, why = error.code().message();
  for (const std::errc disk : {std::errc::no_space_on_device, std::errc::io_error}) {
    if (error.code() == disk) return SystemError(problem, why, "Choose another disk.");
  }
  return UserError(problem, why, "Check its name, and who may read or write it.");
}

/// The program with all its verbs.
class Program {
 public:
  explicit Program(Voice& voice) : voice_(voice) {
    app_.name("heteroperf");
    app_.set_version_flag("--version", std::string("heteroperf ") + version_text());
    app_.require_subcommand(1);
    app_.footer("`heteroperf VERB --help` shows a verb's options and examples.\n" + topics_text() +
                exit_codes_text());
    // Verbs that are added later take over the form of the pages.
    use_help_pages(app_);
    for (const auto& verb : verbs_) {
      CLI::App* command = app_.add_subcommand(verb->facts.name, verb->facts.summary);
      command->footer(examples_text(*verb) + environment_text(*command));
      command->option_defaults()->always_capture_default();
      verb->declare(*command);
      declare_global(*command, *verb, options_, flags_);
      names_.emplace_back(verb->facts.name);
    }
    // Findings of verify are kept for one exact program. A tree with changes of its own has no name
    // that says how it judges.
    const std::string commit = git_commit();
    if (commit != "unknown" && !commit.ends_with("-dirty")) {
      remember_findings(fmt::format("heteroperf {} {}", version_text(), commit));
    }
  }

  int run(int argc, char** argv) {
    try {
      Verb& verb = parse(argc, argv);
      require_no_sets(verb, options_);
      const Stopwatch stopwatch;
      const int code = static_cast<int>(verb.run(options_));
      if (options_.verbosity == Verbosity::verbose && voice_.first()) {
        fmt::print(stderr, "heteroperf: {} took {:.3f} s, exit code {}\n", verb.facts.name,
                   stopwatch.elapsed_s(), code);
      }
      return code;
    } catch (const CLI::CallForHelp&) {
      if (voice_.first()) std::cout << app_.help();
      return 0;
    } catch (const CLI::CallForVersion&) {
      if (voice_.first()) std::cout << "heteroperf " << version_text() << "\n";
      return 0;
    } catch (const CLI::ParseError& error) {
      return static_cast<int>(report(UserError(parse_problems(error, *chosen_)), voice_));
    } catch (const Error& error) {
      return static_cast<int>(report(error, voice_));
    } catch (const std::filesystem::filesystem_error& error) {
      return static_cast<int>(report(refused_path(error), voice_));
    } catch (const std::exception& error) {
      return static_cast<int>(
          report(Error(ErrorKind::internal, unexpected_failure(error).problems()), voice_));
    }
  }

 private:
  /// Reads the command line and returns the verb that it names.
  Verb& parse(int argc, char** argv) {
    voice_.launched = detect_launcher();
    const std::string name = argc > 1 && argv[1][0] != '\0' ? argv[1] : "--help";
    const auto verb = std::find_if(verbs_.begin(), verbs_.end(),
                                   [&](const auto& known) { return known->facts.name == name; });
    const bool on_every_rank = verb != verbs_.end() && (*verb)->facts.ranks == VerbRanks::all;
    if (!voice_.first() && !on_every_rank) keep_silent();
    // mpirun gives its first rank a terminal whatever its own output is.
    options_.color =
        std::getenv("NO_COLOR") == nullptr && isatty(STDOUT_FILENO) == 1 && !voice_.launched;
    if (name[0] == '-') {
      require_program_option(name, original_argv(), app_);
    } else {
      require_known_verb(name, names_);
      // Only the verb that runs: the parser would hand a variable to every one of them.
      mirror_in_environment(*(chosen_ = app_.get_subcommand(name)));
    }
    app_.parse(argc, argv);
    require_no_empty_number(*chosen_);
    apply(flags_, options_);
    if (voice_.first() && std::getenv("HETEROPERF_LAUNCHED") == nullptr) {
      note_environment(app_, *chosen_, options_);
    }
    return **verb;
  }

  Voice& voice_;
  GlobalOptions options_;
  GlobalFlags flags_;
  const std::vector<std::unique_ptr<Verb>> verbs_ = all_verbs();
  std::vector<std::string> names_;
  CLI::App app_{"HeteroPerf: how many useful AI operations per second does this machine deliver?"};
  CLI::App* chosen_ = &app_;  ///< the verb's, once it is known
};

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  // A file that may not grow is an error to report, not a reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  // A parent that ignores the end of its children hands that on, and nobody's exit code is kept.
  std::signal(SIGCHLD, SIG_DFL);
  heteroperf::keep_argv(argc, argv);
  heteroperf::Voice voice{{}, heteroperf::wants_json(argc, argv)};
  const int code = heteroperf::Program(voice).run(argc, argv);
  if (code != 0) heteroperf::let_first_rank_speak(voice);
  return code == 0 && !heteroperf::output_arrived() ? 5 : code;
}

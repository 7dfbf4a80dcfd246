#pragma once

#include <CLI/App.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "suite/program/exit_code.hpp"

namespace heteroperf {

struct Document;
enum class DocumentForm;
struct TextStyle;

enum class Verbosity { quiet, normal, verbose };

/// The options every verb takes.
struct GlobalOptions {
  bool json = false;
  bool color = true;  ///< false with --no-color, NO_COLOR, under a launcher, or without a terminal
  Verbosity verbosity = Verbosity::normal;
  std::vector<std::string> sets;  ///< "path.to.key=value"
  /// Takes the documents that print() gets, in place of standard output.
  std::function<void(const Document&)> reader = {};
};

/// Who runs a verb in a launcher's world: rank 0 alone, or every rank. Those that every rank runs
/// have the configuration that `--set` changes.
enum class VerbRanks { first, all };

/// A verb states these facts for `--help` and the program.
struct VerbFacts {
  const char *name, *summary;
  std::vector<std::string> examples;  ///< command lines, without the program's name
  VerbRanks ranks = VerbRanks::first;
};

/// One word after `heteroperf`. Results go to stdout, progress and log to stderr; with `json`
/// stdout holds exactly one JSON document. Problems are thrown.
class Verb {
 public:
  virtual ~Verb() = default;

  const VerbFacts facts;

  virtual void declare(CLI::App& command) = 0;
  virtual ExitCode run(const GlobalOptions& options) = 0;

 protected:
  explicit Verb(VerbFacts given) : facts(std::move(given)) {}
};

/// Declares an option whose text `parse` turns into `value` while the command line is read. What
/// `parse` throws ends the program before the verb begins.
template <class Value, class Parse>
CLI::Option* add_parsed_option(CLI::App& command, const std::string& flag, Value& value,
                               Parse parse, const std::string& help) {
  const auto take = [&value, parse](const std::string& text) { value = parse(text); };
  return command.add_option_function<std::string>(flag, take, help);
}

/// Declares an option whose value has the name `type` on help pages.
template <class Value>
CLI::Option* add_typed_option(CLI::App& command, const std::string& flag, Value& value,
                              const char* type, const std::string& help) {
  return command.add_option(flag, value, help)->type_name(type);
}
/// Declares an argument that a verb cannot do without.
template <class Value>
CLI::Option* add_argument(CLI::App& command, const char* name, Value& value,
                          const std::string& help) {
  return command.add_option(name, value, help)->required();
}

/// Prints what a verb answers, as JSON or for people, with lines that fit the terminal.
void print(const Document& document, const GlobalOptions& options);
/// Warns on stderr, each on a line of its own.
void print_warnings(const std::vector<std::string>& warnings);
/// The document of an error that ended the program.
std::string error_report_text(const Error& error);
/// The form that the user wants: JSON, or for a console.
DocumentForm form_of(const GlobalOptions& options);
/// The columns of the terminal; 0 where there is none or it is too narrow to show anything.
int terminal_width();
/// The colours and the width of the terminal that standard output is.
TextStyle style_of(const GlobalOptions& options);

/// Every verb, in the order of `heteroperf --help`.
std::vector<std::unique_ptr<Verb>> all_verbs();
/// The topics that `help` knows beside verbs, for the end of the program's --help.
std::string topics_text();

}  // namespace heteroperf

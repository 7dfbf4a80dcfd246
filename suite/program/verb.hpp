#pragma once

#include <CLI/App.hpp>

#include <memory>
#include <string>
#include <vector>

#include "suite/program/exit_code.hpp"

namespace heteroperf {

struct Document;
struct TextStyle;

enum class Verbosity { quiet, normal, verbose };

/// The options every verb takes.
struct GlobalOptions {
  bool json = false;
  bool color = true;  ///< false with --no-color, NO_COLOR, under a launcher, or without a terminal
  Verbosity verbosity = Verbosity::normal;
  std::vector<std::string> sets;  ///< "path.to.key=value"
};

/// One word after `heteroperf`. Results go to stdout, progress and log to stderr; with `json`
/// stdout holds exactly one JSON document. Problems are thrown.
class Verb {
 public:
  virtual ~Verb() = default;

  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;
  /// Two command lines, without the program's name.
  virtual std::vector<std::string> examples() const = 0;
  virtual void declare(CLI::App& command) = 0;
  /// True where it has the configuration that `--set` changes.
  virtual bool configurable() const { return false; }
  /// True where every rank of a launcher's world takes part, not rank 0 alone.
  virtual bool on_every_rank() const { return false; }
  virtual ExitCode run(const GlobalOptions& options) = 0;
};

/// Prints what a verb answers, as JSON or for people, with lines that fit the terminal.
void print(const Document& document, const GlobalOptions& options);
/// The columns of the terminal; 0 where there is none or it is too narrow to show anything.
int terminal_width();
/// The colours and the width of the terminal that standard output is.
TextStyle style_of(const GlobalOptions& options);

/// Every verb, in the order of `heteroperf --help`.
std::vector<std::unique_ptr<Verb>> all_verbs();
/// The topics that `help` knows beside verbs, for the end of the program's --help.
std::string topics_text();

}  // namespace heteroperf

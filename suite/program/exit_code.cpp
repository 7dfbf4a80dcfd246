// Two tables about exit codes: the words that --help has for each, and the code that each kind of
// error ends the program with. The switch has no default, so that a new kind of error without a
// code is a warning of the compiler.
#include "suite/program/exit_code.hpp"

namespace heteroperf {
namespace {

constexpr ExitCodeMeaning meanings[] = {
    {ExitCode::ok, "ok"},
    {ExitCode::internal, "internal error"},
    {ExitCode::usage, "usage or configuration"},
    {ExitCode::regression, "regression"},
    {ExitCode::inconclusive, "inconclusive"},
    {ExitCode::environment, "environment (nothing measured)"},
    {ExitCode::run_failed, "run failed"},
    {ExitCode::timeout, "timeout"},
    {ExitCode::invalid_result, "result invalid by rules"},
    {ExitCode::verification, "verification failed"},
    {ExitCode::not_comparable, "not comparable"},
    {ExitCode::interrupted, "interrupted (partial record kept)"},
};

}  // namespace

std::span<const ExitCodeMeaning> exit_code_meanings() { return meanings; }

ExitCode exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return ExitCode::internal;
    case ErrorKind::usage:
      return ExitCode::usage;
    case ErrorKind::environment:
      return ExitCode::environment;
    case ErrorKind::run_failed:
      return ExitCode::run_failed;
    case ErrorKind::timeout:
      return ExitCode::timeout;
    case ErrorKind::invalid_result:
      return ExitCode::invalid_result;
    case ErrorKind::verification:
      return ExitCode::verification;
    case ErrorKind::not_comparable:
      return ExitCode::not_comparable;
    case ErrorKind::interrupted:
      return ExitCode::interrupted;
  }
  return ExitCode::internal;
}

}  // namespace heteroperf

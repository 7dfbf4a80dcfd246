// The table of exit codes: the words that --help has for each, and the kind of error that ends the
// program with it. Some codes are verdicts, which no error has; every kind of error has a code.
#include "suite/program/exit_code.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr ExitCodeMeaning meanings[] = {
    {ExitCode::ok, "ok", {}},
    {ExitCode::internal, "internal error", ErrorKind::internal},
    {ExitCode::usage, "usage or configuration", ErrorKind::usage},
    {ExitCode::regression, "regression", {}},
    {ExitCode::inconclusive, "inconclusive", {}},
    {ExitCode::environment, "environment (nothing measured)", ErrorKind::environment},
    {ExitCode::run_failed, "run failed", ErrorKind::run_failed},
    {ExitCode::timeout, "timeout", ErrorKind::timeout},
    {ExitCode::invalid_result, "result invalid by rules", ErrorKind::invalid_result},
    {ExitCode::verification, "verification failed", ErrorKind::verification},
    {ExitCode::not_comparable, "not comparable", ErrorKind::not_comparable},
    {ExitCode::interrupted, "interrupted (partial record kept)", ErrorKind::interrupted},
};

}  // namespace

std::span<const ExitCodeMeaning> exit_code_meanings() { return meanings; }

ExitCode exit_code_of(ErrorKind kind) {
  const auto row = std::find_if(std::begin(meanings), std::end(meanings),
                                [&](const ExitCodeMeaning& known) { return known.error == kind; });
  return row == std::end(meanings) ? ExitCode::internal : row->code;
}

}  // namespace heteroperf

#pragma once

#include <optional>
#include <span>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// The program's exit codes; stable, scripts rely on them.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  regression = 3,
  inconclusive = 4,
  environment = 5,
  run_failed = 6,
  timeout = 7,
  invalid_result = 8,
  verification = 9,
  not_comparable = 10,
  interrupted = 130,
};

ExitCode exit_code_of(ErrorKind kind);

struct ExitCodeMeaning {
  ExitCode code;
  const char* meaning;             ///< "run failed"
  std::optional<ErrorKind> error;  ///< the kind that ends the program with it
};
std::span<const ExitCodeMeaning> exit_code_meanings();

}  // namespace heteroperf

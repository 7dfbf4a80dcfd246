#pragma once

#include <vector>

namespace heteroperf {

/// One flag of `run` that edits one key of the configuration tree.
struct RunFlag {
  const char* flag;        ///< "--ranks"; its environment variable is HETEROPERF_RANKS
  const char* path;        ///< "scale.ranks"
  const char* value_name;  ///< "N"
  const char* help;
  bool positive;  ///< a number that must be above 0 when it is given
};

const std::vector<RunFlag>& run_flags();

}  // namespace heteroperf

#pragma once

#include "metrics/error.hpp"

namespace heteroperf {

/// Runs `check`; the problems of what it throws of the user's become problems of the whole.
template <class Check>
void collect_problems(ProblemList& problems, Check&& check) {
  try {
    check();
  } catch (const UserError& error) {
    for (const Problem& one : error.problems()) problems.add(one.problem, one.why, one.suggestion);
  }
}

}  // namespace heteroperf

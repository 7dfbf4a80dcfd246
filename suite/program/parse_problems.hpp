#pragma once

#include <CLI/App.hpp>
#include <CLI/Error.hpp>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// The problem that `command` has no such option, with the one that was probably meant.
Problem unknown_option(const std::string& word, const CLI::App& command);

/// The problems that the parser of the command line found, as *problem (why) suggestion*; `command`
/// is the verb whose options were meant, or the program.
std::vector<Problem> parse_problems(const CLI::ParseError& error, const CLI::App& command);

}  // namespace heteroperf

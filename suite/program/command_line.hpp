#pragma once

#include <CLI/App.hpp>
#include <CLI/Error.hpp>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// `head` and, in a column of their own, the words of `text`, wrapped. A head that is too long for
/// its column has a line of its own.
std::string help_entry(const std::string& head, const std::string& text);

/// Gives `app` and the verbs that it gets from then on help pages of at most 100 columns: one
/// option an entry, its range and its default beside it, long descriptions wrapped under their own
/// column.
void use_help_pages(CLI::App& app);

/// The problem that `command` has no such option, with the one that was probably meant.
Problem unknown_option(const std::string& word, const CLI::App& command);

/// The problems that the parser of the command line found, as *problem (why) suggestion*; `command`
/// is the verb whose options were meant, or the program.
std::vector<Problem> parse_problems(const CLI::ParseError& error, const CLI::App& command);

}  // namespace heteroperf

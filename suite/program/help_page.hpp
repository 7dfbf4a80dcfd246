#pragma once

#include <CLI/App.hpp>

#include <string>

namespace heteroperf {

/// `head` and, in a column of their own, the words of `text`, wrapped. A head that is too long for
/// its column has a line of its own.
std::string help_entry(const std::string& head, const std::string& text);

/// Gives `app` and the verbs that it gets from then on help pages of at most 100 columns: one
/// option an entry, its range and its default beside it, long descriptions wrapped under their own
/// column.
void use_help_pages(CLI::App& app);

}  // namespace heteroperf

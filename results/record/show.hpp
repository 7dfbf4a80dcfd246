#pragma once

#include <filesystem>
#include <string>

#include "results/text/document.hpp"

namespace heteroperf {

/// A table for a terminal, the stored document, one line per record in CSV, or a table of Markdown.
enum class ShowFormat { console, json, csv, markdown };

/// Reads "console", "json", "csv" or "md". Throws UserError that names the nearest valid name.
ShowFormat parse_show_format(const std::string& name);

/// The record (or suite) in `path`, for reading: the one table at the end of a run. `json` is the
/// stored document itself. Throws UserError when there is none or it is malformed.
std::string show(const std::filesystem::path& path, ShowFormat format, Colour colour);

/// As above, of record text in memory; `folder` is the path the table names.
std::string show_record(const std::string& record_text, const std::string& folder,
                        ShowFormat format, Colour colour);

}  // namespace heteroperf

#pragma once

#include <filesystem>
#include <string>

#include "results/text/document.hpp"

namespace heteroperf {

/// The record (or suite) in `path`, for reading: the one table at the end of a run. `json` is the
/// stored document itself. Throws UserError when there is none or it is malformed.
std::string show(const std::filesystem::path& path, DocumentForm form, const TextStyle& style);

/// As above, of record text in memory; `folder` is the path the table names.
std::string show_record(const std::string& record_text, const std::string& folder,
                        DocumentForm form, const TextStyle& style);

}  // namespace heteroperf

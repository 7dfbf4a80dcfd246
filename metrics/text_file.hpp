#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// The whole of a file that a user named. `what` is what it should hold ("cluster file"), for the
/// message. Throws UserError "cannot read the `what` PATH (why). `suggestion`" where it is missing,
/// a folder, refused by the system, or too large to be held in memory.
std::string read_text_file(const std::filesystem::path& path, const std::string& what = {},
                           const std::string& suggestion = {});

}  // namespace heteroperf

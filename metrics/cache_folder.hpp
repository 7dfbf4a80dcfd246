#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// $XDG_CACHE_HOME/heteroperf, else ~/.cache/heteroperf, else one in /tmp of this user's own: all
/// that is written outside of --out. It may not exist yet.
std::filesystem::path cache_folder();

/// That folder, made where it is not there. Throws SystemError{environment} where it cannot be
/// made, or where other users could exchange what is in it.
std::filesystem::path own_cache_folder();

/// A new private folder in it, named `prefix` and six letters; its maker removes it. Throws as
/// own_cache_folder().
std::filesystem::path make_cache_folder(const std::string& prefix);

}  // namespace heteroperf

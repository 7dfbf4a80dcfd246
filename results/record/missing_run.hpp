#pragma once

#include <filesystem>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// There is nothing at `path`; names the nearest of what lies beside it.
UserError no_such_run(const std::filesystem::path& path);

}  // namespace heteroperf

#pragma once

#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// {"error":{"kind","message","hints":[…],"details":[{"problem","why","suggestion"}]}}
std::string error_report_text(const Error& error);

}  // namespace heteroperf

#pragma once

#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// {"kind","message","hints":[…],"details":[{"problem","why","suggestion"}]}
nlohmann::ordered_json error_object(const Error& error);

}  // namespace heteroperf

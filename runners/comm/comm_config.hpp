#pragma once

#include "runners/comm/world.hpp"

namespace heteroperf {

/// Throws UserError with everything that is wrong with the configuration.
void check_comm_config(const CommConfig& config);

}  // namespace heteroperf

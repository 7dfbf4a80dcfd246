#pragma once

#include <memory>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// The engine itself, for code that links LibTorch (the module and the tests).
std::unique_ptr<Engine> make_torch_engine();

}  // namespace heteroperf

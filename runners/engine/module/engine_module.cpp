#include "runners/engine/module/torch_engine.hpp"

/// The module's only door: the caller owns the engine.
extern "C" __attribute__((visibility("default"))) heteroperf::Engine* heteroperf_make_engine() {
  return heteroperf::make_torch_engine().release();
}

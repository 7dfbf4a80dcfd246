#include "runners/plan/plan_memory.hpp"

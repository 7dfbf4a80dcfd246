#pragma once

#include "metrics/base/name_table.hpp"
#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

inline constexpr Named<SweepRunState> sweep_states[] = {
    {SweepRunState::waiting, "waiting"},         {SweepRunState::running, "running"},
    {SweepRunState::complete, "complete"},       {SweepRunState::failed, "failed"},
    {SweepRunState::interrupted, "interrupted"},
};

}  // namespace heteroperf

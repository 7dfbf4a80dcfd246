#pragma once

#include "suite/ranks/rank_context.hpp"
#include "suite/search/search_service.hpp"

namespace heteroperf {

/// Groups of a search: ranks / automl.group_ranks. Throws UserError when they do not divide.
int search_groups(const RunConfig& config, int ranks);

/// The body of one rank of a search: its group asks the master for trials and trains them until the
/// duration or the steps are used up. `service` is rank 0's, else null.
ProgramEnd run_search(RankContext& context, const Workload& workload, SearchService* service);

}  // namespace heteroperf

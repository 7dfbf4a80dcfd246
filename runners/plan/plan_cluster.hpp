#pragma once

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

/// Some ranks of a cluster, numbered anew in their order.
/// Classes, efficiency and links between labels stay. `ranks` may be in any order, each once.
Cluster part_of_cluster(const Cluster& cluster, const std::vector<RankId>& ranks);

/// A plan for part_of_cluster(), as one for the whole cluster.
Plan on_whole_cluster(Plan plan, const std::vector<RankId>& ranks);

/// The machine as a plan uses it: rank r is the plan's rank r, devices that it leaves idle are not
/// there. `cluster` itself where the plan does not choose. Throws UserError with every device that
/// the cluster does not have or that is named twice, and where devices and ranks do not fit.
///
/// Its rates are the description's: Plan::efficiency is not put into it.
Cluster plan_cluster(const Plan& plan, const Cluster& cluster);

/// With Plan::efficiency in place of what the description says: what predictions are made with.
Cluster known_better(Cluster cluster, const Plan& plan);

}  // namespace heteroperf

#pragma once

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// simulate() for the models `links` and `rendezvous`, on a lowered schedule.
///
/// Each rank runs its program in order on one stream. Only this order, arrivals and collectives
/// decide when an instruction runs: that what it needs stands before it is check_schedule()'s
/// matter.
///
/// **Messages.** A message is issued when its send is reached (`rendezvous`: and its receive too).
/// It starts when its link has a free slot and, between nodes, where cards have a limit, the cards
/// of both ranks are free. It holds them for bytes / bandwidth (between nodes: / card_bandwidth
/// where that is slower; a part of a sequence carries its share of the bytes) and arrives
/// graph.latency after that. Messages start in the order of issue, ties by rank, then index of the
/// send; one that still waits for another link or card lets later ones pass. A message that can
/// only be issued because another arrived in no time comes after those issued at that instant.
///
/// **Sends and receives.** A receive blocks its rank until the arrival. A send takes no time; under
/// `rendezvous` it blocks until its transfer has ended. A group is issued when its first message is
/// reached, then its members are waited for in their order.
///
/// **Compute.** With compute_slow_down s, work on a rank proceeds at 1/s while any transfer (not
/// latency) from or to it is under way. A fused pair takes the sum of its costs times the graph's
/// factor; RECOMPUTE takes a forward; OPT_STEP takes step_time; LOAD, LOSS and FREE take no time.
///
/// **Collectives** start when the last member rank has come, take latency · ⌈log2(members)⌉ + the
/// interaction's cost (a reduction: reduction_time), and block all of them until they end.
///
/// **Monotonicity.** Under `links`, in full duplex, without a card limit and slow-down, a lower
/// latency or a higher bandwidth or capacity never makes a given schedule later anywhere: each link
/// serves one sender in the order of its program. Otherwise an earlier message may take a shared
/// link or card from a more urgent one, or fall into compute.
///
/// **Timeline.** A message's instructions span the time they block their rank (a send under
/// `links`: its issue). Causes: of a wait, the other end of the message or the last member of a
/// collective; of anything else, the instruction of its rank that ended at its start.
///
/// Throws UserError for wrong options and programs, and with the waiting cycle, rank by rank, where
/// the programs cannot end.
Timeline simulate_network(const Schedule& schedule, const SimulationOptions& options);

}  // namespace heteroperf

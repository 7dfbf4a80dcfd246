#pragma once

#include <string>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// The links that HexiScale's machine list does not say: the command line gives them.
struct HexiScaleLinks {
  BytesPerSecond between_machines{0};  ///< must be given
  Seconds latency_between{0}, latency_within{0};
};

/// Reads a machine list of HexiScale's (FlashFlex's): `machine_specs` {class: [teraflops, GB, GB/s
/// within a machine]} and `machine_amounts` {class: {devices per machine: number of such
/// machines}}.
///
/// Every device becomes a rank, every machine a cluster label; classes and machines keep the order
/// of the file, so that ranks are its device numbers. Rates are peaks of data sheets in half
/// precision, and become "bf16" with that source. Throws UserError with every problem: a class of
/// amounts without specs, numbers that are not positive and finite, more devices than a cluster
/// file may have.
Cluster parse_hexiscale(const std::string& text, const std::string& origin,
                        const HexiScaleLinks& links);

/// Finds what `--cluster` names: after "hexiscale:" a machine list and its links, FILE@B[,L[,W]] (B
/// GB/s and L µs between machines, W µs within one), else what find_cluster() takes. Throws
/// UserError as these do.
Cluster find_machine(const std::string& source);

}  // namespace heteroperf

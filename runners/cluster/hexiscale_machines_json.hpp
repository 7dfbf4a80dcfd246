#pragma once

#include <string>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// What HexiScale's machine list leaves to the command line.
struct HexiScaleLinks {
  BytesPerSecond between_machines{0};  ///< must be given
  Seconds latency_between{0}, latency_within{0};
};

/// A machine list of HexiScale's (FlashFlex's): `machine_specs` {class: [teraflops, GB, GB/s within
/// a machine]}, `machine_amounts` {class: {devices per machine: how many such machines}}. A rank
/// per device, a cluster label per machine; classes and machines in the order of the file, so that
/// ranks are those of its device numbers. Rates are peaks of data sheets, of half precision, and go
/// in as "bf16" with that source. Throws UserError with everything wrong: a class of amounts
/// without specs, numbers that are not positive and finite, more devices than a cluster file may
/// have.
Cluster parse_hexiscale(const std::string& text, const std::string& origin,
                        const HexiScaleLinks& links);
Cluster read_hexiscale_file(const std::string& path, const HexiScaleLinks& links);

/// "FILE@B[,L[,W]]": B GB/s and L µs between machines, W µs within one. Throws UserError.
Cluster read_hexiscale_source(const std::string& source);

}  // namespace heteroperf

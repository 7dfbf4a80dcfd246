#pragma once

#include <functional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/journal/events.hpp"
#include "results/text/document.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {

/// The speed at which this machine makes the products of the workloads.
struct ProductSpeed {
  /// The products of one workload, as its runs take them.
  struct OfWorkload {
    std::string workload, size;
    std::vector<MeasuredProduct> products;
  };

  int ranks = 1, threads_per_rank = 1;
  double peak_ops_per_second = 0;  ///< one rank's: the fastest product or way of all
  std::vector<OfWorkload> workloads;
};

/// Times the ways of every product of all workloads at the sizes that a run chooses here, on as
/// many ranks as a run has, all at once, and keeps what it measures for later runs. Where ranks
/// fail or are stopped, returns their exit code after `keep` has taken the error. Throws what
/// load_engine() and the workloads do.
ExitCode measure_product_speed(const std::vector<std::string>& argv,
                               const std::function<void(const Error&)>& keep, ProductSpeed& speed);

/// A row per workload and product: the rate of each way, the taken one, and its share of the peak.
void add_product_speed(Document& document, const ProductSpeed& speed);

}  // namespace heteroperf

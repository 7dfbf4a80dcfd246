#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_search.hpp"

namespace heteroperf {

/// One replica of every stage, and what micro-batches of each size take there by `sailor+`.
class SailorPipeline {
 public:
  struct Size {
    std::int64_t samples = 1;
    double period_s = 0;  ///< one more micro-batch: the slowest stage
    double single_s = 0;  ///< one micro-batch alone: all stages
  };

  /// `bounds`: the first layer of every stage, and the end of the last.
  SailorPipeline(const SailorTables& tables, const std::vector<int>& bounds,
                 std::vector<SailorSeat> seats);

  const std::vector<SailorSeat>& seats() const { return seats_; }
  /// Profiled everywhere and within every device's memory, ascending; empty: cannot run.
  const std::vector<Size>& sizes() const { return sizes_; }
  /// Devices that it takes, by place.
  const SailorDevices& devices() const { return devices_; }

  /// The most samples within `seconds`, with micro-batches of one size and smaller ones after.
  std::int64_t samples_within(double seconds) const;
  /// The quickest share (count 1) of exactly that many samples; nothing where none is within the
  /// time.
  std::optional<SailorShare> share(std::int64_t samples, double seconds) const;

 private:
  std::vector<SailorSeat> seats_;
  std::vector<Size> sizes_;
  SailorDevices devices_;
};

/// The pipelines that a plan of these cuts may be made of: for every order of places and every pace
/// the least degrees that keep it, none below `least_tensor`. Others take more devices for no
/// shorter period.
std::vector<SailorPipeline> sailor_pipelines(const SailorTables& tables,
                                             const std::vector<int>& bounds,
                                             const SailorDevices& devices,
                                             const std::set<int>& least_tensors);

}  // namespace heteroperf

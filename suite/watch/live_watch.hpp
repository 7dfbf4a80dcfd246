#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "results/journal/events.hpp"
#include "runners/cluster/gpu_slowdown.hpp"
#include "suite/ranks/rank_context.hpp"
#include "suite/watch/hosts_watch.hpp"

namespace heteroperf {

/// Watches for how long the GPU of a rank on `host` is held below its clocks, from construction on.
class GpuWatch {
 public:
  /// `pci_bus_id` as CUDA writes it. `library` as GpuSlowdownReader takes it.
  GpuWatch(std::string pci_bus_id, std::string host, int rank,
           const std::string& library = nvidia_management_library);
  /// Nothing where the driver counts neither.
  std::optional<GpuSlowdownEvent> until_now() const;

 private:
  std::string pci_bus_id_, host_;
  int rank_;
  GpuSlowdownReader reader_;
  std::int64_t start_ns_;
  GpuSlowdown start_;
};

/// Posts what happens beside a run, as seen by one rank: on its host, if it is the first one there,
/// and on its GPU. Before the first step, now and then while the run goes on, so that it is known
/// early and of a run that breaks off, and once more at its end.
class LiveWatch {
 public:
  /// The interval of the lines, which is longer on many hosts, and the shortest set-up that gets a
  /// line.
  struct Pace {
    double interval_s = 10;
    double shortest_setup_s = 1;  ///< the kernel counts in ticks of 10 ms
  };

  /// Collective. Watches the hosts while the run is set up.
  LiveWatch(RankContext& context, const Pace& pace);
  ~LiveWatch();
  LiveWatch(const LiveWatch&) = delete;
  LiveWatch& operator=(const LiveWatch&) = delete;

  /// The first step follows: posts what the set-up has met, and counts anew. From here on
  /// `context.look_around` is `look`. Collective.
  void begin(std::unique_ptr<const GpuWatch> gpu);
  /// Posts what has happened since the beginning, when it is time again.
  void look();
  /// The last lines. Collective.
  void close();

 private:
  void post(const std::optional<HostLoadEvent>& load, std::int64_t begin_ns);

  RankContext& context_;
  HostsWatch hosts_;
  std::unique_ptr<const GpuWatch> gpu_;
  double shortest_setup_s_;
  std::int64_t interval_ns_, next_ns_ = 0;
};

}  // namespace heteroperf

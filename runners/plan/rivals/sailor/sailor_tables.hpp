#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// Layers begin … end−1.
struct SailorLayers {
  int begin = 0, end = 0;
  friend bool operator==(const SailorLayers&, const SailorLayers&) = default;
};

/// Where a replica runs: on that many devices of one place, its tensor-parallel degree.
struct SailorSeat {
  int place = 0;  ///< index of SailorTables::places()
  int tensor = 1;
  friend auto operator<=>(const SailorSeat&, const SailorSeat&) = default;
};

/// Devices that may be used, by SailorTables::places().
using SailorDevices = std::vector<int>;
/// The places that have a device.
std::vector<int> places_in_use(const SailorDevices& devices);

/// Calls `visit(neighbour, layer, times)` for the two messages of a micro-batch that Sailor's
/// formula counts in a stage's time: the activation that goes to the next stage and the gradient
/// that goes to the one before.
template <class Visit>
void for_each_send(std::size_t stage, std::size_t stages, const SailorLayers& layers, Visit visit) {
  const bool first = stage == 0, last = stage + 1 == stages;
  if (!last) visit(stage + 1, layers.end - 1, first && stages > 3 ? 2 : 1);
  if (!first) visit(stage - 1, layers.begin, last ? 2 : 1);
}

/// The pieces of Sailor's cost formulas (README.md), prepared once: every question after that takes
/// nanoseconds and may be asked from many threads. A time is infinite, and a memory, where the
/// inputs have no entry.
class SailorTables {
 public:
  /// Throws UserError when no device of the inputs has a profile, a memory size and links.
  explicit SailorTables(SailorInputs inputs);
  const SailorInputs& inputs() const { return inputs_; }

  /// A place is a device in a zone: "A100-40" or, elsewhere than in the inputs' own zone,
  /// "A100-40@zone".
  const std::vector<std::string>& places() const { return names_; }
  /// An empty zone is the inputs' own. −1: there is no such place.
  int find_place(const std::string& device, const std::string& zone = "") const;
  /// The same; throws UserError naming the nearest.
  int place(const std::string& device, const std::string& zone = "") const;
  const std::string& name(int place) const { return names_[place]; }
  const std::string& device(int place) const { return places_[place].device; }
  int per_node(int place) const { return places_[place].per_node; }
  double memory_limit_bytes(int place) const { return places_[place].memory_limit_bytes; }

  const std::string& model() const { return inputs_.model.name; }
  int layers() const { return inputs_.model.size(); }
  std::int64_t global_batch() const { return inputs_.training.global_batch; }
  /// The degrees of tensor parallelism that have a profile, none beyond one node, and the sizes of
  /// micro-batches that have one; both ascending.
  std::vector<int> degrees(int place) const;
  std::vector<std::int64_t> micro_batches(const SailorSeat& seat) const;

  /// Seconds of forward and backward of some layers.
  double compute_s(const SailorSeat& seat, std::int64_t micro_batch,
                   const SailorLayers& layers) const;
  /// Seconds of the optimizer's update of one layer.
  double update_s(const SailorSeat& seat, std::int64_t micro_batch, int layer) const;
  /// Seconds to send the output of `layer` for one micro-batch.
  double send_s(const SailorSeat& from, const SailorSeat& to, int layer,
                std::int64_t micro_batch) const;
  /// Seconds of a ring all-reduce of the gradients of some layers over `width` replicas at the pace
  /// of the link between two neighbours; `least_tensor` is the least degree in the stage.
  double reduction_s(int place, int neighbour, int width, int least_tensor,
                     const SailorLayers& layers) const;
  /// Bytes on a device of a replica, `stages_to_end` before the end: 1 in the last stage.
  double memory_bytes(int tensor, std::int64_t micro_batch, const SailorLayers& layers,
                      std::size_t stages_to_end) const;
  bool fits(const SailorSeat& seat, std::int64_t micro_batch, const SailorLayers& layers,
            std::size_t stages_to_end) const {
    return memory_bytes(seat.tensor, micro_batch, layers, stages_to_end) <=
           memory_limit_bytes(seat.place);
  }

 private:
  /// Values of the layers up to each: a sum over layers is a difference. Empty: there are none.
  using Totals = std::vector<double>;
  struct Profile {
    Totals computed;             ///< forward and backward
    std::vector<double> update;  ///< [layer]
  };
  struct Place {
    std::string device;
    int per_node = 1;
    double memory_limit_bytes = 0;
    std::vector<Profile> profiles;  ///< [degree][micro-batch]
  };
  struct Held {  ///< values that a rank holds
    Totals parameters, kept;
  };

  std::string place_name(const std::string& device, const std::string& zone) const;
  std::size_t profile_slot(int tensor, std::int64_t micro_batch) const {
    return tensor * (most_micro_batch_ + 1) + micro_batch;
  }
  /// Null where there is none.
  const Profile* profile(const SailorSeat& seat, std::int64_t micro_batch) const;
  /// A seat stands for so many devices of a place here.
  std::size_t link_slot(const SailorSeat& from, const SailorSeat& to) const {
    const auto end = [&](const SailorSeat& of) {
      return of.place * (most_of_node_ + 1) + of.tensor;
    };
    return end(from) * places_.size() * (most_of_node_ + 1) + end(to);
  }
  void take_places();
  void take_network();
  void take_layers();

  SailorInputs inputs_;
  int most_tensor_ = 0, most_of_node_ = 1;
  std::int64_t most_micro_batch_ = 0;
  std::vector<Place> places_;
  std::vector<std::string> names_;
  /// [sender][its devices][receiver][its devices]
  std::vector<std::optional<SailorCurve>> links_;
  std::vector<Held> held_;  ///< [degree]
  Totals parameter_bytes_;  ///< in degree 1
};

/// Devices there are at one time of a trace.
struct SailorAvailability {
  double time_s = 0;
  std::map<std::pair<std::string, std::string>, int> devices;  ///< by (device, zone)
};
/// A trace of available devices: comma-separated, with a heading row; a column "Timestamp" in
/// seconds, and one per device and zone, "A100-40_us-central1-a"; a column without a heading is
/// passed over. Throws UserError with everything wrong, each with its line.
std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file);

/// Devices of a cluster by the names of Sailor's inputs: "A100-40=32,V100-16=96", a row of a trace
/// ("trace.csv:1", the first without a number), or a cluster file whose classes have these names;
/// a cluster label that is a zone of the inputs is taken as that zone. Throws UserError naming the
/// nearest place for names that the inputs do not have.
SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster);

}  // namespace heteroperf

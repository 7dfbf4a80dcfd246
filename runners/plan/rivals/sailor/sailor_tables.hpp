#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// The times that the two messages of a micro-batch are counted in a stage's time by Sailor's
/// formula: the activation that goes to the next stage and the gradient that goes to the one
/// before.
struct SailorSends {
  int to_next = 0, to_previous = 0;
};
constexpr SailorSends sailor_sends(std::size_t stage, std::size_t stages) {
  const bool first = stage == 0, last = stage + 1 == stages;
  return {last ? 0 : (first && stages > 3 ? 2 : 1), first ? 0 : (last ? 2 : 1)};
}

/// The pieces of Sailor's cost formulas (README.md), prepared once: every question after that takes
/// nanoseconds and may be asked from many threads. A time is infinite, and a memory, where the
/// inputs have no entry.
class SailorTables {
 public:
  /// Throws UserError when no device of the inputs has a profile, a memory size and links.
  explicit SailorTables(const SailorInputs& inputs);

  /// A place is a device in a zone: "A100-40" or, elsewhere than in the inputs' own zone,
  /// "A100-40@zone".
  const std::vector<std::string>& places() const { return names_; }
  /// An empty zone is the inputs' own. Throws UserError naming the nearest.
  int place(const std::string& device, const std::string& zone = "") const;
  const std::string& device(int place) const { return at(place).device; }
  int per_node(int place) const { return at(place).per_node; }
  double memory_limit_bytes(int place) const { return at(place).memory_limit_bytes; }

  const std::string& model() const { return model_; }
  int layers() const { return layers_; }
  std::int64_t global_batch() const { return global_batch_; }
  /// The degrees of tensor parallelism that have a profile, none beyond one node, and the sizes of
  /// micro-batches that have one; both ascending.
  std::vector<int> degrees(int place) const;
  std::vector<std::int64_t> micro_batches(int place, int tensor) const;

  /// Seconds of forward and backward of layers [begin, end).
  double compute_s(int place, int tensor, std::int64_t micro_batch, int begin, int end) const;
  /// Seconds of the optimizer's update of one layer.
  double update_s(int place, int tensor, std::int64_t micro_batch, int layer) const;
  /// Seconds to send the output of `layer` for one micro-batch, between replicas of these degrees.
  double send_s(int from, int from_tensor, int to, int to_tensor, int layer,
                std::int64_t micro_batch) const;
  /// Seconds of a ring all-reduce of the gradients of layers [begin, end) over `width` replicas at
  /// the pace of the link between two neighbours; `least_tensor` is the least degree in the stage.
  double reduction_s(int place, int neighbour, int width, int least_tensor, int begin,
                     int end) const;
  /// Bytes on a device of a replica, `stages_to_end` before the end: 1 in the last stage.
  double memory_bytes(int tensor, std::int64_t micro_batch, int begin, int end,
                      int stages_to_end) const;
  bool fits(int place, int tensor, std::int64_t micro_batch, int begin, int end,
            int stages_to_end) const {
    return memory_bytes(tensor, micro_batch, begin, end, stages_to_end) <=
           memory_limit_bytes(place);
  }

 private:
  struct Place {
    std::string device, zone;
    int device_index = 0, per_node = 1;
    double memory_limit_bytes = 0;
  };
  struct Entry {                   ///< the profile of a device, degree and micro-batch
    std::vector<double> computed;  ///< [layer + 1], seconds of all layers before
    std::vector<double> update;    ///< [layer]
  };

  const Place& at(int place) const { return places_[static_cast<std::size_t>(place)]; }
  std::size_t entry_slot(int device, int tensor, std::int64_t micro_batch) const;
  std::size_t curve_slot(int from, int from_devices, int to, int to_devices) const;
  const Entry* entry(int place, int tensor, std::int64_t micro_batch) const;
  const SailorCurve* curve(int from, int from_devices, int to, int to_devices) const;
  void take_profiles(const SailorInputs& inputs);
  void take_places(const SailorInputs& inputs);
  void take_network(const SailorInputs& inputs);
  void take_layers(const SailorModel& model);

  int layers_ = 0, most_tensor_ = 0, most_devices_ = 0;
  std::int64_t global_batch_ = 1, most_micro_batch_ = 0;
  std::string home_zone_, model_;
  std::vector<std::string> devices_;  ///< with a profile
  std::vector<Place> places_;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> entry_of_;  ///< [device][degree][micro-batch], −1: none
  std::vector<SailorCurve> curves_;
  std::vector<std::int32_t> curve_of_;   ///< [from][its devices][to][its devices], −1: none
  std::vector<double> output_bytes_;     ///< [layer], per sample
  std::vector<double> parameter_bytes_;  ///< [layer + 1], of all layers before, degree 1
  struct Held {  ///< values that a rank holds of all layers before: [layer + 1]
    std::vector<double> parameters, kept;
  };
  std::vector<Held> held_;  ///< [degree]; empty where the degree is not described
};

}  // namespace heteroperf

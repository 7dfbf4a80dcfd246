#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runners/device/accelerator.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// How long a device took for the work of a step, by its own clock: the host only hands it over.
class DeviceTimes {
 public:
  /// Null: the host computes, and nothing is noted.
  explicit DeviceTimes(Accelerator* accelerator) : accelerator_(accelerator) {}

  /// `start_ns`: of the host's clock, now.
  void begin_step(std::int64_t start_ns);

  /// Runs `work`, which hands work to the device, and notes the time of that.
  template <class Work>
  void run(const Work& work) {
    std::unique_ptr<Accelerator::Mark> begin =
        accelerator_ != nullptr ? accelerator_->mark() : nullptr;
    work();
    if (accelerator_ != nullptr) times_.push_back({std::move(begin), accelerator_->mark(), {}});
  }
  /// The last one is the time of this instruction.
  void name_last(std::int32_t instruction);

  /// The sum of the step, once the device has done it. Those of instructions are appended to
  /// `lanes`, where there are some.
  double finish(std::vector<LaneSpan>* lanes);

 private:
  struct Time {
    std::unique_ptr<Accelerator::Mark> begin, end;
    std::optional<std::int32_t> instruction;
  };

  Accelerator* accelerator_;
  std::int64_t start_ns_ = 0;
  std::unique_ptr<Accelerator::Mark> start_;
  std::vector<Time> times_;
};

}  // namespace heteroperf

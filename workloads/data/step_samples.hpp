#pragma once

#include <cstdint>
#include <vector>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Which training samples a step takes, in the order in which micro-batches and their replicas take
/// them: a pure function of data, seed, step and their number, so that every rank knows it without
/// a message, whatever the plan.
///
/// Where samples have one image each, the order is that of the endless pass (shuffled_index). Where
/// they have any number, the samples of the step are *dealt*: of those that are left, each place
/// takes the one with which the images so far come closest to their even spread over the step. So
/// any run of samples that is handed to a replica has about its share of the images, at most a
/// sample's more or less.
class StepSamples {
 public:
  /// No samples.
  StepSamples() = default;
  StepSamples(const DataSource& data, std::uint64_t seed, std::uint64_t step, std::uint64_t count);

  /// Returns the number in the training split of sample `i` of the step.
  std::uint64_t operator[](std::uint64_t i) const;
  /// Tells if samples have any number of images.
  bool ragged() const { return !first_image_.empty(); }
  /// Counts the images of the samples before sample `i`, which may be behind the last one.
  std::uint64_t first_image(std::uint64_t i) const { return ragged() ? first_image_[i] : i; }
  std::uint64_t images() const { return ragged() ? first_image_.back() : count_; }

 private:
  std::uint64_t seed_ = 0, split_size_ = 0, first_position_ = 0, count_ = 0;
  std::vector<std::uint64_t> dealt_, first_image_;  ///< empty where samples have one image each
};

/// Returns, for i = 0 … count, the images of the first i of these validation samples; nothing where
/// samples have one image each.
std::vector<std::int64_t> validation_images(const DataSource& data, std::uint64_t first,
                                            std::int64_t count);

}  // namespace heteroperf

#pragma once

#include <array>
#include <vector>

#include "workloads/data/held_out.hpp"
#include "workloads/data_source.hpp"

namespace heteroperf {

/// Images of equal shape with one label each, as bytes in memory.
struct LabelledImages {
  std::int64_t channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< [image][channel][row][column]
  std::vector<std::uint8_t> labels;

  std::size_t bytes_per_image() const {
    return static_cast<std::size_t>(channels * height * width);
  }
  std::span<const std::uint8_t> image(std::size_t i) const;
  /// Adds all of `other`, which must have the same shape.
  void append(const LabelledImages& other);
};

/// A sixth of the images by hash of their pixels: repeated images stay on one side.
SplitLists hold_out_images(const LabelledImages& images);

/// Image files read once. Pixels are served as (x − mean) / deviation with the mean and standard
/// deviation of each channel over the training split.
class StoredImages : public DataSource {
 public:
  /// Throws UserError when a split is empty. `name` is the `--data` argument, for reports.
  StoredImages(std::string name, LabelledImages images, SplitLists lists, std::int64_t classes);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override { return numbers(split).size(); }
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  const std::vector<std::uint32_t>& numbers(Split split) const;
  void fill_tables();
  std::string hash_contents() const;

  std::string name_;
  LabelledImages images_;
  SplitLists lists_;
  SampleSpec spec_;
  std::vector<std::array<float, 256>> tables_;  ///< per channel: byte → served value
  std::string fingerprint_;
};

}  // namespace heteroperf

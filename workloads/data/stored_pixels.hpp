#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace heteroperf {

/// Images of equal shape in memory, as bytes {image, channel, row, column}. They are served as
/// (x − mean) / deviation, with the mean and the standard deviation of each channel over chosen
/// images.
struct StoredPixels {
  std::int64_t channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> bytes = {};
  std::vector<std::array<float, 256>> tables = {};  ///< per channel, the served value of each byte

  std::size_t bytes_per_image() const {
    return static_cast<std::size_t>(channels * height * width);
  }
  std::span<const std::uint8_t> image(std::size_t i) const {
    return std::span(bytes).subspan(i * bytes_per_image(), bytes_per_image());
  }
  /// Fills the tables from these images, of which there is one at least.
  void normalise_by(std::span<const std::uint32_t> images);
  /// Writes an image's served values to `out`, which has room for one.
  void serve(std::size_t i, std::span<float> out) const;
};

}  // namespace heteroperf

// Our convolution of float32 images, which multiplies images and weights where they lie. No window
// is gathered into memory, and no tap in the padding is multiplied, but where few channels make a
// copy with its padding worth while (WeightSums).
//
// Results and images of windows are the same thing seen from either side: a *position* of the
// result is a sum over *taps*, each of which is one pixel of the operand times one matrix of the
// weights. Forward, the operand is the image; for the gradient of the image it is the gradient of
// the result, and the taps run the other way. The rows of a tile (kernels/product_kernels.hpp) are
// therefore results that have the same taps at equal distances in memory, and the segments of its
// sums are the pixels below these taps. There are two kinds of such rows: neighbours along the
// width of one image, away from its edges, and the same position in all images of the batch. The
// second kind wastes nothing on small images, where most taps of most windows lie in the padding:
// of a 3x3 window over an image of 1x1 there is but one.
//
// The gradient of the weights is a sum over all positions and images, one tap's matrix at a time:
// the gradients of the result, packed once, meet the pixels in place. The order of the sum depends
// on the shape and the instruction set alone, not on the number of threads.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/own_products.hpp"

namespace heteroperf {
namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// ---------------------------------------------------------------- results and their gradients

/// Rows of the result that one tile makes, by offsets in elements.
struct TileRows {
  std::size_t first_segment, segments;
  std::int64_t a, a_stride, c, c_stride, rows;
};

/// The result of a pass, `y` forward and `x` backward, as sums over the taps of its positions.
class TapSums {
 public:
  TapSums(bool forward, const Window& window, const at::Tensor& operand, const at::Tensor& weight,
          const at::Tensor& result)
      : kernels_(active_device().products()),
        forward_(forward),
        window_(window),
        operand_(operand.const_data_ptr<float>()),
        weight_(weight.const_data_ptr<float>()),
        result_(result.mutable_data_ptr<float>()),
        batch_(result.size(0)),
        depth_(operand.size(1)),
        columns_(result.size(1)),
        extents_{operand.size(2), operand.size(3)},
        width_(result.size(3)),
        result_sample_(result.size(2) * width_ * columns_),
        taps_used_(static_cast<std::size_t>(taps()), false) {
    for (std::int64_t h = 0; h < result.size(2); ++h) add_row(h);
  }

  void run() const {
    static thread_local PackedMemory memory;
    const std::int64_t panels = divided_up(columns_, kernels_.tile_columns);
    float* const packed = memory.room_for(panels * panel_elements());
    at::parallel_for(0, panels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) pack_panel(p, packed + p * panel_elements());
    });
    const auto tiles = static_cast<std::int64_t>(tiles_.size());
    const std::int64_t grain = std::max<std::int64_t>(1, tiles / 8);
    // A panel of the weights stays in a cache while the tiles of all positions pass by.
    at::parallel_for(0, panels * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t panel = i / tiles;
        multiply(tiles_[i % tiles], panel, packed + panel * panel_elements());
      }
    });
  }

 private:
  std::int64_t taps() const { return window_.kernel[0] * window_.kernel[1]; }
  std::int64_t panel_elements() const { return taps() * depth_ * kernels_.tile_columns; }
  /// From a position to its neighbour along the width the operand's pixels move by so much; 0:
  /// neighbours have different taps.
  std::int64_t step() const {
    if (forward_) return window_.stride[1] * depth_;
    return window_.stride[1] == 1 ? depth_ : 0;
  }

  /// The operand's pixel below a tap, along one axis; negative in the padding.
  std::int64_t pixel(std::size_t axis, std::int64_t position, std::int64_t tap) const {
    const std::int64_t stride = window_.stride[axis], padding = window_.padding[axis];
    std::int64_t at = forward_ ? position * stride - padding + tap : position + padding - tap;
    if (!forward_) at = at >= 0 && at % stride == 0 ? at / stride : -1;
    return at < extents_[axis] ? at : -1;
  }

  /// The taps of a position, neighbours in one segment.
  std::vector<ProductSegment> segments_of(std::int64_t h, std::int64_t w) const {
    std::vector<ProductSegment> segments;
    for (std::int64_t tap = 0; tap < taps(); ++tap) {
      const std::int64_t row = pixel(0, h, tap / window_.kernel[1]);
      const std::int64_t column = pixel(1, w, tap % window_.kernel[1]);
      if (row < 0 || column < 0) continue;
      const ProductSegment next{(row * extents_[1] + column) * depth_,
                                tap * depth_ * kernels_.tile_columns, depth_};
      if (!segments.empty()) {
        ProductSegment& last = segments.back();
        if (last.a + last.length == next.a &&
            last.b + last.length * kernels_.tile_columns == next.b) {
          last.length += next.length;
          continue;
        }
      }
      segments.push_back(next);
    }
    return segments;
  }

  /// True where the taps of a position `apart` farther along the width are the same ones.
  bool same_taps(const std::vector<ProductSegment>& one, const std::vector<ProductSegment>& other,
                 std::int64_t apart) const {
    return std::ranges::equal(one, other, [&](const ProductSegment& a, const ProductSegment& b) {
      return a.a + apart * step() == b.a && a.b == b.b && a.length == b.length;
    });
  }

  /// The share of the tiles that so many rows take which is used.
  double used_share(std::int64_t rows) const {
    const std::int64_t tiles = divided_up(rows, kernels_.tile_rows);
    return static_cast<double>(rows) / static_cast<double>(tiles * kernels_.tile_rows);
  }

  /// Cuts one row of positions into tiles of either kind, whichever wastes less.
  void add_row(std::int64_t h) {
    const std::int64_t a_sample = extents_[0] * extents_[1] * depth_;
    for (std::int64_t w = 0; w < width_;) {
      const std::vector<ProductSegment> segments = segments_of(h, w);
      std::int64_t end = w + 1;
      if (step() > 0) {
        while (end < width_ && same_taps(segments, segments_of(h, end), end - w)) ++end;
      }
      TileRows tile{segments_.size(), segments.size(), 0, step(), (h * width_ + w) * columns_,
                    columns_,         end - w};
      add_segments(segments);
      if (end - w > 1 && used_share(end - w) >= used_share(batch_)) {
        for (std::int64_t sample = 0; sample < batch_; ++sample) {
          add_tiles(tile);
          tile.a += a_sample;
          tile.c += result_sample_;
        }
        w = end;
      } else {
        tile.a_stride = a_sample;
        tile.c_stride = result_sample_;
        tile.rows = batch_;
        add_tiles(tile);
        ++w;
      }
    }
  }

  void add_segments(const std::vector<ProductSegment>& segments) {
    segments_.insert(segments_.end(), segments.begin(), segments.end());
    const std::int64_t tap_elements = depth_ * kernels_.tile_columns;
    for (const ProductSegment& segment : segments) {
      const std::int64_t first = segment.b / tap_elements, count = segment.length / depth_;
      std::fill_n(taps_used_.begin() + first, count, true);
    }
  }

  /// Rows cut into tiles of about equal heights, because a flat tile is a slow one.
  void add_tiles(const TileRows& all) {
    const std::int64_t tiles = divided_up(all.rows, kernels_.tile_rows);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t first = all.rows * t / tiles;
      TileRows part = all;
      part.rows = all.rows * (t + 1) / tiles - first;
      part.a += first * all.a_stride;
      part.c += first * all.c_stride;
      tiles_.push_back(part);
    }
  }

  /// The weights {O, kh, kw, C} of some columns of the result, by tap and the operand's channels.
  /// Taps that no window has are left out.
  void pack_panel(std::int64_t panel, float* packed) const {
    const std::int64_t channels = window_.channels, row = taps() * channels;
    const std::int64_t first = panel * kernels_.tile_columns;
    const std::int64_t lines = std::min(kernels_.tile_columns, columns_ - first);
    ProductOperand operand{weight_, forward_ ? row : 1, forward_ ? 1 : row};
    operand.data += first * operand.line_stride;
    for (std::int64_t tap = 0; tap < taps(); ++tap) {
      if (taps_used_[tap]) {
        kernels_.pack(operand, lines, depth_, kernels_.tile_columns, packed);
      }
      operand.data += channels;
      packed += depth_ * kernels_.tile_columns;
    }
  }

  void multiply(const TileRows& tile, std::int64_t panel, const float* packed) const {
    const std::int64_t first = panel * kernels_.tile_columns;
    kernels_.multiply_rows(
        {segments_.data() + tile.first_segment, static_cast<std::int64_t>(tile.segments),
         operand_ + tile.a, tile.a_stride, packed, kernels_.tile_columns, result_ + tile.c + first,
         tile.c_stride, tile.rows, columns_ - first},
        Accumulation::overwrite);
  }

  const ProductKernels& kernels_;
  bool forward_;
  const Window& window_;
  const float *operand_, *weight_;
  float* result_;
  std::int64_t batch_;
  std::int64_t depth_, columns_;         ///< channels of the operand and of the result
  std::array<std::int64_t, 2> extents_;  ///< height and width of the operand
  std::int64_t width_, result_sample_;   ///< the result's, and its elements per sample
  std::vector<bool> taps_used_;
  std::vector<ProductSegment> segments_;
  std::vector<TileRows> tiles_;
};

// ---------------------------------------------------------------- the gradient of the weights

/// The gradient {O, kh, kw, C} as one matrix {O, columns} per *group* of taps. A group is one tap,
/// whose columns are the channels. Where these do not fill whole tiles, the images are copied with
/// their padding around them; then a whole row of taps is one group, because its pixels are
/// neighbours.
class WeightSums {
 public:
  WeightSums(const Window& window, const at::Tensor& x, const at::Tensor& dy,
             const at::Tensor& gradient)
      : kernels_(active_device().products()),
        window_(window),
        dy_(dy.const_data_ptr<float>()),
        gradient_(gradient.mutable_data_ptr<float>()),
        batch_(x.size(0)),
        out_channels_(dy.size(1)),
        height_(divided_up(out_channels_, divided_up(out_channels_, kernels_.tile_rows))) {
    images_ = x.const_data_ptr<float>();
    if (window.channels % kernels_.tile_columns != 0) pad_images();
  }

  void run(Accumulation accumulation) const {
    static thread_local PackedMemory memory;
    const std::int64_t samples = std::clamp<std::int64_t>(rows_of_block / positions(), 1, batch_);
    const std::int64_t panels = divided_up(out_channels_, height_);
    float* const packed = memory.room_for(samples * positions() * height_ * panels);
    for (std::int64_t first = 0; first < batch_; first += samples) {
      const std::int64_t count = std::min(samples, batch_ - first);
      at::parallel_for(0, panels, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = begin; p < end; ++p) pack_panel(p, first, count, packed);
      });
      const std::int64_t across = divided_up(columns(), kernels_.tile_columns);
      at::parallel_for(0, groups() * across, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          multiply(i / across, i % across * kernels_.tile_columns, first, count, packed,
                   accumulation);
        }
      });
      accumulation = Accumulation::add;
    }
  }

 private:
  /// Positions that are summed at a time: their packed gradients stay in a cache.
  static constexpr std::int64_t rows_of_block = 512;

  std::int64_t positions() const { return window_.out[0] * window_.out[1]; }
  std::int64_t groups() const { return window_.kernel[0] * (padded_ ? 1 : window_.kernel[1]); }
  std::int64_t columns() const { return window_.channels * (padded_ ? window_.kernel[1] : 1); }
  std::int64_t sample_elements() const { return window_.in[0] * window_.in[1] * window_.channels; }
  /// Terms follow each other along the width of an image, or along the batch where the images are
  /// narrow.
  bool along_width(std::int64_t samples) const {
    return window_.out[1] >= std::min<std::int64_t>(samples, 4);
  }

  /// A row of a tile may be read beyond the last pixel, so the copy ends in room for that.
  void pad_images() {
    static thread_local PackedMemory memory;
    const Window inner = window_;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      window_.in[axis] += 2 * window_.padding[axis];
      window_.padding[axis] = 0;
    }
    const std::int64_t elements = batch_ * sample_elements() + kernels_.tile_columns;
    float* const copy = memory.room_for(elements);
    std::fill_n(copy, elements, 0.0F);
    const std::int64_t row = inner.in[1] * inner.channels;
    for (std::int64_t line = 0; line < batch_ * inner.in[0]; ++line) {
      const std::int64_t sample = line / inner.in[0], h = line % inner.in[0] + inner.padding[0];
      const std::int64_t pixel = (sample * window_.in[0] + h) * window_.in[1] + inner.padding[1];
      std::copy_n(images_ + line * row, row, copy + pixel * inner.channels);
    }
    images_ = copy;
    padded_ = true;
  }

  /// Gradients {positions, channels} of some channels, in the order in which they are summed.
  void pack_panel(std::int64_t panel, std::int64_t first, std::int64_t samples,
                  float* packed) const {
    const std::int64_t rows = samples * positions(), channel = panel * height_;
    const std::int64_t lines = std::min(height_, out_channels_ - channel);
    const float* from = dy_ + first * positions() * out_channels_ + channel;
    packed += panel * height_ * rows;
    if (along_width(samples)) {
      return kernels_.pack({from, 1, out_channels_}, lines, rows, height_, packed);
    }
    for (std::int64_t position = 0; position < positions(); ++position) {
      kernels_.pack({from, 1, positions() * out_channels_}, lines, samples, height_, packed);
      from += out_channels_;
      packed += samples * height_;
    }
  }

  /// Positions [first, last) along an axis whose tap lies inside the image.
  std::array<std::int64_t, 2> inside(std::size_t axis, std::int64_t tap) const {
    const std::int64_t stride = window_.stride[axis], padding = window_.padding[axis];
    const std::int64_t beyond = window_.in[axis] + padding - tap;
    return {std::max<std::int64_t>(0, divided_up(padding - tap, stride)),
            beyond <= 0 ? 0 : std::min(window_.out[axis], (beyond - 1) / stride + 1)};
  }

  /// The terms of one group: packed gradients and the first of its columns of the images.
  std::vector<ProductSegment> segments_of(std::int64_t group, std::int64_t first,
                                          std::int64_t samples) const {
    const std::int64_t kh = padded_ ? group : group / window_.kernel[1];
    const std::int64_t kw = padded_ ? 0 : group % window_.kernel[1];
    const auto rows = inside(0, kh), widths = inside(1, kw);
    const auto image = [&](std::int64_t sample, std::int64_t h, std::int64_t w) {
      const std::int64_t line = h * window_.stride[0] - window_.padding[0] + kh;
      const std::int64_t pixel = w * window_.stride[1] - window_.padding[1] + kw;
      return (first + sample) * sample_elements() +
             (line * window_.in[1] + pixel) * window_.channels;
    };
    std::vector<ProductSegment> segments;
    if (along_width(samples)) {
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        for (std::int64_t h = rows[0]; h < rows[1]; ++h) {
          const std::int64_t row = (sample * window_.out[0] + h) * window_.out[1] + widths[0];
          if (widths[1] <= widths[0]) continue;
          segments.push_back({row * height_, image(sample, h, widths[0]), widths[1] - widths[0]});
        }
      }
    } else {
      for (std::int64_t h = rows[0]; h < rows[1]; ++h) {
        for (std::int64_t w = widths[0]; w < widths[1]; ++w) {
          const std::int64_t row = (h * window_.out[1] + w) * samples;
          segments.push_back({row * height_, image(0, h, w), samples});
        }
      }
    }
    return segments;
  }

  /// All channels of the result by one panel of a group's columns.
  void multiply(std::int64_t group, std::int64_t column, std::int64_t first, std::int64_t samples,
                const float* packed, Accumulation accumulation) const {
    const std::vector<ProductSegment> segments = segments_of(group, first, samples);
    const std::int64_t row = groups() * columns();
    const std::int64_t step =
        along_width(samples) ? window_.stride[1] * window_.channels : sample_elements();
    for (std::int64_t channel = 0; channel < out_channels_; channel += height_) {
      const ProductTile tile{segments.data(),
                             static_cast<std::int64_t>(segments.size()),
                             packed + channel * samples * positions(),
                             height_,
                             images_ + column,
                             step,
                             gradient_ + channel * row + group * columns() + column,
                             row,
                             std::min(height_, out_channels_ - channel),
                             columns() - column};
      kernels_.multiply_columns(tile, accumulation);
    }
  }

  const ProductKernels& kernels_;
  Window window_;
  const float *dy_, *images_ = nullptr;
  float* gradient_;
  std::int64_t batch_, out_channels_;
  std::int64_t height_;  ///< a tile's: channels of the result
  bool padded_ = false;
};

}  // namespace

void own_convolution(ProductKind pass, const Window& window, const at::Tensor& x,
                     const at::Tensor& weight, const at::Tensor& y, Accumulation accumulation) {
  switch (pass) {
    case ProductKind::conv:
      return TapSums(true, window, x, weight, y).run();
    case ProductKind::conv_input:
      return TapSums(false, window, y, weight, x).run();
    default:
      HETEROPERF_EXPECT(pass == ProductKind::conv_weight);
      return WeightSums(window, x, y, weight).run(accumulation);
  }
}

}  // namespace heteroperf

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

enum class Split { train, validation };

/// The contents of a sample: an image and its label; tokens, each with the next one as its target;
/// an image and a text that belong together, without targets; images and a text that has places
/// for them, some of whose tokens have the next one as their target; an image and a text with the
/// label 1 where they belong together, else 0; or tokens some of which have a row of values as
/// their target.
enum class SampleKind { images, tokens, pairs, captions, matches, regression };
constexpr std::array<std::string_view, 6> value_names(SampleKind) {
  return {"images", "tokens", "pairs", "captions", "matches", "regression"};
}

/// The form of one sample. An image has `channels·height·width` values, a text `length` indices
/// below the vocabulary.
struct SampleSpec {
  SampleKind kind = SampleKind::images;
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t length = 0;
  std::int64_t classes = 0;  ///< number of labels, or vocabulary
  /// The places in a text that wait for an image's rows. They hold the vocabulary's last token but
  /// one.
  std::int64_t image_places = 0;
  /// 0: a sample has one image. Else it has any number from the fewest to this.
  std::int64_t images = 0, fewest_images = 0;
  std::int64_t features = 0;  ///< values of a target; 0: targets are indices
  friend bool operator==(const SampleSpec&, const SampleSpec&) = default;

  bool has_image() const { return kind != SampleKind::tokens && kind != SampleKind::regression; }
  bool has_text() const { return kind != SampleKind::images; }
  /// Its only target is a label.
  bool is_labelled() const { return kind == SampleKind::images || kind == SampleKind::matches; }
  /// Counts the values of an image.
  std::int64_t pixels() const { return channels * height * width; }
  /// Counts the targets of one sample.
  std::int64_t targets() const {
    return is_labelled() ? 1 : kind == SampleKind::pairs ? 0 : length;
  }
  /// Some targets do not count: indices of −1, rows of values that begin with a NaN.
  bool lacks_targets() const {
    return kind == SampleKind::captions || kind == SampleKind::regression;
  }
};
/// Returns the sample that a model takes: the inputs tell its extents, the loss the targets and
/// their classes. Throws UserError where no kind of sample has such inputs and such a loss.
SampleSpec sample_of(const ModelGraph& graph);

/// Gives every token of a text with places for images the one behind it as its target. Places, last
/// tokens and what fills the text have none, nor is a place one.
void write_caption_targets(const SampleSpec& spec, std::span<const std::int64_t> tokens,
                           std::span<std::int64_t> targets);

/// The place where a reader writes one sample: spans of exactly the spec's sizes (of pixels, those
/// of all its images), empty for what such a sample does not have.
struct SampleView {
  std::span<float> pixels;
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;
  std::span<float> values =
      {};  ///< in place of targets: a row of the spec's features for each token
};

/// Samples by number. A source does not change once it is made; many threads may call `read`.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const SampleSpec& spec() const = 0;
  /// Returns the samples in the split. Generated sources answer 2^40, which no run exhausts.
  virtual std::uint64_t size(Split split) const = 0;
  /// Counts the images of sample `index` < size(split), in O(1): between the fewest and the most of
  /// the spec.
  virtual std::int64_t images(Split, std::uint64_t) const { return 1; }
  /// Writes sample `index` < size(split), in O(1). The splits never share a sample.
  virtual void read(Split split, std::uint64_t index, SampleView out) const = 0;

  /// Returns one line for reports: kind, path, seed, sizes.
  virtual std::string description() const = 0;
  /// Returns 32 hexadecimal digits over everything that determines the samples.
  virtual std::string fingerprint() const = 0;
  /// Returns the lowest reachable mean loss in nats, or nothing, as for generated images: the
  /// entropy of generated tokens, of captions whose image is in sight, or of whether a scene and a
  /// text belong together, and for pairs what is left where each is told from `evaluated_pairs` of
  /// them, since some texts fit several images.
  virtual std::optional<double> loss_floor() const { return std::nullopt; }
  /// Returns the lowest reachable error rate (the Bayes error of generated images), or nothing.
  virtual std::optional<double> error_floor() const { return std::nullopt; }
};

/// Returns the sample number at a position of an endless pass over `size` samples. Each epoch is a
/// permutation of its own (a keyed bijection), made in O(1) from the seed.
std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t size, std::uint64_t position);

/// A request for data: the `--data` argument, and the samples that the model wants.
struct DataRequest {
  std::string source = "generated";  ///< generated[:PIXELS] | idx:DIR | cifar10:DIR | pairs:DIR |
                                     ///< text:FILE | tokens:FILE
  SampleSpec wanted;  ///< the kind; with a text also length, vocabulary and places for images
  std::uint64_t seed = 1;
};

/// One kind of source, as `list datasets` shows it.
struct DataKind {
  std::string prefix;    ///< "idx"
  std::string argument;  ///< "DIR", "FILE", "PIXELS"
  std::string summary;
  std::vector<SampleKind> serves;
  bool optional = false;  ///< the argument
  /// "idx:DIR", "generated[:PIXELS]".
  std::string form() const;
};
/// Returns all kinds that `open_data` knows, in the order to be listed.
std::vector<DataKind> data_kinds();

/// Opens the source. Image files decide height, width, channels and classes themselves, so `wanted`
/// only gives their kind. Throws UserError with path, offset and expectation for any malformed,
/// truncated or missing file, and when the source cannot serve `wanted`.
std::shared_ptr<const DataSource> open_data(const DataRequest& request);

/// Tells if a `--data` argument names generated data.
bool is_generated(const std::string& source);
/// Returns the samples that generated data have where a model wants these: PIXELS replace their
/// height and width. Throws UserError where PIXELS is no number.
SampleSpec generated_spec(const std::string& source, SampleSpec wanted);

/// Does the part of open_data that reads no sample: throws where the source is unknown, cannot
/// serve this kind, or its file or folder is missing.
void check_data(const std::string& source, SampleKind wanted);

}  // namespace heteroperf

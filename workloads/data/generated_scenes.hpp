#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workloads/data/data_source.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {

/// A thing of a scene, or what a phrase tells of one: a fact that was left out is −1.
struct SceneObject {
  std::int8_t cell = -1;  ///< 0 … 8, row by row in a square of nine
  std::int8_t shape =
      -1;  ///< 0 … 7: square, frame, plus, saltire, triangle up, down, bar flat, upright
  std::int8_t colour = -1;  ///< 0 … 7, a bit per channel that is set where the channel is bright
  std::int8_t size = -1;    ///< 0 … 2, small to large
  friend bool operator==(const SceneObject&, const SceneObject&) = default;
};

/// Pictures of scenes with captions, whose law is known. A scene has 2 to 5 objects (each number as
/// likely) in distinct cells of a square of nine; shape, colour and size of each are uniform. A
/// caption tells of 1 to 3 of them (uniform, and at most as many as there are), any choice as
/// likely, in the order of their cells; each phrase names the shape, and with chance 3/4 each the
/// colour, the size and the cell. Because of what is left out, several scenes fit one caption and
/// several captions one scene, and the chances of both are known in closed form:
///
///   P(caption | scene) = keep(caption) · matches / (min(k, 3) · C(k, n))   for n ≤ min(k, 3)
///
/// with k objects and n phrases, where `matches` counts the choices of n objects that the phrases
/// fit one by one, and keep is the chance of telling these facts. A model that pairs pictures with
/// captions can do no better than the ratio P(caption | scene) / P(caption), see
/// contrastive_floor().
///
/// A text is 0, the phrases with 29 between two of them, and the vocabulary's last token, which
/// also fills the rest. A phrase is [size] [colour] shape [cell]: shapes are 1 … 8, colours 9 … 16,
/// sizes 17 … 19, cells 20 … 28. The splits differ in the key of their samples.
///
/// As `pairs` a text has no targets. As `captions` the places for the image come before it, and
/// each token of the caption is the target of the one before, up to the first of the last tokens.
/// A sample of several images, each of a scene of its own, has for one after another its places,
/// its caption and a last token; one without images has a caption alone. Each number of images from
/// the fewest to the most is as likely. As `matches` one half of the pictures have the caption of
/// another scene, and the label 0; the chance that a caption belongs to a picture is r / (r + 1)
/// with the ratio r from above.
class GeneratedScenes : public DataSource {
 public:
  static constexpr std::int64_t longest_caption = 16, fewest_tokens = 32;
  struct Scene {
    std::vector<SceneObject> objects;  ///< by cell, all facts known
    std::vector<SceneObject> caption;  ///< its phrases
  };

  /// `spec` has images of 24 to 4096 pixels a side and 3 channels, and a text of at least
  /// `longest_caption` tokens behind the places for each image, out of at least `fewest_tokens`.
  /// Zeros stand for 3×32×32, the longest caption and the fewest tokens. Throws UserError with
  /// every value out of range.
  GeneratedScenes(const SampleSpec& spec, std::uint64_t seed);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override;
  std::int64_t images(Split split, std::uint64_t index) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override;
  std::optional<double> loss_floor() const override {
    if (spec_.kind == SampleKind::pairs) return contrastive_floor(evaluated_pairs);
    if (spec_.kind == SampleKind::matches) return match_entropy();
    return caption_floor();
  }

  /// The hidden cause of a sample, or of one of its images, for oracles. Its caption may be another
  /// scene's.
  Scene scene(Split split, std::uint64_t index, std::int64_t image = 0) const;

  /// Returns P(caption) over all scenes, for a caption of 1 to 3 phrases that tell shapes.
  static double chance(std::span<const SceneObject> caption);
  /// Returns P(caption | scene), where `objects` are a scene's.
  static double chance(std::span<const SceneObject> caption, std::span<const SceneObject> objects);

  // The numbers below are averages over drawn pairs of a fixed key: the same bits for every seed
  // and on every machine.

  /// Returns the lowest mean InfoNCE loss over `contrasted` ≥ 1 pairs, both ways: −ln r(i, i) / Σ_j
  /// r(i, j) over rows and columns, r = P(caption | scene) / P(caption). Its standard error is
  /// 0.003 for 64 pairs and grows to 0.03 for 32768.
  static double contrastive_floor(std::uint64_t contrasted);
  /// Returns the mean of −ln P(caption | scene) in nats per caption (standard error 0.01), the
  /// least with the picture in sight.
  static double caption_entropy_given_scene();
  /// Returns the mean of −ln P(caption) (standard error 0.03), the least without the picture.
  static double caption_entropy();
  /// Returns the mean of −ln P(label | scene, caption) where every second caption is another
  /// scene's (standard error 0.0002).
  static double match_entropy();
  /// Returns the mean number of tokens behind the first one, with a single last token: a phrase has
  /// 3.25 and one that follows it.
  static constexpr double mean_caption_tokens() { return 4.25 * 1.875; }

 private:
  /// The entropy of captions per token; one in a sample without images is told by nothing.
  double caption_floor() const;
  /// The bits from which a part of a sample is drawn.
  std::uint64_t drawn(std::uint64_t key, Split split, std::uint64_t index,
                      std::int64_t image) const;
  /// As `matches` every sample's caption is its own with chance 1/2.
  bool has_own_caption(Split split, std::uint64_t index) const;

  SampleSpec spec_;
  std::uint64_t seed_;
};

}  // namespace heteroperf

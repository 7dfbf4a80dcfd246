#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workloads/graph/node_kinds.hpp"

namespace heteroperf {

enum class Split { train, validation };

/// The form of one sample. Images have `channels·height·width` values and one label below
/// `classes`. Tokens are `length` indices below `classes` and as many targets (the next tokens).
struct SampleSpec {
  InputKind kind = InputKind::images;
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t length = 0;
  std::int64_t classes = 0;  ///< number of labels, or vocabulary
  friend bool operator==(const SampleSpec&, const SampleSpec&) = default;
};

/// The place where a reader writes one sample: spans of exactly the spec's sizes. For images
/// `tokens` is empty and `targets` has one element; for tokens `pixels` is empty.
struct SampleView {
  std::span<float> pixels;
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;
};

/// Samples by number. A source does not change once it is made; many threads may call `read`.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const SampleSpec& spec() const = 0;
  /// Returns the samples in the split. Generated sources answer 2^40, which no run exhausts.
  virtual std::uint64_t size(Split split) const = 0;
  /// Writes sample `index` < size(split), in O(1). The splits never share a sample.
  virtual void read(Split split, std::uint64_t index, SampleView out) const = 0;

  /// Returns one line for reports: kind, path, seed, sizes.
  virtual std::string description() const = 0;
  /// Returns 32 hexadecimal digits over everything that determines the samples.
  virtual std::string fingerprint() const = 0;
  /// Returns the lowest reachable mean cross-entropy in nats (the entropy of generated tokens), or
  /// nothing, as for generated images.
  virtual std::optional<double> loss_floor() const { return std::nullopt; }
  /// Returns the lowest reachable error rate (the Bayes error of generated images), or nothing.
  virtual std::optional<double> error_floor() const { return std::nullopt; }
};

/// Returns the sample number at a position of an endless pass over `size` samples. Each epoch is a
/// permutation of its own (a keyed bijection), made in O(1) from the seed.
std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t size, std::uint64_t position);

/// A request for data: the `--data` argument, and the samples that the model wants.
struct DataRequest {
  std::string source =
      "generated";    ///< generated[:PIXELS] | idx:DIR | cifar10:DIR | text:FILE | tokens:FILE
  SampleSpec wanted;  ///< the kind; for tokens also length and vocabulary
  std::uint64_t seed = 1;
};

/// One kind of source, as `list datasets` shows it.
struct DataKind {
  std::string prefix;    ///< "idx"
  std::string argument;  ///< "DIR", "FILE", "PIXELS"
  std::string summary;
  std::vector<InputKind> serves;
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

/// Does the part of open_data that reads no sample: throws where the source is unknown, cannot
/// serve this kind, or its file or folder is missing.
void check_data(const std::string& source, InputKind wanted);

}  // namespace heteroperf

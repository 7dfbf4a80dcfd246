#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workloads/node_attributes.hpp"

namespace heteroperf {

enum class Split { train, validation };

/// What one sample looks like. images: `channels·height·width` values and one label below
/// `classes`. tokens: `length` indices below `classes` and as many targets (the next tokens).
struct SampleSpec {
  InputKind kind = InputKind::images;
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t length = 0;
  std::int64_t classes = 0;  ///< labels or vocabulary
  friend bool operator==(const SampleSpec&, const SampleSpec&) = default;
};

/// Where a reader writes one sample; spans of exactly the spec's sizes. For images `tokens` is
/// empty and `targets` has one element; for tokens `pixels` is empty.
struct SampleView {
  std::span<float> pixels;
  std::span<std::int64_t> tokens;
  std::span<std::int64_t> targets;
};

/// Samples by number. Immutable after construction; `read` may be called from many threads.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const SampleSpec& spec() const = 0;
  /// Samples in the split. Generated sources answer 2^40 (without end for any run).
  virtual std::uint64_t size(Split split) const = 0;
  /// Writes sample `index` < size(split) in O(1). The splits never share a sample.
  virtual void read(Split split, std::uint64_t index, SampleView out) const = 0;

  /// One line for reports: kind, path, seed, sizes.
  virtual std::string description() const = 0;
  /// 32 hexadecimal digits over everything that determines the samples.
  virtual std::string fingerprint() const = 0;
  /// The lowest reachable mean cross-entropy in nats (entropy of generated tokens); generated
  /// images answer nothing here.
  virtual std::optional<double> loss_floor() const { return std::nullopt; }
  /// The lowest reachable error rate (Bayes error of generated images).
  virtual std::optional<double> error_floor() const { return std::nullopt; }
};

/// Sample number at position `position` of an endless pass over `size` samples: each epoch is a
/// permutation of its own (a keyed bijection), made in O(1) from the seed.
std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t size, std::uint64_t position);

/// What a `--data` argument asks for, and the shape the model wants.
struct DataRequest {
  std::string source =
      "generated";    ///< generated | idx:DIR | cifar10:DIR | text:FILE | tokens:FILE
  SampleSpec wanted;  ///< kind, and for tokens length and vocabulary
  std::uint64_t seed = 1;
};

/// One kind of source, as `list datasets` shows it.
struct DataKind {
  std::string prefix;    ///< "idx"
  std::string argument;  ///< "DIR", "FILE" or empty
  std::string summary;
  std::vector<InputKind> serves;
};
/// All kinds that `open_data` knows, in the order to be listed.
std::vector<DataKind> data_kinds();

/// Opens the source. Image files decide height, width, channels and classes themselves (`wanted`
/// then only gives the kind). Throws UserError with path, offset and expectation on any malformed,
/// truncated or missing file, and when the source cannot serve `wanted`.
std::shared_ptr<const DataSource> open_data(const DataRequest& request);

/// The part of open_data that reads no sample: throws where the source is unknown, cannot serve
/// this kind, or its file or folder is not there.
void check_data(const std::string& source, InputKind wanted);

}  // namespace heteroperf

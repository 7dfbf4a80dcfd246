#include "workloads/data/pair_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/name_table.hpp"
#include "workloads/data/idx_file.hpp"
#include "workloads/data/sample_order.hpp"
#include "workloads/data/stored_pixels.hpp"

// Everything is read once and held in memory as it is in the files; read() puts a sample together.

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t held_out_pairs_one_in = 6;
constexpr std::array pixel_types{IdxType::u8};
constexpr std::array token_types{IdxType::u8, IdxType::i16, IdxType::i32};

/// Samples in the order of the files.
struct PairFiles {
  StoredPixels pixels;
  std::vector<std::int64_t> tokens;        ///< {sample, length}
  std::vector<std::uint32_t> first_image;  ///< by sample, and behind the last one
  std::int64_t length = 0;
  bool counted = false;  ///< the files say how many images a sample has

  std::size_t samples() const { return first_image.size() - 1; }
  std::int64_t images(std::size_t sample) const {
    return first_image[sample + 1] - first_image[sample];
  }
  std::span<const std::int64_t> text(std::size_t sample) const {
    return std::span(tokens).subspan(sample * length, length);
  }
};

/// Reads the files of a split; nothing where all are missing.
std::optional<PairFiles> read_split(const fs::path& folder, const std::string& prefix) {
  auto images = find_idx(folder, prefix + "images", 4, pixel_types);
  if (!images) images = find_idx(folder, prefix + "images", 3, pixel_types);
  const auto texts = find_idx(folder, prefix + "texts", 2, token_types);
  const auto counts = find_idx(folder, prefix + "counts", 1, pixel_types);
  if (!images && !texts && !counts) return std::nullopt;
  ProblemList problems;
  const auto expect = [&](const auto& file, const std::string& stem, std::uint8_t dims,
                          std::span<const IdxType> types) {
    if (file) return;
    problems.add(fmt::format("'{}' has no {}", folder.string(), stem),
                 fmt::format("looked for {}[.gz]", idx_name(stem, dims, types)),
                 "Images and texts stand in files of their own.");
  };
  expect(images, prefix + "images", 4, pixel_types);
  expect(texts, prefix + "texts", 2, token_types);
  problems.throw_if_any();
  IdxValues pixels = read_idx(*images, "images");
  const IdxValues tokens = read_idx(*texts, "texts");
  PairFiles files;
  const std::size_t last = pixels.shape.size() - 1;
  files.pixels.channels = last == 3 ? static_cast<std::int64_t>(pixels.shape[1]) : 1;
  files.pixels.height = static_cast<std::int64_t>(pixels.shape[last - 1]);
  files.pixels.width = static_cast<std::int64_t>(pixels.shape[last]);
  files.pixels.bytes = std::move(pixels.bytes);
  files.length = static_cast<std::int64_t>(tokens.shape[1]);
  for (std::size_t i = 0; i < tokens.shape[0] * tokens.shape[1]; ++i) {
    files.tokens.push_back(tokens[i]);
  }
  std::vector<std::uint8_t> numbers(tokens.shape[0], 1);
  files.counted = counts.has_value();
  if (counts) numbers = read_idx(*counts, "counts").bytes;
  if (numbers.size() != tokens.shape[0]) {
    problems.add(fmt::format("'{}' counts the images of {} samples", counts->path, numbers.size()),
                 fmt::format("'{}' has {} texts", texts->path, tokens.shape[0]));
  }
  files.first_image.push_back(0);
  for (const std::uint8_t number : numbers) {
    files.first_image.push_back(files.first_image.back() + number);
  }
  if (files.first_image.back() != pixels.shape[0]) {
    problems.add(fmt::format("'{}' has {} images", images->path, pixels.shape[0]),
                 fmt::format("{} belong to the {} texts of '{}'", files.first_image.back(),
                             tokens.shape[0], texts->path));
  }
  problems.throw_if_any();
  return files;
}

/// Adds the samples of another split behind the first ones. Throws UserError where they have other
/// shapes.
void append(PairFiles& files, const PairFiles& more, const std::string& folder) {
  const auto shape = [](const PairFiles& of) {
    return fmt::format("{}x{}x{} and {} tokens{}", of.pixels.channels, of.pixels.height,
                       of.pixels.width, of.length, of.counted ? ", with counts" : "");
  };
  if (shape(files) != shape(more)) {
    throw UserError(
        fmt::format("'{}' trains on {} and tests on {}", folder, shape(files), shape(more)),
        "they must be equal");
  }
  files.pixels.bytes.insert(files.pixels.bytes.end(), more.pixels.bytes.begin(),
                            more.pixels.bytes.end());
  files.tokens.insert(files.tokens.end(), more.tokens.begin(), more.tokens.end());
  const std::uint32_t before = files.first_image.back();
  for (std::size_t i = 1; i < more.first_image.size(); ++i) {
    files.first_image.push_back(before + more.first_image[i]);
  }
}

class StoredPairs final : public DataSource {
 public:
  StoredPairs(std::string folder, PairFiles files, SplitLists lists, const SampleSpec& wanted)
      : folder_(std::move(folder)), files_(std::move(files)), lists_(std::move(lists)) {
    if (lists_.train.empty() || lists_.validation.empty()) {
      throw UserError(fmt::format("'{}' leaves {} samples for training and {} for validation",
                                  folder_, lists_.train.size(), lists_.validation.size()),
                      "both need at least one, and equal texts stay together",
                      "Use a larger data set.");
    }
    fit(wanted);
    std::vector<std::uint32_t> images;
    for (const std::uint32_t sample : lists_.train) {
      for (std::uint32_t i = files_.first_image[sample]; i < files_.first_image[sample + 1]; ++i) {
        images.push_back(i);
      }
    }
    if (images.empty()) {
      throw UserError(fmt::format("no training sample of '{}' has an image", folder_),
                      "they are normalised by those of the training split");
    }
    files_.pixels.normalise_by(images);
    hash_contents();
  }

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override { return lists_[split].size(); }
  std::int64_t images(Split split, std::uint64_t index) const override {
    return files_.images(lists_[split][index]);
  }

  void read(Split split, std::uint64_t index, SampleView out) const override {
    const std::uint32_t sample = lists_[split][index];
    const std::size_t pixels = spec_.pixels();
    const std::int64_t number = files_.images(sample);
    for (std::int64_t i = 0; i < number; ++i) {
      files_.pixels.serve(files_.first_image[sample] + i, out.pixels.subspan(i * pixels, pixels));
    }
    std::ranges::copy(expanded(sample), out.tokens.begin());
    if (spec_.kind == SampleKind::captions) write_caption_targets(spec_, out.tokens, out.targets);
  }

  std::string description() const override {
    std::string number = "an image";
    if (spec_.images > 0) {
      number = fmt::format("{} to {} images", spec_.fewest_images, spec_.images);
    }
    return fmt::format(
        "pairs:{}: {} of {}×{}×{} with {} tokens, vocabulary {}, {} training and {} "
        "validation samples",
        folder_, number, spec_.channels, spec_.height, spec_.width, spec_.length, spec_.classes,
        lists_.train.size(), lists_.validation.size());
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::int64_t end() const { return spec_.classes - 1; }
  std::int64_t mark() const { return spec_.classes - 2; }

  /// Takes the model's vocabulary and the files' shapes, and notes everything that does not fit.
  void fit(const SampleSpec& wanted) {
    spec_ = {.kind = wanted.kind,
             .channels = files_.pixels.channels,
             .height = files_.pixels.height,
             .width = files_.pixels.width,
             .length = files_.length,
             .classes = wanted.classes,
             .image_places = wanted.image_places};
    ProblemList problems;
    const auto beyond = std::ranges::find_if(
        files_.tokens, [&](std::int64_t token) { return token < 0 || token >= spec_.classes; });
    if (beyond != files_.tokens.end()) {
      const auto at = beyond - files_.tokens.begin();
      problems.add(fmt::format("token {} of text {} in '{}' is {}", at % files_.length,
                               at / files_.length, folder_, *beyond),
                   fmt::format("the model's vocabulary is 0 to {}", end()),
                   "Use a model with a larger vocabulary, or other texts.");
    }
    std::int64_t fewest = 255, most = 0;
    for (std::size_t sample = 0; sample < files_.samples(); ++sample) {
      fewest = std::min(fewest, files_.images(sample));
      most = std::max(most, files_.images(sample));
    }
    if (wanted.kind == SampleKind::pairs) {
      if (fewest != 1 || most != 1) {
        problems.add(fmt::format("samples of '{}' have {} to {} images", folder_, fewest, most),
                     "a pair has one", "Use a vlm, whose texts take any number.");
      }
      problems.throw_if_any();
      return;
    }
    fit_captions(wanted, fewest, most, problems);
    problems.throw_if_any();
  }

  void fit_captions(const SampleSpec& wanted, std::int64_t fewest, std::int64_t most,
                    ProblemList& problems) {
    if (files_.counted) {
      spec_.fewest_images = fewest;
      spec_.images = most;
    }
    if (spec_.channels != wanted.channels || spec_.height != wanted.height ||
        spec_.width != wanted.width) {
      problems.add(fmt::format("images of '{}' are {}x{}x{}", folder_, spec_.channels, spec_.height,
                               spec_.width),
                   fmt::format("the {} places of an image are for {}x{}x{}", spec_.image_places,
                               wanted.channels, wanted.height, wanted.width),
                   "Scale them, or use another size of the model.");
    }
    if (wanted.images > 0 && most > wanted.images) {
      problems.add(fmt::format("a sample of '{}' has {} images", folder_, most),
                   fmt::format("the model takes {} at most", wanted.images),
                   "Give a larger --images.");
    }
    std::size_t longest = 0;
    bool marks_fit = true;
    for (std::size_t sample = 0; sample < files_.samples(); ++sample) {
      longest = std::max(longest, expanded(sample).size());
      const auto marks = std::ranges::count(files_.text(sample), mark());
      if (marks == 0 || marks == files_.images(sample) || !marks_fit) continue;
      marks_fit = false;  // one example tells enough
      problems.add(fmt::format("text {} of '{}' has places for {} images", sample, folder_, marks),
                   fmt::format("the sample has {}", files_.images(sample)),
                   fmt::format("Put token {} where an image stands, or nowhere.", mark()));
    }
    spec_.length = wanted.length;
    if (static_cast<std::int64_t>(longest) > wanted.length) {
      problems.add(fmt::format("a text of '{}' has {} tokens with the places of its images",
                               folder_, longest),
                   fmt::format("the model takes {}", wanted.length),
                   fmt::format("Give --set model.sequence_length={}.", longest));
    }
  }

  /// A text with the places of its images, filled up to the length of the sample.
  std::vector<std::int64_t> expanded(std::size_t sample) const {
    std::span<const std::int64_t> text = files_.text(sample);
    std::vector<std::int64_t> tokens;
    if (spec_.kind == SampleKind::pairs) return {text.begin(), text.end()};
    while (!text.empty() && text.back() == end()) text = text.first(text.size() - 1);
    const std::size_t places = spec_.image_places, length = spec_.length;
    if (std::ranges::count(text, mark()) == 0) {
      tokens.assign(places * files_.images(sample), mark());
    }
    for (const std::int64_t token : text)
      tokens.insert(tokens.end(), token == mark() ? places : 1, token);
    tokens.push_back(end());
    tokens.resize(std::max(tokens.size(), length), end());
    return tokens;
  }

  void hash_contents() {
    Hash128 hash("stored pairs 1");
    hash.update(to_string(spec_.kind)).update(spec_.channels).update(spec_.height);
    hash.update(spec_.width).update(spec_.length).update(spec_.classes).update(spec_.image_places);
    hash.update(std::as_bytes(std::span(files_.pixels.bytes)));
    hash.update(std::as_bytes(std::span(files_.tokens)));
    hash.update(std::as_bytes(std::span(files_.first_image)));
    for (Split split : {Split::train, Split::validation}) {
      hash.update(std::as_bytes(std::span(lists_[split])));
    }
    fingerprint_ = hash.hex();
  }

  std::string folder_;
  PairFiles files_;
  SplitLists lists_;
  SampleSpec spec_;
  std::string fingerprint_;
};

}  // namespace

std::shared_ptr<const DataSource> open_pair_folder(const std::string& folder,
                                                   const SampleSpec& wanted) {
  auto train = read_split(folder, "train-"), test = read_split(folder, "t10k-");
  auto& first = train ? train : test;
  if (!first) first = read_split(folder, "");
  if (!first) {
    throw UserError("'" + folder + "' holds no pairs",
                    "looked for [train-|t10k-]images-idx4-ubyte[.gz] and texts-idx2-short[.gz]",
                    "Give the folder that holds them as pairs:DIR.");
  }
  SplitLists lists;
  if (train && test) {
    const std::size_t trained = train->samples();
    append(*train, *test, folder);
    lists = split_after(trained, train->samples());
  } else {
    std::vector<std::uint64_t> hashes;
    for (std::size_t i = 0; i < first->samples(); ++i) {
      hashes.push_back(Hash128("held-out text").update(std::as_bytes(first->text(i))).high());
    }
    lists = hold_out(hashes, held_out_pairs_one_in);
  }
  return std::make_shared<StoredPairs>(folder, std::move(*first), std::move(lists), wanted);
}

}  // namespace heteroperf

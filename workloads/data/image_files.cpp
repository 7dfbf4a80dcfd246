#include "workloads/data/image_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "workloads/data/idx_file.hpp"
#include "workloads/data/input_file.hpp"
#include "workloads/data/sample_order.hpp"
#include "workloads/data/stored_pixels.hpp"

// Two folder formats, IDX and CIFAR-10, are read into one class, StoredImages.

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t held_out_one_in = 6;

/// Images of equal shape with one label each.
struct LabelledImages : StoredPixels {
  std::vector<std::uint8_t> labels = {};
};

/// Holds out a sixth of the images by the hash of their pixels, so that repeats stay on one side.
SplitLists hold_out_images(const LabelledImages& images) {
  std::vector<std::uint64_t> hashes(images.labels.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = Hash128("held-out image").update(std::as_bytes(images.image(i))).high();
  }
  return hold_out(hashes, held_out_one_in);
}

/// Image files that were read once. Pixels are served as (x − mean) / deviation, with the mean and
/// the standard deviation of each channel over the training split.
class StoredImages : public DataSource {
 public:
  /// `name` is the `--data` argument, for reports. Throws UserError when a split is empty.
  StoredImages(std::string name, LabelledImages images, SplitLists lists, std::int64_t classes)
      : name_(std::move(name)), images_(std::move(images)), lists_(std::move(lists)) {
    if (lists_.train.empty() || lists_.validation.empty()) {
      throw UserError(fmt::format("'{}' leaves {} images for training and {} for validation", name_,
                                  lists_.train.size(), lists_.validation.size()),
                      "both need at least one, and equal images stay together",
                      "Use a larger data set.");
    }
    spec_ = {.kind = SampleKind::images,
             .channels = images_.channels,
             .height = images_.height,
             .width = images_.width,
             .classes = classes};
    images_.normalise_by(lists_.train);
    hash_contents();
  }

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override { return lists_[split].size(); }
  std::string fingerprint() const override { return fingerprint_; }

  std::string description() const override {
    return fmt::format("{}: {}×{}×{}, {} classes, {} training and {} validation images", name_,
                       spec_.channels, spec_.height, spec_.width, spec_.classes,
                       lists_.train.size(), lists_.validation.size());
  }

  void read(Split split, std::uint64_t index, SampleView out) const override {
    HETEROPERF_EXPECT(index < size(split));
    HETEROPERF_EXPECT(out.pixels.size() == images_.bytes_per_image() && out.targets.size() == 1);
    const std::uint32_t number = lists_[split][index];
    images_.serve(number, out.pixels);
    out.targets[0] = images_.labels[number];
  }

 private:
  /// Takes the fingerprint of shapes, pixels, labels and splits.
  void hash_contents() {
    Hash128 hash("stored images 1");
    hash.update(spec_.channels).update(spec_.height).update(spec_.width).update(spec_.classes);
    hash.update(std::as_bytes(std::span(images_.bytes)));
    hash.update(std::as_bytes(std::span(images_.labels)));
    for (Split split : {Split::train, Split::validation}) {
      hash.update(std::as_bytes(std::span(lists_[split])));
    }
    fingerprint_ = hash.hex();
  }

  std::string name_;
  LabelledImages images_;
  SplitLists lists_;
  SampleSpec spec_;
  std::string fingerprint_;
};

constexpr std::array bytes_only{IdxType::u8};

/// The two files of one split.
struct IdxPair {
  IdxFile images, labels;
};

/// Reads images and labels, which must be equally many.
LabelledImages read_pair(const IdxPair& files) {
  IdxValues pixels = read_idx(files.images, "images");
  IdxValues labels = read_idx(files.labels, "labels");
  if (pixels.shape[0] != labels.shape[0]) {
    throw UserError(fmt::format("'{}' has {} images, '{}' has {} labels", files.images.path,
                                pixels.shape[0], files.labels.path, labels.shape[0]),
                    "they must be equal", "Take both files from the same data set.");
  }
  LabelledImages images;
  images.channels = 1;
  images.height = static_cast<std::int64_t>(pixels.shape[1]);
  images.width = static_cast<std::int64_t>(pixels.shape[2]);
  images.bytes = std::move(pixels.bytes);
  images.labels = std::move(labels.bytes);
  return images;
}

/// Finds the two files of a split; nothing where both are missing. Throws UserError where one is.
std::optional<IdxPair> find_pair(const fs::path& folder, const std::string& prefix) {
  const auto images = find_idx(folder, prefix + "images", 3, bytes_only);
  const auto labels = find_idx(folder, prefix + "labels", 1, bytes_only);
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    throw UserError(fmt::format("'{}' has no partner", images ? images->path : labels->path),
                    fmt::format("'{}/{}{}-ubyte' or '.gz' is missing", folder.string(), prefix,
                                images ? "labels-idx1" : "images-idx3"));
  }
  return IdxPair{*images, *labels};
}

/// Throws UserError where the test images have another size, or labels beyond the training labels.
void check_test_pair(const std::string& folder, const LabelledImages& train,
                     const LabelledImages& test, std::int64_t classes) {
  ProblemList problems;
  if (train.height != test.height || train.width != test.width) {
    problems.add(fmt::format("'{}' trains on {}×{} images and tests on {}×{}", folder, train.height,
                             train.width, test.height, test.width),
                 "they must be equal");
  }
  const auto high = std::max_element(test.labels.begin(), test.labels.end());
  if (high != test.labels.end() && *high >= classes) {
    problems.add(
        fmt::format("test label {} of '{}' is {}", high - test.labels.begin(), folder, *high),
        fmt::format("the training labels are 0 to {}", classes - 1));
  }
  problems.throw_if_any();
}

/// Counts the classes by the highest label. Refuses labels that leave out a class, as a label that
/// is damaged upwards does. Some data sets count from 1, so class 0 may be empty.
std::int64_t count_classes(const std::string& folder, const std::string& path,
                           const std::vector<std::uint8_t>& labels) {
  if (labels.empty()) throw UserError("'" + folder + "' holds no images");
  const auto highest = *std::max_element(labels.begin(), labels.end());
  if (highest == 0) {
    throw UserError("all labels of '" + folder + "' are 0", "a classifier needs two classes");
  }
  for (int label = 1; label < highest; ++label) {
    if (std::find(labels.begin(), labels.end(), label) != labels.end()) continue;
    const auto above =
        std::find_if(labels.begin(), labels.end(), [&](std::uint8_t next) { return next > label; });
    throw UserError(
        fmt::format("no label of '{}' is {}", path, label),
        fmt::format("labels go up to {}; label {} is {}", highest, above - labels.begin(), *above),
        "Look for a damaged label, or number the classes without gaps.");
  }
  return highest + 1;
}

}  // namespace

std::shared_ptr<const DataSource> open_idx_folder(const std::string& folder) {
  const auto train = find_pair(folder, "train-"), test = find_pair(folder, "t10k-");
  const auto first = train ? train : test ? test : find_pair(folder, "");
  if (!first) {
    throw UserError("'" + folder + "' holds no IDX files",
                    "looked for [train-|t10k-]images-idx3-ubyte[.gz] and labels-idx1-ubyte[.gz]",
                    "Give the folder that holds them as idx:DIR.");
  }
  LabelledImages images = read_pair(*first);
  const std::int64_t classes = count_classes(folder, first->labels.path, images.labels);
  SplitLists lists;
  if (train && test) {
    const LabelledImages held_out = read_pair(*test);
    check_test_pair(folder, images, held_out, classes);
    lists = split_after(images.labels.size(), images.labels.size() + held_out.labels.size());
    images.bytes.insert(images.bytes.end(), held_out.bytes.begin(), held_out.bytes.end());
    images.labels.insert(images.labels.end(), held_out.labels.begin(), held_out.labels.end());
  } else {
    lists = hold_out_images(images);
  }
  return std::make_shared<StoredImages>("idx:" + folder, std::move(images), std::move(lists),
                                        classes);
}

namespace {

constexpr std::size_t image_pixels = 3 * 32 * 32, record_bytes = 1 + image_pixels;
constexpr int cifar_classes = 10, batch_files = 5;

/// Adds the records of a batch: one label byte and 3072 pixel bytes, one colour plane after
/// another.
void append_batch(const std::string& path, LabelledImages& images) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.empty() || bytes.size() % record_bytes != 0) {
    throw UserError(fmt::format("'{}' has {} bytes", path, bytes.size()),
                    fmt::format("a CIFAR-10 binary batch is a multiple of {}; the last record "
                                "starts at offset {}",
                                record_bytes, bytes.size() / record_bytes * record_bytes),
                    "Fetch the binary version of the data set again.");
  }
  for (std::size_t offset = 0; offset < bytes.size(); offset += record_bytes) {
    const auto label = std::to_integer<std::uint8_t>(bytes[offset]);
    if (label >= cifar_classes) {
      throw UserError(fmt::format("label {} in '{}' at offset {}", label, path, offset),
                      "CIFAR-10 has labels 0 to 9");
    }
    const auto* pixels = reinterpret_cast<const std::uint8_t*>(bytes.data() + offset + 1);
    images.labels.push_back(label);
    images.bytes.insert(images.bytes.end(), pixels, pixels + image_pixels);
  }
}

fs::path batch_path(const fs::path& folder, int number) {
  return folder / fmt::format("data_batch_{}.bin", number);
}

/// Counts the batches. A gap is an error and no smaller data set.
int count_batches(const fs::path& folder) {
  int last = 0;
  for (int i = 1; i <= batch_files; ++i) {
    if (fs::exists(batch_path(folder, i))) last = i;
  }
  ProblemList problems;
  for (int i = 1; i <= std::max(last, 1); ++i) {
    if (fs::exists(batch_path(folder, i))) continue;
    problems.add(fmt::format("'{}' is missing", batch_path(folder, i).string()),
                 last == 0 ? "the folder holds no CIFAR-10 binary batch"
                           : fmt::format("data_batch_{}.bin is there", last),
                 "Give the folder of the binary version as cifar10:DIR.");
  }
  problems.throw_if_any();
  return last;
}

}  // namespace

std::shared_ptr<const DataSource> open_cifar10_folder(const std::string& folder) {
  LabelledImages images;
  images.channels = 3;
  images.height = images.width = 32;
  const int batches = count_batches(folder);
  for (int i = 1; i <= batches; ++i) append_batch(batch_path(folder, i).string(), images);
  const std::size_t train = images.labels.size();
  const fs::path test = fs::path(folder) / "test_batch.bin";
  const bool has_test = fs::exists(test);
  if (has_test) append_batch(test.string(), images);
  SplitLists lists = has_test ? split_after(train, images.labels.size()) : hold_out_images(images);
  return std::make_shared<StoredImages>("cifar10:" + folder, std::move(images), std::move(lists),
                                        cifar_classes);
}

}  // namespace heteroperf

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "metrics/base/error.hpp"
#include "workloads/data/image_files.hpp"
#include "workloads/data/inflated_file.hpp"
#include "workloads/data/stored_images.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t label_magic = 0x00000801, image_magic = 0x00000803;
constexpr std::uint64_t most_side = 32768;

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

/// The dimensions after the magic number, whose last byte tells how many there are.
std::vector<std::uint64_t> read_header(InflatedFile& file, std::uint32_t magic) {
  const std::uint32_t found = big_endian(file.read(4, "the magic number"));
  if (found != magic) {
    throw UserError(fmt::format("'{}' starts with {:#010x}", file.path(), found),
                    fmt::format("an IDX file of {} starts with {:#010x}",
                                magic == image_magic ? "images" : "labels", magic));
  }
  std::vector<std::uint64_t> dimensions;
  for (std::uint32_t i = 0; i < (magic & 255); ++i) {
    dimensions.push_back(big_endian(file.read(4, "the dimensions")));
    if (i > 0 && (dimensions[i] == 0 || dimensions[i] > most_side)) {
      throw UserError(fmt::format("'{}' says its images are {} pixels in one direction",
                                  file.path(), dimensions[i]),
                      fmt::format("offset {}, expected 1 to {}", 4 + 4 * i, most_side));
    }
  }
  return dimensions;
}

struct IdxPair {
  std::string images, labels;
};

LabelledImages read_pair(const IdxPair& paths) {
  InflatedFile image_file(paths.images), label_file(paths.labels);
  const std::vector<std::uint64_t> shape = read_header(image_file, image_magic);
  const std::uint64_t label_count = read_header(label_file, label_magic)[0];
  if (shape[0] != label_count) {
    throw UserError(fmt::format("'{}' has {} images, '{}' has {} labels", paths.images, shape[0],
                                paths.labels, label_count),
                    "they must be equal", "Take both files from the same data set.");
  }
  LabelledImages images;
  images.channels = 1;
  images.height = static_cast<std::int64_t>(shape[1]);
  images.width = static_cast<std::int64_t>(shape[2]);
  images.pixels = image_file.read(shape[0] * shape[1] * shape[2], "pixels");
  image_file.expect_end();
  images.labels = label_file.read(label_count, "labels");
  label_file.expect_end();
  return images;
}

std::optional<std::string> find_any(const fs::path& folder, const std::string& stem,
                                    const std::string& kind) {
  for (const char* joint : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (stem + joint + kind + ending);
      if (fs::exists(path)) return path.string();
    }
  }
  return std::nullopt;
}

std::optional<IdxPair> find_pair(const fs::path& folder, const std::string& prefix) {
  const auto images = find_any(folder, prefix + "images", "idx3-ubyte");
  const auto labels = find_any(folder, prefix + "labels", "idx1-ubyte");
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    throw UserError(fmt::format("'{}' has no partner", images ? *images : *labels),
                    fmt::format("'{}/{}{}-ubyte' or '.gz' is missing", folder.string(), prefix,
                                images ? "labels-idx1" : "images-idx3"));
  }
  return IdxPair{*images, *labels};
}

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

/// A label that is damaged upwards leaves classes without images below it. Some sets count from 1.
void require_no_gap(const std::string& path, const std::vector<std::uint8_t>& labels) {
  std::array<bool, 256> seen{};
  for (std::uint8_t label : labels) seen[label] = true;
  const auto highest = *std::max_element(labels.begin(), labels.end());
  for (std::size_t label = 1; label < highest; ++label) {
    if (seen[label]) continue;
    const auto above = std::find_if(labels.begin(), labels.end(),
                                    [&](std::uint8_t other) { return other > label; });
    throw UserError(
        fmt::format("no label of '{}' is {}", path, label),
        fmt::format("labels go up to {}; label {} is {}", highest, above - labels.begin(), *above),
        "Look for a damaged label, or number the classes without gaps.");
  }
}

std::int64_t count_classes(const std::string& folder, const std::string& label_path,
                           const LabelledImages& images) {
  if (images.labels.empty()) throw UserError("'" + folder + "' holds no images");
  const std::int64_t classes = *std::max_element(images.labels.begin(), images.labels.end()) + 1;
  if (classes < 2) {
    throw UserError("all labels of '" + folder + "' are 0", "a classifier needs two classes");
  }
  require_no_gap(label_path, images.labels);
  return classes;
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
  const std::string name = "idx:" + folder;
  LabelledImages images = read_pair(*first);
  const std::int64_t classes = count_classes(folder, first->labels, images);
  if (!train || !test) {
    SplitLists lists = hold_out_images(images);
    return std::make_shared<StoredImages>(name, std::move(images), std::move(lists), classes);
  }
  const LabelledImages held_out = read_pair(*test);
  check_test_pair(folder, images, held_out, classes);
  const std::size_t train_size = images.labels.size();
  images.append(held_out);
  SplitLists lists = split_after(train_size, images.labels.size());
  return std::make_shared<StoredImages>(name, std::move(images), std::move(lists), classes);
}

}  // namespace heteroperf

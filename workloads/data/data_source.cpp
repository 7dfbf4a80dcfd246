#include "workloads/data/data_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "workloads/data/generated_images.hpp"
#include "workloads/data/generated_scenes.hpp"
#include "workloads/data/generated_tokens.hpp"
#include "workloads/data/image_files.hpp"
#include "workloads/data/input_file.hpp"
#include "workloads/data/pair_files.hpp"
#include "workloads/data/sample_order.hpp"
#include "workloads/data/token_windows.hpp"

// A `--data` argument is a kind of source, a colon and a path or number. The table below has one
// row per kind: its words for `list datasets`, the inputs that it can serve, and the function that
// opens it.

namespace heteroperf {

namespace {

using Source = std::shared_ptr<const DataSource>;

/// Throws UserError unless `pixels`, the height and width of generated images, is a number.
std::int64_t parse_pixels(const std::string& pixels) {
  std::int64_t value = 0;
  const char* const end = pixels.data() + pixels.size();
  const auto [stop, error] = std::from_chars(pixels.data(), end, value);
  if (error == std::errc() && stop == end && value > 0) return value;
  throw UserError(fmt::format("'generated:{}' names no images", pixels),
                  "expected generated:PIXELS with their height and width",
                  "Use generated:64 for images of 64x64.");
}

Source open_generated(const std::string&, const DataRequest& request) {
  const SampleSpec spec = generated_spec(request.source, request.wanted);
  switch (spec.kind) {
    case SampleKind::tokens:
      return std::make_shared<GeneratedTokens>(spec, request.seed);
    case SampleKind::pairs:
    case SampleKind::captions:
    case SampleKind::matches:
      return std::make_shared<GeneratedScenes>(spec, request.seed);
    case SampleKind::images:
    case SampleKind::regression:  // which check_kind() refuses
      break;
  }
  return std::make_shared<GeneratedImages>(spec, request.seed);
}

/// Throws UserError where the path is no folder; the kinds with a DIR argument share this check.
void expect_folder(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) return;
  throw UserError("'" + path + "' is not a folder", code ? code.message() : "it is a file",
                  "Check the path given to --data.");
}

template <Source (*open)(const std::string& folder)>
Source open_folder(const std::string& path, const DataRequest&) {
  return open(path);
}

Source open_text(const std::string& path, const DataRequest& request) {
  return std::make_shared<TokenWindows>("text", path, TokenWindows::Width::one_byte,
                                        request.wanted);
}

/// Tells the width of a file's tokens by its ending, because raw ids have no header.
TokenWindows::Width token_width(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".u16" || ending == ".bin") return TokenWindows::Width::two_bytes;
  if (ending == ".u32") return TokenWindows::Width::four_bytes;
  throw UserError(fmt::format("cannot tell the width of the tokens in '{}'", path),
                  fmt::format("its name ends in '{}'", ending),
                  "Name it .u16 or .bin for 16-bit ids, .u32 for 32-bit ids.");
}

Source open_tokens(const std::string& path, const DataRequest& request) {
  return std::make_shared<TokenWindows>("tokens", path, token_width(path), request.wanted);
}

Source open_pairs(const std::string& path, const DataRequest& request) {
  return open_pair_folder(path, request.wanted);
}

using Opener = Source (*)(const std::string& path, const DataRequest& request);

struct Entry {
  DataKind kind;
  Opener open;
};

const std::array<Entry, 6> source_table{{
    {{"generated",
      "PIXELS",
      "images from a random grammar, a Markov chain of tokens, or captioned scenes; known floor",
      {SampleKind::images, SampleKind::tokens, SampleKind::pairs, SampleKind::captions,
       SampleKind::matches},
      true},
     open_generated},
    {{"idx", "DIR", "MNIST's layout, plain or gzipped", {SampleKind::images}},
     open_folder<open_idx_folder>},
    {{"cifar10", "DIR", "CIFAR-10 binary batches", {SampleKind::images}},
     open_folder<open_cifar10_folder>},
    {{"pairs",
      "DIR",
      "images and their texts in IDX files, one image or any number each",
      {SampleKind::pairs, SampleKind::captions}},
     open_pairs},
    {{"text", "FILE", "any file, byte by byte (vocabulary 256)", {SampleKind::tokens}}, open_text},
    {{"tokens",
      "FILE",
      "raw little-endian ids, 16-bit (.u16, .bin) or 32-bit (.u32)",
      {SampleKind::tokens}},
     open_tokens},
}};

/// Finds the row of a kind. Throws UserError listing the known kinds and naming the nearest one.
const Entry& find_entry(const std::string& prefix) {
  std::vector<std::string> names;
  std::string known;
  for (const Entry& entry : source_table) {
    if (entry.kind.prefix == prefix) return entry;
    names.push_back(entry.kind.prefix);
    known += (known.empty() ? "known are " : ", ") + entry.kind.prefix;
  }
  throw UserError(fmt::format("there is no data source '{}'", prefix), known,
                  suggest_name(prefix, names));
}

/// Throws UserError where the argument is missing. Generated images alone may have one, of which
/// tokens know nothing; a text with places for an image has as many as the model's own image needs.
void check_argument(const DataKind& kind, const std::string& source, const std::string& argument,
                    SampleKind wanted) {
  if (kind.optional && source == kind.prefix) return;
  if (argument.empty()) {
    throw UserError(kind.optional
                        ? fmt::format("'{}' has no {} behind its colon", source, kind.argument)
                        : fmt::format("'{}' names no file or folder", source),
                    fmt::format("expected {}:{}", kind.prefix, kind.argument));
  }
  if (!kind.optional) return;
  if (wanted == SampleKind::tokens) {
    throw UserError(fmt::format("'{}' cannot feed this model", source),
                    "it takes tokens, which have no pixels", "Use generated.");
  }
  if (wanted == SampleKind::captions) {
    throw UserError(fmt::format("'{}' cannot feed this model", source),
                    "its texts have places for images of one size", "Use generated.");
  }
  parse_pixels(argument);
}

/// Throws UserError, naming the sources that can, where the source has other samples than the model
/// takes.
void check_kind(const DataKind& kind, SampleKind wanted) {
  const auto serves = [wanted](const DataKind& each) {
    return std::find(each.serves.begin(), each.serves.end(), wanted) != each.serves.end();
  };
  if (serves(kind)) return;
  std::string able;
  for (const Entry& entry : source_table) {
    if (!serves(entry.kind)) continue;
    able +=
        (able.empty() ? "" : ", ") + (entry.kind.optional ? entry.kind.prefix : entry.kind.form());
  }
  throw UserError(fmt::format("'{}' cannot feed this model", kind.prefix),
                  fmt::format("the model takes {}, the source has {}", to_string(wanted),
                              to_string(kind.serves.front())),
                  fmt::format("Use {}.", able));
}

/// A row of the table with the path that was given for it.
struct Choice {
  const Entry& entry;
  std::string argument;
};

/// Finds the source that `source` names, provided that it can serve `wanted`.
Choice choose(const std::string& source, SampleKind wanted) {
  const std::size_t colon = source.find(':');
  const std::string argument = colon == std::string::npos ? "" : source.substr(colon + 1);
  const Entry& entry = find_entry(source.substr(0, colon));
  check_argument(entry.kind, source, argument, wanted);
  check_kind(entry.kind, wanted);
  if (entry.kind.argument == "DIR") expect_folder(argument);
  return {entry, argument};
}

}  // namespace

std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t size, std::uint64_t position) {
  const std::uint64_t epoch = position / size;
  return KeyedPermutation(random_bits(seed, epoch), size)(position % size);
}

bool is_generated(const std::string& source) {
  return source == "generated" || source.starts_with("generated:");
}

SampleSpec generated_spec(const std::string& source, SampleSpec wanted) {
  const std::size_t colon = source.find(':');
  if (colon != std::string::npos) {
    wanted.height = wanted.width = parse_pixels(source.substr(colon + 1));
  }
  return wanted;
}

std::string DataKind::form() const {
  return prefix + (optional ? "[:" + argument + "]" : ":" + argument);
}

std::vector<DataKind> data_kinds() {
  std::vector<DataKind> kinds;
  for (const Entry& entry : source_table) kinds.push_back(entry.kind);
  return kinds;
}

std::shared_ptr<const DataSource> open_data(const DataRequest& request) {
  const Choice choice = choose(request.source, request.wanted.kind);
  if (choice.entry.kind.argument == "FILE" && request.wanted.length <= 0) {
    throw UserError(fmt::format("'{}' cannot serve samples of {} tokens", request.source,
                                request.wanted.length),
                    "a context has at least one token");
  }
  return choice.entry.open(choice.argument, request);
}

void check_data(const std::string& source, SampleKind wanted) {
  const Choice choice = choose(source, wanted);
  if (choice.entry.kind.argument == "FILE") MappedFile{choice.argument};
}

SampleSpec sample_of(const ModelGraph& graph) {
  const Node& loss = graph.node(graph.loss());
  const auto refuse = [&graph](const std::string& why) {
    throw UserError(fmt::format("there are no samples for the model '{}'", graph.name), why);
  };
  SampleSpec spec;
  std::int64_t vocabulary = 0;
  int images = 0, texts = 0;
  for (const NodeId id : graph.inputs()) {
    const auto& input = std::get<Input>(graph.node(id).attributes);
    if (input.kind == InputKind::images) {
      ++images;
      spec.images = input.items;
      spec.fewest_images = input.fewest_items;
      spec.channels = input.channels;
      spec.height = input.height;
      spec.width = input.width;
    } else {
      if (input.items != 0) refuse(fmt::format("'{}' is any number of texts", graph.node(id).name));
      ++texts;
      spec.length = input.length;
      for (const NodeId user : graph.consumers(id)) {
        const auto* table = std::get_if<Embedding>(&graph.node(user).attributes);
        if (table != nullptr) vocabulary = table->vocabulary;
      }
    }
  }
  if (images > 1 || texts > 1)
    refuse(fmt::format("it takes {} images and {} texts", images, texts));
  if (images + texts == 2 && std::holds_alternative<Contrastive>(loss.attributes)) {
    spec.kind = SampleKind::pairs;
    spec.classes = vocabulary;
    return spec;
  }
  if (images + texts == 2 && std::holds_alternative<CrossEntropy>(loss.attributes)) {
    spec.kind = SampleKind::captions;
    spec.classes = vocabulary;
    for (const Node& node : graph.nodes()) {
      const auto* insert = std::get_if<InsertTokens>(&node.attributes);
      if (insert == nullptr) continue;
      if (insert->token != vocabulary - 2 || spec.image_places > 0)
        refuse(fmt::format("'{}' does not put the images where token {} is", node.name,
                           vocabulary - 2));
      spec.image_places = graph.node(node.inputs[2]).output.front();
    }
    if (spec.image_places > 0) return spec;
    // Without places for the image the only question is whether it belongs to the text.
    if (graph.node(loss.inputs.front()).output != Shape{2}) {
      refuse(
          "no insert_tokens puts its image into its text, and it does not tell two classes apart");
    }
    spec.kind = SampleKind::matches;
    return spec;
  }
  if (images == 0 && texts == 1 && std::holds_alternative<SquaredError>(loss.attributes)) {
    spec.kind = SampleKind::regression;
    spec.classes = vocabulary;
    const Shape& rows = graph.node(loss.inputs.front()).output;
    if (rows.size() != 2 || rows.front() != spec.length) refuse("not every token has a row");
    spec.features = rows.back();
    return spec;
  }
  if (images + texts != 1 || !std::holds_alternative<CrossEntropy>(loss.attributes)) {
    refuse(fmt::format("none have such inputs and targets for {}", kind_name(loss.attributes)));
  }
  spec.kind = images == 1 ? SampleKind::images : SampleKind::tokens;
  // The logits' last dimension has an entry per class.
  spec.classes = graph.node(loss.inputs.front()).output.back();
  return spec;
}

void write_caption_targets(const SampleSpec& spec, std::span<const std::int64_t> tokens,
                           std::span<std::int64_t> targets) {
  const std::int64_t place = spec.classes - 2;
  std::ranges::fill(targets, -1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i] < place && tokens[i + 1] != place) targets[i] = tokens[i + 1];
  }
}

SplitLists hold_out(std::span<const std::uint64_t> hashes, std::uint64_t one_in) {
  SplitLists lists;
  if (hashes.empty()) return lists;
  std::vector<std::uint64_t> sorted(hashes.begin(), hashes.end());
  const std::uint64_t held = std::max<std::uint64_t>(1, sorted.size() / one_in);
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(held - 1);
  std::nth_element(sorted.begin(), last, sorted.end());
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    auto& list = hashes[i] <= *last ? lists.validation : lists.train;
    list.push_back(static_cast<std::uint32_t>(i));
  }
  return lists;
}

SplitLists split_after(std::size_t train, std::size_t all) {
  SplitLists lists;
  for (std::uint32_t i = 0; i < all; ++i) (i < train ? lists.train : lists.validation).push_back(i);
  return lists;
}

}  // namespace heteroperf

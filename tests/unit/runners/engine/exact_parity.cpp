#include "tests/unit/runners/engine/exact_parity.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>
#include <span>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "suite/planning/border_bytes.hpp"

namespace heteroperf::test {
namespace {

constexpr std::int64_t samples = 12, length = 12, counted = 64, vocabulary = 16;
constexpr std::int64_t row_width = 8, predicted = 4;
constexpr std::uint64_t order_seed = 1;

/// Whole numbers as tokens and targets. The samples of the first step have `counted` targets that
/// count, drawn once, another number in each sample.
class WholeNumbers final : public DataSource {
 public:
  explicit WholeNumbers(SampleSpec spec) : spec_(spec) {
    for (std::uint64_t i = 0; i < samples; ++i) {
      place_in_step_[shuffled_index(order_seed, number, i)] = i;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
    for (std::uint64_t token = 0; token < samples * length; ++token) {
      order.emplace_back(random_bits(5, token), token);
    }
    std::ranges::sort(order);
    for (std::int64_t i = 0; i < counted; ++i) counts_.insert(order[i].second);
  }

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split) const override { return number; }
  void read(Split, std::uint64_t index, SampleView out) const override {
    const auto known = place_in_step_.find(index);
    const std::uint64_t place = known == place_in_step_.end() ? index % samples : known->second;
    for (std::size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = static_cast<std::int64_t>(random_bits(place + 100, t) % vocabulary);
    }
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const bool counts = counts_.contains(place * length + i / predicted);
      const auto value = static_cast<float>(random_bits(place + 200, i) % 17) - 8;
      out.values[i] = counts ? value : std::nanf("");
    }
  }
  std::string description() const override { return "whole numbers"; }
  std::string fingerprint() const override { return "whole numbers"; }

 private:
  static constexpr std::uint64_t number = 1024;
  SampleSpec spec_;
  std::map<std::uint64_t, std::uint64_t> place_in_step_;  ///< by number of a sample
  std::set<std::uint64_t> counts_;                        ///< tokens of the step
};

ModelGraph parity_model() {
  ModelGraph graph;
  graph.name = "parity";
  const std::string encoder = "encoder", language = "language";
  const NodeId tokens = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, length}, {}, encoder);
  NodeId x = graph.add("encoder.embedding", Embedding{vocabulary, 6}, {tokens}, encoder);
  x = graph.add("encoder.up", Linear{10, true, {}}, {x}, encoder);
  x = graph.add("encoder.relu", Relu{}, {x}, encoder);
  const NodeId rows = graph.add("encoder.down", Linear{row_width, true, {}}, {x}, encoder);
  x = graph.add("embedding", Embedding{vocabulary, row_width}, {tokens}, language);
  x = graph.add("add", Add{}, {x, rows}, language);
  x = graph.add("up", Linear{12, true, {}}, {x}, language);
  x = graph.add("relu", Relu{}, {x}, language);
  x = graph.add("down", Linear{predicted, true, {}}, {x}, language);
  graph.add("loss", SquaredError{}, {x}, language);
  return graph;
}

/// Saves the tensors of a checkpoint again, with small whole numbers as weights and without
/// velocities.
void save_whole_numbers(const CheckpointReader& drawn, const std::filesystem::path& folder) {
  std::vector<std::vector<double>> values;
  std::vector<TensorPiece> pieces;
  for (const StoredTensor& tensor : drawn.tensors()) {
    std::vector<double>& all = values.emplace_back(element_count(tensor.shape));
    const bool is_weight = !tensor.name.starts_with("optimizer.");
    for (std::size_t i = 0; i < all.size() && is_weight; ++i) {
      all[i] = static_cast<double>(random_bits(values.size(), i) % 5) - 2;
    }
    const Box box = whole_box(tensor.shape);
    pieces.push_back({tensor.name, tensor.type, tensor.shape, box, dense_strides(box), all.data()});
  }
  const auto alone = make_null_communicator();
  save_checkpoint(*alone, folder, drawn.state(), pieces);
}

/// The bytes that each component sends at least: a row of float64 values, or its gradient, for
/// every rank that needs it and does not have it, counted token by token.
std::array<std::uint64_t, 2> least_border_bytes(const Plan& plan) {
  const auto holders_of = [&](const PlanStage& stage, std::int64_t sample, std::int64_t token) {
    std::set<RankId> ranks;
    for (const ReplicaId r : stage.replicas.ids()) {
      const StageReplica& replica = stage.replicas[r];
      const std::int64_t first = stage.first_sample(r);
      if (sample < first || sample >= first + replica.micro_batch) continue;
      for (const SequencePart::Chunk& chunk : replica.part.chunks(length / replica.part.parts)) {
        if (token < chunk.first || token >= chunk.end()) continue;
        ranks.insert(replica.ranks.begin(), replica.ranks.end());
      }
    }
    return ranks;
  };
  std::array<std::uint64_t, 2> bytes{0, 0};
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t token = 0; token < length; ++token) {
      const std::array sides{holders_of(plan.stages[0], sample, token),
                             holders_of(plan.stages[1], sample, token)};
      for (const std::size_t from : {0, 1}) {
        const auto lacking = std::ranges::count_if(
            sides[1 - from], [&](RankId rank) { return !sides[from].contains(rank); });
        bytes[from] += static_cast<std::uint64_t>(lacking) * row_width * sizeof(double);
      }
    }
  }
  return bytes;
}

/// Names the first of two sets of tensors' values that is not the same.
std::string difference_of(const std::map<std::string, std::vector<double>>& given,
                          const std::map<std::string, std::vector<double>>& wanted) {
  if (given.size() != wanted.size()) return "other tensors";
  for (const auto& [name, values] : wanted) {
    const auto known = given.find(name);
    if (known == given.end() || known->second.size() != values.size()) return "no " + name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (known->second[i] == values[i]) continue;
      return fmt::format("{}[{}] is {:.17g} and not {:.17g}", name, i, known->second[i], values[i]);
    }
  }
  return "";
}

}  // namespace

std::vector<ParityLayout> parity_layouts() {
  std::vector<ParityLayout> all;
  const std::array<SequencePart, 5> contexts{{{},
                                              {0, 2, SequenceOrder::blocks},
                                              {0, 2, SequenceOrder::zig_zag},
                                              {0, 3, SequenceOrder::blocks},
                                              {0, 3, SequenceOrder::zig_zag}}};
  for (const int encoder_tensor : {1, 2, 3}) {
    for (const int encoder_data : {1, 2, 3, 4, 5, 12}) {
      for (const int tensor : {1, 2, 4}) {
        for (const int data : {1, 2, 3, 4}) {
          for (const SequencePart& context : contexts) {
            all.push_back({encoder_tensor, encoder_data, tensor, data, context});
          }
        }
      }
    }
  }
  return all;
}

namespace {

int first_language_rank(const ParityCase& tested) {
  const int encoder = tested.layout.encoder_ranks();
  if (tested.placement == ParityPlacement::same) return 0;
  if (tested.placement == ParityPlacement::apart) return encoder;
  return encoder - std::max(1, std::min(encoder, tested.layout.language_ranks()) / 2);
}

std::string layouts_of(const ParityCase& tested) {
  const ParityLayout& layout = tested.layout;
  return fmt::format("encoder=tp{},dp{} language=tp{},cp{},dp{}@{}", layout.encoder_tensor,
                     layout.encoder_data, layout.tensor, layout.context.parts, layout.data,
                     first_language_rank(tested));
}

}  // namespace

int ParityCase::ranks() const {
  return std::max(layout.encoder_ranks(), first_language_rank(*this) + layout.language_ranks());
}

std::string ParityCase::name() const {
  return fmt::format("{} ({}, {})", layouts_of(*this), to_string(layout.context.order),
                     to_string(placement));
}

std::vector<ParityCase> drawn_parity_cases(std::size_t count, int least, int most) {
  std::vector<ParityCase> fitting;
  for (const ParityLayout& layout : parity_layouts()) {
    for (const ParityPlacement placement : parity_placements) {
      const ParityCase tested{layout, placement};
      if (tested.ranks() >= least && tested.ranks() <= most) fitting.push_back(tested);
    }
  }
  std::mt19937_64 random(8);
  std::ranges::shuffle(fitting, random);
  fitting.resize(std::min(count, fitting.size()));
  return fitting;
}

std::filesystem::path make_test_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "heteroperf-XXXXXX").string();
  return mkdtemp(name.data());
}

std::map<std::string, std::vector<double>> read_velocities(const std::filesystem::path& folder) {
  const CheckpointReader reader(folder);
  std::map<std::string, std::vector<double>> result;
  std::vector<TensorPiece> pieces;
  for (const StoredTensor& tensor : reader.tensors()) {
    if (!tensor.name.starts_with("optimizer.velocity/")) continue;
    std::vector<double>& values = result[tensor.name];
    values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    const Box box = whole_box(tensor.shape);
    pieces.push_back(
        {tensor.name, tensor.type, tensor.shape, box, dense_strides(box), values.data()});
  }
  reader.read(pieces);
  return result;
}

ExactParity::ExactParity() : folder_(make_test_folder()) {
  spec_.graph = parity_model();
  spec_.data = std::make_shared<WholeNumbers>(sample_of(spec_.graph));
  spec_.precision = Precision::fp64;
  spec_.seed = order_seed;
  spec_.recipe = {.kind = OptimizerKind::sgd, .learning_rate = 0.5, .weight_decay = 0};
  spec_.use_plan(even_plan(spec_.graph, EvenPlanRequest{.micro_batch = samples}));
  const auto alone = make_null_communicator();
  const auto session = start_training(spec_, *alone);
  session->save(folder_ / "drawn");
  save_whole_numbers(CheckpointReader(folder_ / "drawn"), folder_ / "begin");
  session->restore(folder_ / "begin");
  loss_ = session->step().loss;
  session->save(folder_ / "end");
  gradients_ = read_velocities(folder_ / "end");
}

ExactParity::~ExactParity() { std::filesystem::remove_all(folder_); }

TrainingSpec ExactParity::training(const ParityCase& tested) const {
  LayoutPlanRequest request;
  request.layouts = parse_layouts(layouts_of(tested));
  request.micro_batch = samples;
  Plan plan = layout_plan(spec_.graph, request);
  for (StageReplica& replica : plan.stages[1].replicas) {
    if (!replica.part.whole()) replica.part.order = tested.layout.context.order;
  }
  TrainingSpec spec = spec_;
  spec.use_plan(std::move(plan));
  return spec;
}

std::string ExactParity::difference(const TrainingSpec& spec, Communicator& world) const {
  const auto session = start_training(spec, world);
  session->restore(folder_ / "begin");
  const StepReport report = session->step();
  static std::atomic<int> number{0};
  const std::filesystem::path saved =
      share_text(world, (folder_ / fmt::format("step-{}", number++)).string());
  session->save(saved);
  std::array<std::int64_t, 2> sent{};
  for (const std::size_t i : {0, 1}) {
    sent[i] = static_cast<std::int64_t>(report.components.at(i).border_bytes);
  }
  world.all_reduce(std::span<std::int64_t>(sent));
  if (world.rank() != RankId(0)) return "";
  std::string text = difference_of(read_velocities(saved), gradients_);
  std::filesystem::remove_all(saved);
  if (report.loss != loss_) {
    text = fmt::format("the loss is {:.17g} and not {:.17g}; {}", report.loss, loss_, text);
  }
  const auto borders = planned_borders(spec.graph, *spec.ready, spec.precision);
  for (const std::size_t i : {0, 1}) {
    if (static_cast<std::uint64_t>(sent[i]) == borders[i].planned_bytes) continue;
    text += fmt::format(" '{}' sent {} bytes, planned were {}", borders[i].component, sent[i],
                        borders[i].planned_bytes);
  }
  return text;
}

std::string ExactParity::difference(const ParityCase& tested) const {
  const TrainingSpec spec = training(tested);
  std::string text;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::string here = difference(spec, *world.communicator);
    if (world.communicator->rank() == RankId(0)) text = here;
  });
  return text;
}

std::string ExactParity::wasted_bytes(const TrainingSpec& spec) {
  const auto borders = planned_borders(spec.graph, *spec.ready, spec.precision);
  const std::array<std::uint64_t, 2> least = least_border_bytes(spec.plan());
  std::string text;
  for (const std::size_t i : {0, 1}) {
    if (borders[i].planned_bytes == least[i] && borders[i].least_bytes == least[i]) continue;
    text += fmt::format(" '{}' sends {} bytes, and {} to {} are the least", borders[i].component,
                        borders[i].planned_bytes, borders[i].least_bytes, least[i]);
  }
  return text;
}

}  // namespace heteroperf::test

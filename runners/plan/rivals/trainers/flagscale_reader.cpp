// Reads FlagScale train configurations. They are YAML documents that a launcher merges from several
// files, so most keys mean nothing here; the reader looks for the few that describe meshes,
// batches, layers and recomputation, and checks them against each other: a configuration that
// FlagScale itself would refuse must not become a plan.
//
// All problems are noted with the path of their key. A value that is wrong is replaced by a
// harmless one, so that later checks can go on and one run names everything. Numbers are bounded
// before they are multiplied: a hostile file must not make the reader overflow or fill memory.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <numeric>
#include <optional>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_number = std::int64_t{1} << 40;
constexpr int most_of_a_mesh = 1 << 20;
constexpr std::size_t numbers_of_a_mesh = 5;

/// A node, and its path in the configuration.
struct Value {
  YAML::Node node;
  std::string path;
  explicit operator bool() const { return static_cast<bool>(node); }

  /// The value of a key; undefined where this is none or has no such key.
  Value operator[](const char* key) const {
    const YAML::Node undefined(YAML::NodeType::Undefined);
    return {node && node.IsMap() && node[key] ? node[key] : undefined,
            path.empty() ? key : fmt::format("{}.{}", path, key)};
  }
  Value operator[](std::size_t i) const { return {node[i], fmt::format("{}[{}]", path, i)}; }
};

class SetupReader {
 public:
  explicit SetupReader(const std::string& origin) : problems_(origin) {}

  FlagScaleSetup read(const YAML::Node& document) {
    // A launcher's merged file has the sections under `train`, a file by itself at its top.
    const Value top{document, ""}, train{top["train"].node, ""};
    const Value& root = train ? train : top;
    const Value system = root["system"], model = root["model"], hetero = system["hetero"];
    if (!hetero) {
      problems_.add("no `system.hetero`", "it holds the meshes of a heterogeneous training");
      problems_.throw_if_any();
    }
    read_meshes(hetero["hetero_process_meshes"]);
    read_devices(hetero["hetero_device_types"]);
    setup_.micro_batch = required(model["micro_batch_size"]);
    setup_.global_batch = required(model["global_batch_size"]);
    check_batches();
    read_layers(hetero["hetero_pipeline_layer_split"], model["num_layers"]);
    check_stages(system["pipeline_model_parallel_size"]);
    const Value flag = system["use_distributed_optimizer"];
    if (flag && !YAML::convert<bool>::decode(flag.node, setup_.distributed_optimizer)) {
      note_wrong_value(flag, "must be true or false");
    }
    read_recomputation(system["recompute"]);
    problems_.throw_if_any();
    return std::move(setup_);
  }

 private:
  /// Says what a value is, cut where it is long.
  void note_wrong_value(const Value& value, const std::string& why) {
    YAML::Emitter out;
    out << YAML::Flow << value.node;
    const std::string text = out.c_str();
    problems_.add(
        fmt::format("{} is {}", value.path, text.size() > 60 ? text.substr(0, 57) + "..." : text),
        why);
  }

  /// A whole number within bounds; anything else is noted.
  std::optional<std::int64_t> number(const Value& value, std::int64_t least, std::int64_t most) {
    std::int64_t result = 0;
    const YAML::Node& node = value.node;
    const bool whole = node.IsScalar() && YAML::convert<std::int64_t>::decode(node, result);
    if (whole && result >= least && result <= most) return result;
    note_wrong_value(value, fmt::format("must be a whole number from {} to {}", least, most));
    return std::nullopt;
  }

  /// A number that has to be there; 1 where it is missing or wrong.
  std::int64_t required(const Value& value) {
    if (value) return number(value, 1, most_number).value_or(1);
    problems_.add(fmt::format("no `{}`", value.path));
    return 1;
  }

  /// A list of whole numbers. Elements that are none become 1, so that later checks can go on.
  std::vector<int> numbers(const Value& value, int least) {
    std::vector<int> list;
    if (!value.node.IsSequence()) note_wrong_value(value, "must be a list of whole numbers");
    for (std::size_t i = 0; value.node.IsSequence() && i < value.node.size(); ++i) {
      list.push_back(static_cast<int>(number(value[i], least, most_of_a_mesh).value_or(1)));
    }
    return list;
  }

  /// Five numbers for each mesh: tensor, context, expert, data, pipeline. The ranks are summed up
  /// in doubles first: hostile numbers must not overflow.
  void read_meshes(const Value& meshes) {
    if (!meshes) return problems_.add(fmt::format("no `{}`", meshes.path));
    const std::vector<int> all = numbers(meshes, 1);
    if (all.empty() || all.size() % numbers_of_a_mesh != 0) {
      return problems_.add(fmt::format("{} has {} numbers", meshes.path, all.size()),
                           "five for each mesh: tensor, context, expert, data, pipeline");
    }
    double ranks = 0;
    for (std::size_t i = 0; i < all.size(); i += numbers_of_a_mesh) {
      double product = 1;
      for (std::size_t k = i; k < i + numbers_of_a_mesh; ++k) product *= all[k];
      ranks += product;
      setup_.meshes.push_back({all[i], all[i + 1], all[i + 2], all[i + 3], all[i + 4], ""});
    }
    if (ranks <= most_of_a_mesh) return;
    problems_.add(fmt::format("{} asks for {:g} ranks", meshes.path, ranks),
                  fmt::format("at most {} are read", most_of_a_mesh));
    problems_.throw_if_any();
  }

  /// Device types are optional, but then there is one for each mesh.
  void read_devices(const Value& types) {
    if (!types) return;
    if (!types.node.IsSequence() || types.node.size() != setup_.meshes.size()) {
      const std::size_t meshes = setup_.meshes.size();
      return note_wrong_value(types, fmt::format("must be one name for each of {} meshes", meshes));
    }
    for (std::size_t i = 0; i < types.node.size(); ++i) {
      if (types.node[i].IsScalar()) {
        setup_.meshes[i].device = types.node[i].Scalar();
      } else {
        note_wrong_value(types[i], "must be a name");
      }
    }
  }

  /// Every mesh takes the first one's samples.
  void check_batches() {
    if (setup_.meshes.empty()) return;
    const std::int64_t together = setup_.micro_batch * setup_.meshes.front().data;
    for (std::size_t i = 0; i < setup_.meshes.size(); ++i) {
      if (together % setup_.meshes[i].data == 0) continue;
      problems_.add(fmt::format("mesh {} has {} replicas", i, setup_.meshes[i].data),
                    fmt::format("the first mesh's micro-batch of {} samples does not divide by "
                                "that",
                                together));
    }
    if (setup_.global_batch % together == 0) return;
    problems_.add(fmt::format("model.global_batch_size is {}", setup_.global_batch),
                  fmt::format("a micro-batch over all replicas has {} samples", together));
  }

  /// The split gives layers by stage. Without it `model.num_layers` is divided evenly; where both
  /// are there they must agree.
  void read_layers(const Value& split, const Value& count) {
    std::optional<std::int64_t> layers;
    if (count) layers = number(count, 1, most_of_a_mesh);
    const int stages = setup_.stages();
    if (!split) {
      if (!count)
        return problems_.add(fmt::format("neither `{}` nor `{}`", split.path, count.path));
      if (!layers || stages == 0) return;
      if (*layers % stages != 0) {
        return problems_.add(fmt::format("{} layers in {} stages", *layers, stages),
                             "uneven stages need a split", fmt::format("Give `{}`.", split.path));
      }
      setup_.layer_split.assign(stages, static_cast<int>(*layers / stages));
      return;
    }
    setup_.layer_split = numbers(split, 1);
    if (stages > 0 && std::ssize(setup_.layer_split) != stages) {
      problems_.add(fmt::format("{} has {} stages", split.path, setup_.layer_split.size()),
                    fmt::format("the meshes have {}", stages));
    }
    const std::int64_t sum =
        std::accumulate(setup_.layer_split.begin(), setup_.layer_split.end(), std::int64_t{0});
    if (layers && sum != *layers) {
      problems_.add(fmt::format("{} adds up to {}", split.path, sum),
                    fmt::format("{} is {}", count.path, *layers));
    }
  }

  /// The pipeline size is redundant, and checked.
  void check_stages(const Value& size) {
    if (!size || setup_.meshes.empty()) return;
    const auto stages = number(size, 1, most_of_a_mesh);
    if (!stages || *stages == setup_.stages()) return;
    problems_.add(fmt::format("{} is {}", size.path, *stages),
                  fmt::format("the meshes have {} stages", setup_.stages()));
  }

  /// Rows of [stages, micro-batches, 0 or 1, micro-batches, 0 or 1, …].
  void read_recomputation(const Value& recompute) {
    const std::size_t stages = setup_.layer_split.size();
    setup_.recomputed.assign(stages, 0);
    const Value granularity = recompute["recompute_granularity"];
    if (!granularity || granularity.node.IsNull()) return;
    if (!granularity.node.IsScalar() || granularity.node.Scalar() != "full") {
      return note_wrong_value(granularity, "full is read");
    }
    const Value rows = recompute["recompute_granularity_per_stage_micro_batch"];
    if (!rows) return setup_.recomputed.assign(stages, 1);
    std::size_t next = 0;
    for (std::size_t i = 0; rows.node.IsSequence() && i < rows.node.size(); ++i) {
      const std::vector<int> row = numbers(rows[i], 0);
      if (row.size() < 3 || row.size() % 2 == 0) {
        note_wrong_value(rows[i], "must be [stages, micro-batches, 0 or 1, …]");
        continue;
      }
      bool alike = true;
      for (std::size_t k = 4; k < row.size(); k += 2) alike &= row[k] == row[2];
      if (!alike) {
        problems_.add(rows[i].path + " recomputes some of the micro-batches alone",
                      "a plan recomputes all");
      }
      for (int s = 0; s < row[0] && next < stages; ++s) setup_.recomputed[next++] = row[2] != 0;
    }
    if (next == stages) return;
    problems_.add(fmt::format("{} has rows for {} stages", rows.path, next),
                  fmt::format("there are {}", stages));
  }

  FlagScaleSetup setup_;
  DocumentProblems problems_;
};

/// Node names of every stage: the blocks by the split, what surrounds them at both ends.
std::vector<std::vector<std::string>> nodes_of_stages(const FlagScaleSetup& setup,
                                                      const ModelGraph& graph,
                                                      ProblemList& problems) {
  std::vector<std::vector<std::string>> nodes(setup.layer_split.size());
  std::size_t stage = 0;
  const int sum = std::accumulate(setup.layer_split.begin(), setup.layer_split.end(), 0);
  int last = -1, end = setup.layer_split.front();
  for (const Node& node : graph.nodes()) {
    const int block = block_of_node(node.name);
    last = std::max(last, block);
    // Nodes before the first block are in the first stage, those after the last one in the last.
    while (block >= end && stage + 1 < nodes.size()) end += setup.layer_split[++stage];
    nodes[stage].push_back(node.name);
  }
  if (last + 1 != sum) {
    problems.add(fmt::format("the configuration is for a model of {} layers", sum),
                 fmt::format("{} has {}", graph.name, last + 1));
  }
  return nodes;
}

}  // namespace

FlagScaleSetup parse_flagscale(const std::string& text, const std::string& origin) {
  YAML::Node document;
  try {
    document = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw UserError(fmt::format("{} is not YAML", origin), error.what());
  }
  return SetupReader(origin).read(document);
}

FlagScaleSetup read_flagscale_file(const std::string& path) {
  const std::string text = read_text_file(path);
  require_stated_format(text, path, "FlagScale configuration");
  return parse_flagscale(text, path);
}

Plan plan_of(const FlagScaleSetup& setup, const ModelGraph& graph) {
  ProblemList problems;
  for (std::size_t i = 0; i < setup.meshes.size(); ++i) {
    const FlagScaleMesh& mesh = setup.meshes[i];
    if (mesh.expert == 1) continue;
    problems.add(fmt::format("mesh {} has expert parallelism {}", i, mesh.expert),
                 "plans have tensor, context, data and pipeline parallelism");
  }
  const auto nodes = nodes_of_stages(setup, graph, problems);
  problems.throw_if_any();
  Plan plan;
  plan.graph_hash = graph.hash();
  plan.zero_stage = setup.distributed_optimizer ? 1 : 0;
  const std::int64_t together = setup.micro_batch * setup.meshes.front().data;
  plan.micro_batches = static_cast<int>(setup.global_batch / together);
  // Ranks are numbered as FlagScale does: tensor-parallel ranks, then parts of
  // sequences, replicas, stages.
  int rank = 0;
  for (const FlagScaleMesh& mesh : setup.meshes) {
    for (int s = 0; s < mesh.pipeline; ++s) {
      const std::size_t at = plan.stages.size();
      PlanStage& stage = plan.stages.emplace_back();
      stage.nodes = nodes[at];
      stage.recomputation = setup.recomputed[at] == 1 ? Recomputation::full : Recomputation::none;
      for (int d = 0; d < mesh.data; ++d) {
        StageReplica copy;
        copy.micro_batch = together / mesh.data;
        copy.device_class = mesh.device;
        rank = add_replicas(stage, copy, mesh.tensor, mesh.context, SequenceOrder::zig_zag, rank);
      }
    }
  }
  return plan;
}

}  // namespace heteroperf

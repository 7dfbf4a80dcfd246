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

#include <functional>
#include <numeric>
#include <optional>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_number = std::int64_t{1} << 40;
constexpr int most_of_a_mesh = 1 << 20;
constexpr std::size_t numbers_of_a_mesh = 5;

/// A node as text for a message, cut where it is long.
std::string yaml_text(const YAML::Node& node) {
  YAML::Emitter out;
  out << YAML::Flow << node;
  const std::string text = out.c_str();
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

class SetupReader {
 public:
  explicit SetupReader(std::string origin) : origin_(std::move(origin)) {}

  FlagScaleSetup read(const YAML::Node& document) {
    // A launcher's merged file has the sections under `train`, a file by itself at its top.
    const YAML::Node root = child(document, "train") ? child(document, "train") : document;
    const YAML::Node system = child(root, "system"), model = child(root, "model");
    const YAML::Node hetero = child(system, "hetero");
    if (!hetero) {
      problem("no `system.hetero`", "it holds the meshes of a heterogeneous training");
      problems_.throw_if_any();
    }
    read_meshes(hetero);
    read_devices(hetero);
    setup_.micro_batch = required(model, "model", "micro_batch_size");
    setup_.global_batch = required(model, "model", "global_batch_size");
    check_batches();
    read_layers(hetero, model);
    check_stages(system);
    if (const YAML::Node flag = child(system, "use_distributed_optimizer")) {
      if (!YAML::convert<bool>::decode(flag, setup_.distributed_optimizer)) {
        problem("system.use_distributed_optimizer is " + yaml_text(flag), "must be true or false");
      }
    }
    read_recomputation(system);
    problems_.throw_if_any();
    return std::move(setup_);
  }

 private:
  /// The value of a key; undefined where the parent is none or has no such key.
  static YAML::Node child(const YAML::Node& node, const char* key) {
    const YAML::Node undefined(YAML::NodeType::Undefined);
    return node && node.IsMap() && node[key] ? node[key] : undefined;
  }

  void problem(const std::string& text, const std::string& why = "",
               const std::string& suggestion = "") {
    problems_.add(fmt::format("{}: {}", origin_, text), why, suggestion);
  }

  /// A whole number within bounds; anything else is noted with its path.
  std::optional<std::int64_t> number(const YAML::Node& node, const std::string& path,
                                     std::int64_t least, std::int64_t most) {
    std::int64_t value = 0;
    const bool whole = node.IsScalar() && YAML::convert<std::int64_t>::decode(node, value);
    if (whole && value >= least && value <= most) return value;
    problem(fmt::format("{} is {}", path, yaml_text(node)),
            fmt::format("must be a whole number from {} to {}", least, most));
    return std::nullopt;
  }

  /// A number that has to be there; 1 where it is missing or wrong.
  std::int64_t required(const YAML::Node& parent, const char* name, const char* key) {
    const YAML::Node node = child(parent, key);
    const std::string path = fmt::format("{}.{}", name, key);
    if (node) return number(node, path, 1, most_number).value_or(1);
    problem(fmt::format("no `{}`", path));
    return 1;
  }

  /// A list of whole numbers. Elements that are none become 1, so that later checks can go on.
  std::vector<int> numbers(const YAML::Node& node, const std::string& path, int least) {
    std::vector<int> list;
    if (!node.IsSequence()) {
      problem(fmt::format("{} is {}", path, yaml_text(node)), "must be a list of whole numbers");
      return list;
    }
    for (std::size_t i = 0; i < node.size(); ++i) {
      const auto value = number(node[i], fmt::format("{}[{}]", path, i), least, most_of_a_mesh);
      list.push_back(static_cast<int>(value.value_or(1)));
    }
    return list;
  }

  /// Five numbers for each mesh: tensor, context, expert, data, pipeline. The ranks are summed up
  /// in doubles first: hostile numbers must not overflow.
  void read_meshes(const YAML::Node& hetero) {
    const std::string path = "system.hetero.hetero_process_meshes";
    const YAML::Node node = child(hetero, "hetero_process_meshes");
    if (!node) return problem(fmt::format("no `{}`", path));
    const std::vector<int> all = numbers(node, path, 1);
    if (all.empty() || all.size() % numbers_of_a_mesh != 0) {
      problem(fmt::format("{} has {} numbers", path, all.size()),
              "five for each mesh: tensor, context, expert, data, pipeline");
      return;
    }
    double ranks = 0;
    for (std::size_t i = 0; i < all.size(); i += numbers_of_a_mesh) {
      ranks += std::accumulate(all.begin() + static_cast<std::ptrdiff_t>(i),
                               all.begin() + static_cast<std::ptrdiff_t>(i + numbers_of_a_mesh),
                               1.0, std::multiplies<>());
    }
    if (ranks > most_of_a_mesh) {
      problem(fmt::format("{} asks for {:g} ranks", path, ranks),
              fmt::format("at most {} are read", most_of_a_mesh));
      problems_.throw_if_any();
    }
    for (std::size_t i = 0; i < all.size(); i += numbers_of_a_mesh) {
      setup_.meshes.push_back({all[i], all[i + 1], all[i + 2], all[i + 3], all[i + 4], ""});
    }
  }

  /// Device types are optional, but then there is one for each mesh.
  void read_devices(const YAML::Node& hetero) {
    const std::string path = "system.hetero.hetero_device_types";
    const YAML::Node node = child(hetero, "hetero_device_types");
    if (!node) return;
    if (!node.IsSequence() || node.size() != setup_.meshes.size()) {
      problem(fmt::format("{} is {}", path, yaml_text(node)),
              fmt::format("must be one name for each of {} meshes", setup_.meshes.size()));
      return;
    }
    for (std::size_t i = 0; i < node.size(); ++i) {
      if (node[i].IsScalar()) {
        setup_.meshes[i].device = node[i].Scalar();
      } else {
        problem(fmt::format("{}[{}] is {}", path, i, yaml_text(node[i])), "must be a name");
      }
    }
  }

  /// Every mesh takes the first one's samples.
  void check_batches() {
    if (setup_.meshes.empty()) return;
    const std::int64_t together = setup_.micro_batch * setup_.meshes.front().data;
    for (std::size_t i = 0; i < setup_.meshes.size(); ++i) {
      if (together % setup_.meshes[i].data == 0) continue;
      problem(fmt::format("mesh {} has {} replicas", i, setup_.meshes[i].data),
              fmt::format("the first mesh's micro-batch of {} samples does not divide by that",
                          together));
    }
    if (setup_.global_batch % together == 0) return;
    problem(fmt::format("model.global_batch_size is {}", setup_.global_batch),
            fmt::format("a micro-batch over all replicas has {} samples", together));
  }

  /// The split gives layers by stage. Without it `model.num_layers` is divided evenly; where both
  /// are there they must agree.
  void read_layers(const YAML::Node& hetero, const YAML::Node& model) {
    const std::string path = "system.hetero.hetero_pipeline_layer_split";
    const YAML::Node split = child(hetero, "hetero_pipeline_layer_split");
    const YAML::Node count = child(model, "num_layers");
    std::optional<std::int64_t> layers;
    if (count) layers = number(count, "model.num_layers", 1, most_of_a_mesh);
    const int stages = setup_.stages();
    if (!split) {
      if (!count) return problem(fmt::format("neither `{}` nor `model.num_layers`", path));
      if (!layers || stages == 0) return;
      if (*layers % stages != 0) {
        return problem(fmt::format("{} layers in {} stages", *layers, stages),
                       "uneven stages need a split", fmt::format("Give `{}`.", path));
      }
      setup_.layer_split.assign(at_index(stages), static_cast<int>(*layers / stages));
      return;
    }
    setup_.layer_split = numbers(split, path, 1);
    if (stages > 0 && static_cast<int>(setup_.layer_split.size()) != stages) {
      problem(fmt::format("{} has {} stages", path, setup_.layer_split.size()),
              fmt::format("the meshes have {}", stages));
    }
    std::int64_t sum = 0;
    for (const int of_stage : setup_.layer_split) sum += of_stage;
    if (layers && sum != *layers) {
      problem(fmt::format("{} adds up to {}", path, sum),
              fmt::format("model.num_layers is {}", *layers));
    }
  }

  /// The pipeline size is redundant, and checked.
  void check_stages(const YAML::Node& system) {
    const YAML::Node node = child(system, "pipeline_model_parallel_size");
    if (!node || setup_.meshes.empty()) return;
    const auto stages = number(node, "system.pipeline_model_parallel_size", 1, most_of_a_mesh);
    if (!stages || *stages == setup_.stages()) return;
    problem(fmt::format("system.pipeline_model_parallel_size is {}", *stages),
            fmt::format("the meshes have {} stages", setup_.stages()));
  }

  /// Rows of [stages, micro-batches, 0 or 1, micro-batches, 0 or 1, …].
  void read_recomputation(const YAML::Node& system) {
    const std::size_t stages = setup_.layer_split.size();
    setup_.recomputed.assign(stages, 0);
    const YAML::Node recompute = child(system, "recompute");
    const YAML::Node granularity = child(recompute, "recompute_granularity");
    if (!granularity || granularity.IsNull()) return;
    if (!granularity.IsScalar() || granularity.Scalar() != "full") {
      return problem("system.recompute.recompute_granularity is " + yaml_text(granularity),
                     "full is read");
    }
    const YAML::Node rows = child(recompute, "recompute_granularity_per_stage_micro_batch");
    if (!rows) {
      setup_.recomputed.assign(stages, 1);
      return;
    }
    const std::string path = "system.recompute.recompute_granularity_per_stage_micro_batch";
    std::size_t next = 0;
    for (std::size_t i = 0; rows.IsSequence() && i < rows.size(); ++i) {
      const std::string where = fmt::format("{}[{}]", path, i);
      const std::vector<int> row = numbers(rows[i], where, 0);
      if (row.size() < 3 || row.size() % 2 == 0) {
        problem(where + " is " + yaml_text(rows[i]), "must be [stages, micro-batches, 0 or 1, …]");
        continue;
      }
      for (std::size_t k = 4; k < row.size(); k += 2) {
        if (row[k] == row[2]) continue;
        problem(where + " recomputes some of the micro-batches alone", "a plan recomputes all");
        break;
      }
      for (int s = 0; s < row[0] && next < stages; ++s) setup_.recomputed[next++] = row[2] != 0;
    }
    if (next == stages) return;
    problem(fmt::format("{} has rows for {} stages", path, next),
            fmt::format("there are {}", stages));
  }

  std::string origin_;
  FlagScaleSetup setup_;
  ProblemList problems_;
};

/// Node names of every stage: the blocks by the split, what surrounds them at both ends.
std::vector<std::vector<std::string>> nodes_of_stages(const FlagScaleSetup& setup,
                                                      const ModelGraph& graph,
                                                      ProblemList& problems) {
  std::vector<std::vector<std::string>> nodes(setup.layer_split.size());
  std::size_t stage = 0;
  int last = -1, end = setup.layer_split.front(), sum = 0;
  for (const int count : setup.layer_split) sum += count;
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
    if (mesh.context == 1 && mesh.expert == 1) continue;
    problems.add(fmt::format("mesh {} has context parallelism {} and expert parallelism {}", i,
                             mesh.context, mesh.expert),
                 "plans have tensor, data and pipeline parallelism");
  }
  const auto nodes = nodes_of_stages(setup, graph, problems);
  problems.throw_if_any();
  Plan plan;
  plan.graph_hash = graph.hash();
  plan.zero_stage = setup.distributed_optimizer ? 1 : 0;
  const std::int64_t together = setup.micro_batch * setup.meshes.front().data;
  plan.micro_batches = static_cast<int>(setup.global_batch / together);
  // Ranks are numbered as FlagScale does: tensor-parallel ranks, then replicas, then stages.
  int rank = 0;
  for (const FlagScaleMesh& mesh : setup.meshes) {
    for (int s = 0; s < mesh.pipeline; ++s) {
      const std::size_t at = plan.stages.size();
      PlanStage& stage = plan.stages.emplace_back();
      stage.nodes = nodes[at];
      stage.recomputation = setup.recomputed[at] == 1 ? Recomputation::full : Recomputation::none;
      for (int d = 0; d < mesh.data; ++d) {
        StageReplica& replica = stage.replicas.emplace_back();
        replica.micro_batch = together / mesh.data;
        replica.device_class = mesh.device;
        for (int t = 0; t < mesh.tensor; ++t) replica.ranks.emplace_back(rank++);
      }
    }
  }
  return plan;
}

}  // namespace heteroperf

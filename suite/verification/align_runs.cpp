// Compares two runs of one training, A and B, of which B is the reference: step by step by their
// losses and gradient norms, and tensor by tensor in the newest checkpoint that both have whole. It
// answers whether another machine, plan or precision trains the same model.
//
// The training must be the same in every field except the precision. Differences are relative to B;
// equal numbers have the difference 0 even where both are 0, and a number that is not finite is
// infinitely far from any other. Optimizer states are left out of the tensors, since their meaning
// depends on the optimizer's steps alone. A fixed limit knows nothing of a training, so on request
// the first steps are held to what rounding makes of this one, and the operator of A's devices is
// named with which the difference begins. The table shows the worst ten rows, the document all of
// them.
#include "suite/verification/align_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "results/record/run_folder.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "suite/config/training_identity.hpp"
#include "suite/verification/repeated_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// One of the two runs.
struct Side {
  fs::path folder;
  Journal journal;
  TrainingIdentity training;
  std::string run_id;
};

/// Reads one run. A suite has several trainings and is refused.
Side open_side(const fs::path& path) {
  const RunFiles files = open_run_folder(path);
  if (fs::exists(files.suite())) {
    throw UserError(path.string() + " is a suite", "runs are compared one by one",
                    "Give the folder of one workload inside.");
  }
  Journal journal = read_journal(files.journal().string());
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr) {
    throw UserError(path.string() + " cannot be compared",
                    "it ended before its journal said what is trained");
  }
  TrainingIdentity training = training_identity(*workload);
  std::string run_id = journal.first<StartEvent>()->run_id;
  return {files.folder, std::move(journal), std::move(training), std::move(run_id)};
}

/// The precision may differ: whether it matters is what `align` is asked.
void check_same_training(const Side& a, const Side& b) {
  std::vector<Problem> problems;
  for (const IdentityDifference& difference : differences(a.training, b.training, {"precision"})) {
    problems.push_back({fmt::format("{} differs", difference.name),
                        fmt::format("{} in A, {} in B", difference.a, difference.b), ""});
  }
  if (!problems.empty()) throw Error(ErrorKind::not_comparable, std::move(problems));
}

void align_steps(const Side& a, const Side& b, Alignment& result) {
  double sum = 0;
  for (const auto& [of_a, of_b] : common_steps(a.journal, b.journal)) {
    const AlignedStep row{of_a->n, of_a->loss, of_b->loss,
                          relative_difference(of_a->loss, of_b->loss),
                          relative_difference(of_a->gradient_norm, of_b->gradient_norm)};
    sum += row.relative;
    result.max_relative = std::max(result.max_relative, row.relative);
    result.gradient_norm_max_relative =
        std::max(result.gradient_norm_max_relative, row.gradient_norm_relative);
    result.steps.push_back(row);
  }
  if (result.steps.empty()) {
    throw Error(ErrorKind::not_comparable, {{"the runs have no step in common", "", ""}});
  }
  result.mean_relative = sum / static_cast<double>(result.steps.size());
}

/// The newest step of which both have a checkpoint that is whole.
std::optional<std::pair<CheckpointPlace, CheckpointPlace>> common_checkpoints(
    const Side& a, const Side& b, std::vector<std::string>& warnings) {
  const auto places_b = list_checkpoints(b.folder);
  // The list begins with the newest one.
  for (const CheckpointPlace& place : list_checkpoints(a.folder)) {
    const auto place_b = std::find_if(
        places_b.begin(), places_b.end(),
        [&](const CheckpointPlace& candidate) { return candidate.step == place.step; });
    if (place_b == places_b.end()) continue;
    try {
      CheckpointReader(place.folder).verify();
      CheckpointReader(place_b->folder).verify();
      return std::pair(place, *place_b);
    } catch (const UserError& error) {
      warnings.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

template <class T>
double value_of(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

double element(StoredType type, const std::byte* at) {
  if (type == StoredType::f32) return value_of<float>(at);
  if (type == StoredType::f64) return value_of<double>(at);
  if (type == StoredType::i64) return value_of<std::int64_t>(at);
  // A bf16 number is the upper half of a float.
  std::array<std::byte, sizeof(float)> wide{};
  std::copy_n(at, 2, wide.begin() + 2);
  return value_of<float>(wide.data());
}

/// Reads a whole tensor, however many ranks' files it is spread over, as doubles.
std::vector<double> read_values(const CheckpointReader& reader, const StoredTensor& tensor) {
  const Box box = whole_box(tensor.shape);
  const std::size_t width = element_bytes(tensor.type);
  std::vector<std::byte> bytes(box.count() * width);
  reader.read({{tensor.name, tensor.type, tensor.shape, box, dense_strides(box), bytes.data()}});
  std::vector<double> values(box.count());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = element(tensor.type, bytes.data() + i * width);
  }
  return values;
}

/// Computes max|a − b| / max|b|: relative to the largest element, because small elements of a
/// tensor are mostly rounding.
double max_relative(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return infinite;
    if (a[i] != b[i]) difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  if (difference == 0) return 0;
  return largest > 0 && std::isfinite(difference) ? difference / largest : infinite;
}

/// Names of the states begin so in every checkpoint.
bool is_state_of_optimizer(const std::string& name) { return name.starts_with("optimizer."); }

/// Compares the tensors of A that B has in the same shape; the others become warnings.
void align_tensors(const CheckpointReader& a, const CheckpointReader& b, Alignment& result) {
  std::map<std::string, StoredTensor> tensors_b;
  for (const StoredTensor& tensor : b.tensors()) tensors_b[tensor.name] = tensor;
  for (const StoredTensor& tensor : a.tensors()) {
    if (is_state_of_optimizer(tensor.name)) continue;
    const auto tensor_b = tensors_b.find(tensor.name);
    if (tensor_b == tensors_b.end() || tensor_b->second.shape != tensor.shape) {
      result.warnings.push_back(tensor.name + " is not in both checkpoints in one shape");
      continue;
    }
    result.parameters.push_back(
        {tensor.name, max_relative(read_values(a, tensor), read_values(b, tensor_b->second))});
  }
}

/// Parameters are optional: without checkpoints the losses alone decide.
void align_parameters(const Side& a, const Side& b, Alignment& result) {
  const bool some_a = !list_checkpoints(a.folder).empty();
  const bool some_b = !list_checkpoints(b.folder).empty();
  if (!some_a || !some_b) {
    result.parameters_missing =
        fmt::format("{} no checkpoints (checkpoint.at_end makes one)", some_a   ? "B has"
                                                                       : some_b ? "A has"
                                                                                : "the runs have");
    return;
  }
  const auto places = common_checkpoints(a, b, result.warnings);
  if (!places) {
    result.parameters_missing = "the runs have no whole checkpoints of one step";
    return;
  }
  result.parameter_step = places->first.step;
  align_tensors(CheckpointReader(places->first.folder), CheckpointReader(places->second.folder),
                result);
}

/// The number of steps, the first of the training, that are held to the band.
std::uint64_t held_steps(const Alignment& alignment, std::uint64_t most) {
  std::uint64_t count = 0;
  for (const AlignedStep& step : alignment.steps) count += step.n == count ? 1 : 0;
  if (count == 0) {
    throw Error(ErrorKind::not_comparable,
                {{"the runs have no first step in common", "rounding grows from step 0 on",
                  "Give two runs that begin with their training."}});
  }
  return std::min(count, most);
}

/// The first step, of those that are held, that the rule or the band does not accept.
std::optional<std::uint64_t> parted_step(const Alignment& alignment, std::uint64_t steps) {
  std::vector<double> a, b;
  for (std::uint64_t n = 0; n < steps; ++n) {
    a.push_back(alignment.steps[n].loss_a);
    b.push_back(alignment.steps[n].loss_b);
  }
  return parted_at(a, b, [&](std::size_t n) {
    return alignment.band ? alignment.band->limit(n) : alignment.rule.limit;
  });
}

void hold_to_noise(const Side& a, const Side& b, const NoiseRequest& noise, Alignment& result) {
  const std::uint64_t steps = held_steps(result, noise.steps);
  result.held_steps = steps;
  const RepeatedTraining reference(b.folder, b.journal);
  if (!noise.by_limit) result.band = reference.band(noise.runs, steps);
  result.parted_step = parted_step(result, steps);
  result.searched = noise.locate && !result.ok();
  if (!result.searched) return;
  // Where the mean is too large, no step need be.
  const std::uint64_t last = result.parted_step.value_or(steps - 1);
  result.located =
      RepeatedTraining(a.folder, a.journal).locate(reference.device(), noise.runs, last + 1);
}

/// A difference that is not finite is told to people; JSON has no such numbers.
Datum apart(double difference) { return Datum(difference).as(fmt::format("{:.3g}", difference)); }

Table steps_table(const std::vector<AlignedStep>& steps) {
  const auto loss = [](double AlignedStep::*side) {
    return [side](const AlignedStep& step) {
      return Datum(step.*side).as(fmt::format("{:.9g}", step.*side));
    };
  };
  return table_of("steps", steps,
                  {{{"n", "step", Unit::none}, &AlignedStep::n},
                   {{"loss_a", "loss A", Unit::none}, loss(&AlignedStep::loss_a)},
                   {{"loss_b", "loss B", Unit::none}, loss(&AlignedStep::loss_b)},
                   {{"relative", "relative", Unit::ratio},
                    [](const AlignedStep& step) { return apart(step.relative); }},
                   {{"gradient_norm_relative", "gradient norm", Unit::ratio},
                    [](const AlignedStep& step) { return apart(step.gradient_norm_relative); }}},
                  Audience::programs);
}

Table parameters_table(const std::vector<AlignedParameter>& parameters) {
  return table_of("parameters", parameters,
                  {{{"name", "tensor", Unit::none}, &AlignedParameter::name},
                   {{"max_relative", "max|a-b|/max|b|", Unit::ratio},
                    [](const AlignedParameter& tensor) { return apart(tensor.max_relative); }}},
                  Audience::programs);
}

/// Adds all rows for programs; people see those with the largest values in a column.
void add_table(Document& document, Table table, std::size_t column, const char* noun) {
  constexpr std::size_t most_rows = 10;
  document.table(table);
  std::stable_sort(table.rows.begin(), table.rows.end(), [&](const auto& a, const auto& b) {
    return std::get<double>(a[column].data) > std::get<double>(b[column].data);
  });
  const std::size_t all = table.rows.size();
  table.rows.resize(std::min(all, most_rows));
  table.key.clear();
  table.audience = Audience::people;
  document.table(std::move(table));
  if (all > most_rows) {
    document.line(fmt::format("the {} {} furthest apart of {}", most_rows, noun, all));
  }
}

}  // namespace

bool Alignment::ok() const {
  if (band) return !parted_step;
  // Bit for bit means all that is compared, since equal losses may hide unequal gradients.
  const auto is_equal = [](const AlignedParameter& parameter) {
    return parameter.max_relative == 0;
  };
  if (rule.limit == 0 && (gradient_norm_max_relative > 0 ||
                          !std::all_of(parameters.begin(), parameters.end(), is_equal))) {
    return false;
  }
  return std::isfinite(max_relative) && mean_relative <= rule.limit;
}

Alignment align_runs(const fs::path& a, const fs::path& b, const AcceptanceRule& rule,
                     const std::optional<NoiseRequest>& noise) {
  const Side side_a = open_side(a), side_b = open_side(b);
  if (side_a.run_id == side_b.run_id) {
    throw UserError(fmt::format("the run {} is A and B", side_a.run_id),
                    fmt::format("{} and {}", side_a.folder.string(), side_b.folder.string()),
                    "A run is no evidence against itself: give another one.");
  }
  check_same_training(side_a, side_b);
  Alignment result;
  result.run_a = side_a.run_id;
  result.run_b = side_b.run_id;
  result.rule = rule;
  align_steps(side_a, side_b, result);
  align_parameters(side_a, side_b, result);
  if (noise) hold_to_noise(side_a, side_b, *noise, result);
  return result;
}

namespace {

void add_acceptance(const Alignment& alignment, Document& document) {
  const auto add = [&](const std::string& rule, double limit, double value) {
    document.data("acceptance.rule", "rule", Unit::none, rule);
    document.data("acceptance.limit", "limit", Unit::ratio, limit);
    document.data("acceptance.value", "difference", Unit::ratio, value);
  };
  if (!alignment.band) {
    return add(AcceptanceRule::text, alignment.rule.limit, alignment.mean_relative);
  }
  const std::uint64_t step = alignment.told_step();
  add(fmt::format("|loss_a - loss_b| / |loss_b| of every step at most {:g} bands, told of step {}",
                  parted_bands, step),
      alignment.band->limit(step), alignment.steps[step].relative);
}

void add_verdict(const Alignment& alignment, Document& document) {
  if (!alignment.band) {
    document.line(fmt::format("{}: {} is {:.3g}, at most {:.3g} wanted (largest {:.3g})",
                              alignment.ok() ? "aligned" : "NOT ALIGNED", AcceptanceRule::text,
                              alignment.mean_relative, alignment.rule.limit,
                              alignment.max_relative));
    return;
  }
  const NoiseBand& band = *alignment.band;
  const std::uint64_t step = alignment.told_step();
  document.data("band.runs", "runs of the noise band", Unit::none, band.runs);
  document.data("band.relative", "noise band", Unit::ratio, band.by_step[step]);
  document.data("band.limit", "largest difference allowed", Unit::ratio, band.limit(step));
  document.line(fmt::format(
      "{}: losses of step {} differ by {:.3g}, {} {:g} bands ({:.3g}) of {} sound runs",
      alignment.parted_step ? "NOT ALIGNED" : "aligned", step, alignment.steps[step].relative,
      alignment.parted_step ? "outside" : "as those of all steps before within", parted_bands,
      band.limit(step), band.runs));
}

void add_located(const Alignment& alignment, Document& document) {
  if (!alignment.searched) return;
  if (!alignment.located) {
    document.line(
        "no operator of A is at fault: from the inputs of the reference, every pass of every layer "
        "is within the band of rounding");
    return;
  }
  const auto& [device, fault] = *alignment.located;
  document.data("located.device", "device", Unit::none, device);
  document.data("located.step", "first parted step", Unit::none, fault.step);
  document.data("located.layer", "layer", Unit::none, fault.layer);
  document.data("located.pass", "pass", Unit::none, to_string(fault.pass));
  if (!fault.op.empty()) document.data("located.operator", "operator", Unit::none, fault.op);
  document.data("located.difference", "difference", Unit::ratio, fault.difference);
  document.data("located.band", "band of rounding", Unit::ratio, fault.band);
  document.data("located.after", "with the reference in its place", Unit::ratio, fault.after);
  document.line(fmt::format(
      "located: {} of {} on {}, in step {}: {:.3g} from the reference, where rounding makes {:.3g}",
      to_string(fault.pass), fault.layer, device, fault.step, fault.difference, fault.band));
  document.line(
      fault.op.empty()
          ? "no single operator is at fault: with the reference in the place of each, the "
            "pass is outside its band"
          : fmt::format("operator: {}; with the reference in its place {:.3g} is left", fault.op,
                        fault.after));
}

}  // namespace

Document alignment_document(const Alignment& alignment) {
  Document document{"heteroperf-alignment"};
  document.data("ok", "aligned", Unit::none, alignment.ok());
  document.field("a", "A", Unit::none, alignment.run_a);
  document.field("b", "B", Unit::none, alignment.run_b);
  add_acceptance(alignment, document);
  document.data("acceptance.max_relative", "largest of a step", Unit::ratio,
                alignment.max_relative);
  add_table(document, steps_table(alignment.steps), 3, "steps");
  const double norms = alignment.gradient_norm_max_relative;
  document.field("gradient_norm", "gradient norm", Unit::ratio,
                 Datum(std::vector<Member>{{"max_relative", norms}})
                     .as(fmt::format("at most {:.3g} apart", norms)));
  if (alignment.parameter_step) {
    document.field("parameter_step", "parameters after step", Unit::none,
                   *alignment.parameter_step);
    add_table(document, parameters_table(alignment.parameters), 1, "tensors");
  } else {
    document.data("parameters_missing", "why no parameters were compared", Unit::none,
                  alignment.parameters_missing);
    document.line("parameters were not compared: " + alignment.parameters_missing);
  }
  if (!alignment.warnings.empty()) {
    document.data("warnings", "warnings", Unit::none, alignment.warnings);
  }
  add_verdict(alignment, document);
  add_located(alignment, document);
  return document;
}

}  // namespace heteroperf

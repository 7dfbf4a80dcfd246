// Exports a run as MLPerf log lines, each ":::MLLOG" and a JSON object, which checkers and plotters
// of MLPerf read. MLPerf divides a run into intervals: *init* until training begins, *run* from
// then on, in it *blocks* of training, and an *evaluation* between two blocks. The journal has no
// such intervals but single events with times, so this file goes through its lines once and opens
// and closes intervals: the first warm-up opens the run, an evaluation closes a block, and the next
// step opens one. Each line names the line of the journal that it comes from.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/quantity.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/exports/run_export.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// Values of the record under MLPerf's names. Those that a run does not have are not logged.
constexpr std::pair<const char*, const char*> logged_values[] = {
    {"submission_benchmark", "/workload/name"},
    {"submission_platform", "/system/cpu/model/value"},
    {"seed", "/seeds/run"},
    {"global_batch_size", "/workload/samples_per_step"},
    {"lowest_numerical_precision_in_linear", "/workload/precision"},
    {"lowest_numerical_precision_in_attn", "/workload/precision"},
    {"opt_name", "/workload/config/optimizer/name"},
    {"opt_base_learning_rate", "/workload/config/optimizer/learning_rate"},
    {"opt_learning_rate_warmup_steps", "/workload/config/optimizer/warmup_steps"},
    {"opt_weight_decay", "/workload/config/optimizer/weight_decay"},
    {"opt_gradient_clip_norm", "/workload/config/optimizer/clip_norm"},
};

/// Degrees of parallelism by MLPerf's names, as sets of all values in the plan: MLPerf has room for
/// one number, so a degree that varies between stages is not logged.
struct PlanDegrees {
  std::set<std::size_t> tensor;
  std::set<std::int64_t> micro_batch;
  std::size_t pipeline = 0;
};

/// The degrees of the plan that ran. A search has none, as its groups have no plan. In an
/// interleaved pipeline a rank holds several stages, its chunks, so the degree is the number of
/// stages over that of chunks.
PlanDegrees plan_degrees(const Json& record) {
  PlanDegrees degrees;
  const Json stages = value_at(record, "/plan/stages"), chunks = value_at(record, "/plan/chunks");
  if (!stages.is_array() || !chunks.is_number_integer()) return degrees;
  degrees.pipeline = stages.size() /
                     static_cast<std::size_t>(std::max<std::int64_t>(1, whole_number<int>(chunks)));
  for (const Json& stage : stages) {
    for (const Json& replica : stage.at("replicas")) {
      degrees.tensor.insert(replica.at("ranks").size());
      degrees.micro_batch.insert(whole_number<std::int64_t>(replica.at("micro_batch")));
    }
  }
  return degrees;
}

/// A value that is not finite becomes null, the only thing that JSON has for it.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

/// Writes the log of one run; text() is called once. `line_` and `t_ns_` are the line of the
/// journal and the time that the next entry of the log gets.
class MlperfLog {
 public:
  explicit MlperfLog(const ExportedRun& run) : run_(run), record_(Json::parse(run.record)) {}

  std::string text() {
    at(0);
    header();
    for (line_ = 0; line_ < run_.journal.lines.size(); ++line_) take(run_.journal.lines[line_]);
    line_ = run_.journal.lines.size() - 1;
    finish();
    return text_;
  }

 private:
  /// Moves to a line and to its time.
  void at(std::size_t line) {
    line_ = line;
    t_ns_ = run_.journal.lines[line].t_ns;
  }

  void log(const char* type, const char* key, const Json& value, Json metadata = Json::object()) {
    metadata["file"] = "journal.jsonl";
    metadata["lineno"] = line_ + 1;
    // A journal without a date gives times since the start of its clock.
    const std::int64_t epoch_ns = run_.epoch_ns(t_ns_).value_or(t_ns_);
    const Json event{{"namespace", ""},    {"time_ms", epoch_ns / nanoseconds_per_millisecond},
                     {"event_type", type}, {"key", key},
                     {"value", value},     {"metadata", std::move(metadata)}};
    text_ += ":::MLLOG " + event.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  }
  void point(const char* key, const Json& value, Json metadata = Json::object()) {
    log("POINT_IN_TIME", key, value, std::move(metadata));
  }
  Json samples_so_far() const { return {{"samples_count", samples_}}; }

  void header() {
    log("INTERVAL_START", "init_start", Json());
    point("cache_clear", false);  // no run clears the system's caches
    point("submission_org", "");
    point("submission_division", "open");  // closed is MLPerf's own models alone
    point("submission_status", "research");
    for (const auto& [key, pointer] : logged_values) {
      const Json value = value_at(record_, pointer);
      if (!value.is_null()) point(key, value);
    }
    const PlanDegrees degrees = plan_degrees(record_);
    if (degrees.micro_batch.size() == 1) point("micro_batch_size", *degrees.micro_batch.begin());
    if (degrees.tensor.size() == 1) point("tensor_parallelism", *degrees.tensor.begin());
    if (degrees.pipeline > 0) point("pipeline_parallelism", degrees.pipeline);
  }

  void take(const JournalLine& line) {
    t_ns_ = line.t_ns;
    if (const auto* phase = std::get_if<PhaseEvent>(&line.event)) {
      // The run begins with its first phase of training.
      const bool trains = phase->phase == Phase::warmup || phase->phase == Phase::measure;
      if (trains && !started_) start();
    }
    if (const auto* step = std::get_if<StepEvent>(&line.event)) take_step(*step);
    if (const auto* eval = std::get_if<EvalEvent>(&line.event)) take_evaluation(*eval);
  }

  void start() {
    started_ = true;
    log("INTERVAL_END", "init_stop", Json());
    log("INTERVAL_START", "run_start", Json());
    begin_block();
  }

  void begin_block() {
    in_block_ = true;
    block_begin_ns_ = t_ns_;
    block_samples_ = 0;
    log("INTERVAL_START", "block_start", Json(), samples_so_far());
  }

  /// Closes the block, with its mean throughput if it trained anything. Without an open block it
  /// does nothing.
  void end_block() {
    if (!in_block_) return;
    in_block_ = false;
    const double seconds = static_cast<double>(t_ns_ - block_begin_ns_) * nanosecond;
    if (block_samples_ > 0 && seconds > 0) {
      point("tracked_stats",
            {{"throughput", static_cast<double>(block_samples_) / seconds}, {"train_loss", loss_}},
            samples_so_far());
    }
    log("INTERVAL_END", "block_stop", Json(), samples_so_far());
  }

  /// A step opens the run as well, where no phase of training came before it.
  void take_step(const StepEvent& step) {
    if (!started_) start();
    if (!in_block_) begin_block();
    samples_ += step.samples;
    block_samples_ += step.samples;
    loss_ = number(step.loss);
  }

  /// The line of an evaluation is written after it ended, so its entries take their times from the
  /// event; afterwards the line's own time counts again.
  void take_evaluation(const EvalEvent& eval) {
    if (!started_) return;
    const std::int64_t line_ns = t_ns_;
    t_ns_ = eval.t_start_ns;
    end_block();
    log("INTERVAL_START", "eval_start", Json(), samples_so_far());
    t_ns_ = eval.t_end_ns;
    const bool classifier = value_at(record_, "/workload/family") == "classifier";
    point("eval_accuracy", number(classifier ? eval.accuracy : eval.loss), samples_so_far());
    eval_samples_ = eval.samples;
    log("INTERVAL_END", "eval_stop", Json(), samples_so_far());
    t_ns_ = line_ns;
  }

  /// The run is a success only if it met its target and is complete and valid.
  void finish() {
    at(line_);
    end_block();
    if (!started_) return;
    const bool met = value_at(record_, "/metrics/quality/met") == true &&
                     value_at(record_, "/status") == "complete" &&
                     value_at(record_, "/validity/class") != "invalid";
    Json metadata = samples_so_far();
    metadata["status"] = met ? "success" : "aborted";
    log("INTERVAL_END", "run_stop", Json(), std::move(metadata));
    point("train_samples", samples_);
    point("eval_samples", eval_samples_);
  }

  const ExportedRun& run_;
  const Json record_;
  std::string text_;
  std::size_t line_ = 0;
  std::int64_t t_ns_ = 0, block_begin_ns_ = 0;
  std::uint64_t samples_ = 0, block_samples_ = 0, eval_samples_ = 0;
  Json loss_;
  bool started_ = false, in_block_ = false;
};

}  // namespace

std::string mllog_export_text(const ExportedRun& run) { return MlperfLog(run).text(); }

}  // namespace heteroperf

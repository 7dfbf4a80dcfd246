// Reading goes in passes over the whole table, and each pass stops the reading if it has
// complaints: rows, cells and tokens; the spelling of the gradients; instructions; the row of each
// stage, from which the graph follows; and last the edge and peer of each message, which a table
// leaves out. So a wrong table is named with all that is wrong of one kind, and never half
// understood. PyTorch's two spellings give B a different meaning, so a word can only be understood
// together with the spelling of its table.

#include "runners/schedule/formats/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "metrics/base/error.hpp"
#include "runners/schedule/formats/schedule_json.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_complaints = 16;

/// An action of a table, its place and its parts: "12SEND_F3" has stage 12, word SEND_F and
/// micro-batch 3 (none where it has no number). A stage is a segment of the chain.
struct Action {
  int row = 0, column = 0;
  std::string_view cell;
  bool idle = false, pair = false;  ///< `pair` marks the first of an overlapped pair
  SegmentId stage = -1;
  MicroBatchId micro_batch = -1;
  std::string_view word = {};
};

/// The reason why a token or cell is wrong; empty where it is right.
using CsvComplaint = std::string;

/// An operation's words in both spellings.
struct Word {
  Op op;
  const char* iwb;
  const char* bwbw;
  const char* in(CsvSpelling spelling) const { return spelling == CsvSpelling::iwb ? iwb : bwbw; }
};

constexpr Word words[] = {
    {Op::forward, "F", "F"},
    {Op::input_gradient, "I", "B"},
    {Op::weight_gradient, "W", "W"},
    {Op::backward, "B", "BW"},
    {Op::send_act, "SEND_F", "SEND_F"},
    {Op::recv_act, "RECV_F", "RECV_F"},
    {Op::send_grad, "SEND_B", "SEND_B"},
    {Op::recv_grad, "RECV_B", "RECV_B"},
    {Op::reduce_grad, "REDUCE_GRAD", "REDUCE_GRAD"},
};

constexpr std::string_view overlap = ")OVERLAP_F_B";

/// Reads digits; the number is none where there are none. False for one beyond all sizes.
template <class I>
bool read_number(std::string_view digits, I& number) {
  long long value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool fits = digits.empty() || (error == std::errc{} && value < most_tasks);
  if (fits) number = I(value);
  return fits;
}

/// Explains the words that PyTorch has and a schedule here does not.
CsvComplaint unknown_word(const std::string& word, CsvSpelling spelling) {
  if (word == "UNSHARD" || word == "RESHARD") {
    return word +
           " gathers and drops the parameters of sharded data parallelism (FSDP), which is no part "
           "of a pipeline schedule here: export the table without it";
  }
  if (word == "I" || word == "BW") {
    return word + " belongs to the other spelling of gradients: a table has I, W, B or B, W, BW";
  }
  std::string known;
  for (const Word& entry : words) known += std::string(" ") + entry.in(spelling);
  return "not an action; known are" + known;
}

/// Splits "0F3" into its three parts, whatever the word.
CsvComplaint split_token(std::string_view text, Action& action) {
  constexpr const char* digits = "0123456789";
  constexpr const char* form = "an action is stage, word, micro-batch, as in 0F3";
  const auto take = [&](const char* characters) {
    const std::string_view part = text.substr(0, text.find_first_not_of(characters));
    text.remove_prefix(part.size());
    return part;
  };
  const std::string_view stage = take(digits);
  action.word = take("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  const std::string_view micro_batch = take(digits);
  const bool stage_fits = read_number(stage, action.stage);
  if (stage_fits && stage.empty()) return "an action begins with the number of its stage";
  if (stage_fits && action.word.empty()) return form;
  if (!stage_fits || !read_number(micro_batch, action.micro_batch)) {
    return "a number beyond every size allowed";
  }
  return text.empty() ? "" : form;
}

/// Takes out the two tokens of "(0F7;7B3)OVERLAP_F_B"; false for other cells.
bool split_pair(std::string_view cell, std::string_view& first, std::string_view& second) {
  if (cell.size() <= overlap.size() || cell.front() != '(' || !cell.ends_with(overlap)) {
    return false;
  }
  const std::string_view inside = cell.substr(1, cell.size() - 1 - overlap.size());
  const std::size_t middle = inside.find(';');
  if (middle == std::string_view::npos) return false;
  first = inside.substr(0, middle);
  second = inside.substr(middle + 1);
  return true;
}

/// Makes the instruction of an action, with segment (the stage) and micro-batch set.
CsvComplaint to_instruction(const Action& action, CsvSpelling spelling, Instruction& instruction) {
  const auto* word = std::ranges::find_if(
      words, [&](const Word& entry) { return action.word == entry.in(spelling); });
  if (word == std::end(words)) return unknown_word(std::string(action.word), spelling);
  const bool per_micro_batch = word->op != Op::reduce_grad;
  if (per_micro_batch && action.micro_batch < 0) return "the number of the micro-batch is missing";
  if (!per_micro_batch && action.micro_batch >= 0) {
    return "REDUCE_GRAD is once per stage and takes no micro-batch";
  }
  instruction = compute(word->op, action.stage, action.micro_batch);
  return {};
}

/// Reads one table. Complaints are collected, and thrown between the passes.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::optional<CsvSpelling> spelling,
            const std::optional<StageCosts>& costs)
      : spelling_(spelling), costs_(costs) {
    split_rows(text);
  }

  CsvSchedule read() {
    raise();
    if (!spelling_) spelling_ = detect_spelling();
    convert();
    raise();
    place_stages();
    raise();
    build_graph();
    address_messages();
    raise();
    return {std::move(schedule_), *spelling_};
  }

 private:
  struct Stage {
    const Action* first = nullptr;  // the first action of the stage in the table
    bool computed = false;
  };

  static std::string at(const Action& action) {
    return fmt::format("row {}, column {}: {}", action.row + 1, action.column + 1,
                       in_quotes(action.cell));
  }

  void complain(std::string problem, std::string why, std::string suggestion = {}) {
    if (++complaints_ <= most_complaints) {
      problems_.add(std::move(problem), std::move(why), std::move(suggestion));
    }
  }

  /// Throws what has been collected, if anything.
  void raise() {
    if (complaints_ > most_complaints) {
      problems_.add(fmt::format("and {} more like these", complaints_ - most_complaints));
    }
    problems_.throw_if_any();
  }

  /// Splits the text into rows, and these into cells.
  void split_rows(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
    if (text.empty()) {
      return complain("the table is empty", "a schedule has one row per rank");
    }
    for (int row = 0; complaints_ < most_complaints; ++row) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      split_cells(line, row);
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
  }

  void split_cells(std::string_view line, int row) {
    rows_.emplace_back();
    for (int column = 0; complaints_ < most_complaints; ++column) {
      const std::size_t end = line.find(',');
      add_cell(line.substr(0, end), row, column);
      if (end == std::string_view::npos) break;
      line.remove_prefix(end + 1);
    }
  }

  /// A cell is idle, one action, or an overlapped pair of two.
  void add_cell(std::string_view cell, int row, int column) {
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    std::string_view first = cell, second;
    const bool pair = split_pair(cell, first, second);
    const auto add = [&](std::string_view text, bool leads) {
      Action& action = rows_.back().emplace_back(Action{row, column, cell, cell.empty(), leads});
      if (action.idle) return;
      const CsvComplaint complaint = split_token(text, action);
      if (!complaint.empty()) complain(at(action), complaint);
      actions_ += 1;
    };
    add(first, pair);
    if (pair) add(second, false);
  }

  /// Words that only one spelling has decide; a table without them says the same in both.
  CsvSpelling detect_spelling() const {
    bool split = false;  // into B and W
    for (const std::vector<Action>& row : rows_) {
      for (const Action& action : row) {
        if (action.word == "I") return CsvSpelling::iwb;
        split |= action.word == "BW" || action.word == "W";
      }
    }
    return split ? CsvSpelling::bwbw : CsvSpelling::iwb;
  }

  /// Turns every action into an instruction.
  void convert() {
    for (const std::vector<Action>& row : rows_) {
      std::vector<Instruction>& program = schedule_.programs.emplace_back();
      program.reserve(row.size());
      for (const Action& action : row) program.push_back(instruction_of(action));
    }
  }

  Instruction instruction_of(const Action& action) {
    Instruction instruction;
    if (action.idle) return instruction;
    const CsvComplaint complaint = to_instruction(action, *spelling_, instruction);
    if (!complaint.empty()) complain(at(action), complaint);
    const bool computes = is_compute(instruction.op);
    if (action.cell.front() == '(' && instruction.op != Op::idle && !computes) {
      complain(at(action), "only computations overlap");
    }
    instruction.fused_with_next = action.pair;
    if (!computes) schedule_.level = ScheduleLevel::lowered;
    // A stage beyond the number of actions leaves a gap for sure; absurd numbers must cost no
    // memory.
    if (action.stage.value() >= actions_ || action.micro_batch.value() >= actions_) {
      complain(at(action), fmt::format("a table of {} actions cannot get that far", actions_));
    }
    return instruction;
  }

  /// Finds the row that computes each stage.
  void place_stages() {
    stages_.resize(highest(&Action::stage) + 1);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      bool computes = false;
      for (std::size_t i = 0; i < rows_[row].size(); ++i) {
        const Action& action = rows_[row][i];
        if (action.idle) continue;
        const bool compute = is_compute(schedule_.programs[row][i].op);
        note_stage(action, compute);
        computes |= compute;
      }
      if (!computes) {
        complain(fmt::format("row {} computes nothing", row + 1), "every rank holds a stage");
      }
    }
    for (const SegmentId stage : stages_.ids()) {
      if (stages_[stage].computed) continue;
      complain(fmt::format("no row computes stage {}", stage.value()),
               fmt::format("the table has stages up to {}", stages_.size() - 1));
    }
  }

  /// The largest stage or micro-batch of all actions.
  template <class I>
  int highest(I Action::*number) const {
    int most = -1;
    for (const std::vector<Action>& row : rows_) {
      for (const Action& action : row) most = std::max(most, (action.*number).value());
    }
    return most;
  }

  /// Notes that a stage acts in a row; it may not act in another one.
  void note_stage(const Action& action, bool compute) {
    Stage& stage = stages_[action.stage];
    if (stage.first == nullptr) stage.first = &action;
    stage.computed |= compute;
    if (stage.first->row != action.row) {
      complain(at(action), fmt::format("stage {} acts on row {} too (column {}: {})",
                                       action.stage.value(), stage.first->row + 1,
                                       stage.first->column + 1, in_quotes(stage.first->cell)));
      stage.first = &action;  // one complaint per change of rows
    }
  }

  /// Makes the chain of stages, with the costs that were given.
  void build_graph() {
    PipelineGraph& graph = schedule_.graph;
    graph.ranks = static_cast<int>(rows_.size());
    const StageCosts costs = costs_ ? *costs_ : uniform_costs(graph.ranks, 1, 1, 1, 0);
    const auto expect = [&](const char* what, const std::vector<double>& list) {
      if (std::ssize(list) == graph.ranks) return;
      complain(fmt::format("{} {} costs for {} ranks", list.size(), what, graph.ranks),
               "the table has one row per rank", fmt::format("Give {} of each.", graph.ranks));
    };
    expect("forward", costs.forward);
    expect("input-gradient", costs.input_gradient);
    expect("weight-gradient", costs.weight_gradient);
    raise();
    std::vector<int> held(rows_.size(), 0);
    for (const Stage& stage : stages_) ++held[stage.first->row];
    graph.micro_batches = std::max(0, highest(&Action::micro_batch)) + 1;
    graph.latency = costs.latency;
    for (const SegmentId stage : stages_.ids()) {
      const int rank = stages_[stage].first->row, share = held[rank];
      Segment& segment = graph.segments.emplace_back();
      segment.name = std::to_string(stage.value());
      segment.rank = rank;
      segment.forward = costs.forward[rank] / share;
      segment.input_gradient = costs.input_gradient[rank] / share;
      segment.weight_gradient = costs.weight_gradient[rank] / share;
      segment.activation = 1.0 / share;
      segment.weights = stage.value();
      if (stage > 0) graph.edges.push_back({stage - 1, stage, 0, true});
    }
    schedule_.name = "imported";
    schedule_.chunks = *std::max_element(held.begin(), held.end());
    normalise(graph);
  }

  /// Gives each message its edge, peer and place in its channel.
  void address_messages() {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      std::map<std::pair<Op, int>, int> sent;  // (operation, peer) → messages so far
      for (std::size_t i = 0; i < rows_[row].size(); ++i) {
        Instruction& instruction = schedule_.programs[row][i];
        if (!is_message(instruction.op)) continue;
        if (!address(rows_[row][i], instruction)) continue;
        instruction.sequence = sent[{instruction.op, instruction.peer}]++;
      }
    }
  }

  /// Sets edge and peer of a message; edge e joins stages e and e + 1.
  bool address(const Action& action, Instruction& message) {
    const bool onward = message.op == Op::send_act || message.op == Op::recv_grad;
    const SegmentId neighbour = onward ? message.segment + 1 : message.segment - 1;
    if (!stages_.contains(neighbour)) {
      complain(at(action), fmt::format("stage {} is the {} one: it has no neighbour there",
                                       message.segment.value(), onward ? "last" : "first"));
      return false;
    }
    message.edge = EdgeId(std::min(message.segment, neighbour).value());
    message.peer = stages_[neighbour].first->row;
    if (message.peer == action.row) {
      complain(at(action),
               fmt::format("stage {} is on the same row: no message is needed", neighbour.value()));
    }
    return message.peer != action.row;
  }

  std::optional<CsvSpelling> spelling_;
  const std::optional<StageCosts>& costs_;
  std::vector<std::vector<Action>> rows_;
  long long actions_ = 0;
  IdVector<SegmentId, Stage> stages_;
  Schedule schedule_;
  ProblemList problems_;
  std::size_t complaints_ = 0;
};

[[noreturn]] void refuse(const std::string& why) {
  throw UserError("this schedule does not fit a CSV table", why, "Use the format json.");
}

/// The number of each segment's stage along the chain; a table says only one chain.
IdVector<SegmentId, int> chain_stages(const PipelineGraph& graph) {
  if (graph.parts > 1) refuse(fmt::format("micro-batches have {} parts", graph.parts));
  if (!graph.interactions.empty()) refuse("its branches interact");
  const std::vector<SegmentId> order = topological_order(graph);
  IdVector<SegmentId, int> stage(graph.segments.size());
  for (std::size_t i = 0; i < order.size(); ++i) stage[order[i]] = static_cast<int>(i);
  bool chain = graph.edges.size() + 1 == graph.segments.size();
  for (const Edge& edge : graph.edges) chain &= stage[edge.to] == stage[edge.from] + 1;
  if (!chain) {
    refuse(fmt::format("its {} segments with {} edges are not one chain", graph.segments.size(),
                       graph.edges.size()));
  }
  return stage;
}

/// Writes one table.
class CsvWriter {
 public:
  CsvWriter(const Schedule& schedule, CsvSpelling spelling)
      : schedule_(schedule), spelling_(spelling), stage_(chain_stages(schedule.graph)) {}

  std::string write() {
    for (const std::vector<Instruction>& program : schedule_.programs) {
      bool first = true;
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (left_out(program[i].op)) continue;
        if (!first) text_ += ',';
        first = false;
        if (!program[i].fused_with_next) {
          add_token(program[i]);
        } else {
          add_pair(program, i++);
        }
      }
      text_ += '\n';
    }
    return std::move(text_);
  }

 private:
  static bool left_out(Op op) {
    return op == Op::load || op == Op::loss || op == Op::opt_step || op == Op::free;
  }

  /// Writes a fused pair as one cell.
  void add_pair(const std::vector<Instruction>& program, std::size_t i) {
    if (i + 1 >= program.size() || program[i + 1].fused_with_next || !is_compute(program[i].op) ||
        !is_compute(program[i + 1].op)) {
      refuse(
          fmt::format("{} is fused with something else than one computation", to_text(program[i])));
    }
    text_ += '(';
    add_token(program[i]);
    text_ += ';';
    add_token(program[i + 1]);
    text_ += ")OVERLAP_F_B";
  }

  void add_token(const Instruction& i) {
    if (i.op == Op::idle) return;
    const auto* word = std::ranges::find(words, i.op, &Word::op);
    if (word == std::end(words) || !stage_.contains(i.segment)) {
      refuse(fmt::format("it has no word for {}", to_text(i)));
    }
    fmt::format_to(std::back_inserter(text_), "{}{}", stage_[i.segment], word->in(spelling_));
    if (i.micro_batch >= 0) fmt::format_to(std::back_inserter(text_), "{}", i.micro_batch.value());
  }

  const Schedule& schedule_;
  CsvSpelling spelling_;
  IdVector<SegmentId, int> stage_;
  std::string text_;
};

}  // namespace

CsvSchedule read_csv(std::string_view text, std::optional<CsvSpelling> spelling,
                     const std::optional<StageCosts>& costs) {
  return CsvReader(text, spelling, costs).read();
}

std::string write_csv(const Schedule& schedule, CsvSpelling spelling) {
  return CsvWriter(schedule, spelling).write();
}

}  // namespace heteroperf

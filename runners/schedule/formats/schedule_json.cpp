// Schedules as JSON. A schedule may have a hundred million instructions, so each is a short text
// instead of an object, and text is appended and scanned by hand. Reading trusts nothing: numbers
// have to fit the graph, and a hash that is there has to fit graph and programs, so that an edited
// file is noticed. check_schedule() says afterwards whether the programs make sense.

#include "runners/schedule/formats/schedule_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace {

constexpr const char* format_name = "heteroperf-schedule";

constexpr bool is_decimal(char c) { return c >= '0' && c <= '9'; }

/// Appends a field that is set.
void append_field(std::string& text, const char* mark, std::int32_t value) {
  if (value < 0) return;
  text += mark;
  fmt::format_to(std::back_inserter(text), FMT_STRING("{}"), value);
}
template <class Tag>
void append_field(std::string& text, const char* mark, Id<Tag> id) {
  append_field(text, mark, id.value());
}

/// Reads a text from its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  bool at_number() const { return !text_.empty() && is_decimal(text_.front()); }

  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool take_space_before_number() {
    if (text_.size() < 2 || text_[0] != ' ' || !is_decimal(text_[1])) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool take_number(std::int32_t& value) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{}) return false;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return true;
  }

  template <class Tag>
  bool take_number(Id<Tag>& id) {
    std::int32_t number = id.value();
    const bool taken = take_number(number);
    id = Id<Tag>(number);
    return taken;
  }

  /// Takes a number behind `mark`, or nothing at all where the mark is not there.
  template <class Number>
  bool take_marked(char mark, Number& value) {
    if (!take(mark)) return true;
    return at_number() && take_number(value);
  }

  bool take_op(Op& op) {
    std::size_t length = 0;
    while (length < text_.size() &&
           ((text_[length] >= 'A' && text_[length] <= 'Z') || text_[length] == '_')) {
      ++length;
    }
    const std::string_view name = text_.substr(0, length);
    for (int i = 1; i < op_count; ++i) {
      if (name != to_string(static_cast<Op>(i))) continue;
      op = static_cast<Op>(i);
      text_.remove_prefix(length);
      return true;
    }
    if (!text_.starts_with("idle")) return false;
    text_.remove_prefix(4);
    op = Op::idle;
    return true;
  }

 private:
  std::string_view text_;
};

/// Takes one of the fields that follow the instruction's own text.
bool take_extra(Scanner& scanner, Instruction& i) {
  if (scanner.take('+')) {
    i.fused_with_next = true;
    return scanner.at_end();
  }
  if (scanner.take('e')) {
    return scanner.at_number() && i.edge == EdgeId::none() && scanner.take_number(i.edge);
  }
  constexpr struct {
    char mark;
    std::int32_t Instruction::*field;
  } fields[] = {{'p', &Instruction::peer},
                {'g', &Instruction::group},
                {'b', &Instruction::buffer},
                {'s', &Instruction::sequence}};
  for (const auto& [mark, field] : fields) {
    if (!scanner.take(mark)) continue;
    return scanner.at_number() && i.*field == -1 && scanner.take_number(i.*field);
  }
  return false;
}

/// The keys that `heteroperf schedule` writes beside a schedule. Their values follow from the rest
/// and are passed over.
constexpr const char* derived_keys[] = {"ranks",
                                        "micro_batches",
                                        "parts",
                                        "instructions",
                                        "instructions_lowered",
                                        "model",
                                        "makespan",
                                        "longest_span",
                                        "bubble_rate_makespan",
                                        "bubble_rate_span",
                                        "idle",
                                        "idle_split",
                                        "peak_activations",
                                        "peak_memory",
                                        "weight_copies",
                                        "lower_bound",
                                        "memory_limit",
                                        "search",
                                        "checks"};

/// The reason why an instruction cannot belong to the graph; empty where it can. check_schedule()
/// has to say whether it stands in the right place.
std::string misfit(const Instruction& i, const PipelineGraph& graph) {
  const auto above = [](std::int32_t value, auto count) {
    return value >= static_cast<std::int64_t>(count);
  };
  const bool message = is_message(i.op);
  const std::size_t edges = message                ? graph.edges.size()
                            : i.op == Op::interact ? graph.interactions.size()
                                                   : most_tasks;
  if (above(i.segment.value(), graph.segments.size())) {
    return fmt::format("segments are 0 to {}", graph.segments.size() - 1);
  }
  if (above(i.micro_batch.value(), graph.micro_batches)) {
    return fmt::format("micro-batches are 0 to {}", graph.micro_batches - 1);
  }
  if (above(i.part, graph.parts)) return fmt::format("there are {} parts", graph.parts);
  if (above(i.edge.value(), edges)) return fmt::format("there are {} edges of this kind", edges);
  if (above(i.peer, graph.ranks)) return fmt::format("ranks are 0 to {}", graph.ranks - 1);
  if (above(std::max({i.group, i.buffer, i.sequence}), most_tasks)) {
    return fmt::format("numbers end at {}", most_tasks - 1);
  }
  const bool computes = is_compute(i.op) || i.op == Op::load || i.op == Op::loss;
  if (computes && (i.segment < 0 || i.micro_batch < 0))
    return "a segment and micro-batch is needed";
  if (message && (i.segment < 0 || i.micro_batch < 0 || i.edge == EdgeId::none() || i.peer < 0)) {
    return "a message needs segment, micro-batch, edge and peer";
  }
  if (i.op == Op::interact && i.edge < 0) return "the number of the interaction is needed";
  return {};
}

/// Reads a schedule; problems are collected and thrown together.
class ScheduleReader {
 public:
  ScheduleReader(const Json& document, const std::string& origin)
      : problems_(origin), reader_(document, "", problems_) {}

  Schedule read() {
    reader_.expect_format(format_name, 1);
    reader_.require({"level", "graph", "programs"});
    reader_.read("name", schedule_.name);
    reader_.read("chunks", schedule_.chunks, 1, most_tasks);
    reader_.read("level", schedule_.level);
    reader_.read_object("graph", [&](ObjectReader& graph) {
      schedule_.graph = detail::read_graph(graph, detail::SegmentNames::any);
    });
    if (const Json* programs = reader_.list("programs")) read_programs(*programs);
    std::string hash;
    reader_.read("hash", hash);
    const bool has_hash = reader_.has("hash");
    for (const char* key : derived_keys) reader_.value(key);
    reader_.finish();
    problems_.throw_if_any();
    if (has_hash) check_hash(hash);
    problems_.throw_if_any();
    return std::move(schedule_);
  }

 private:
  /// Reads one program for each rank of the graph.
  void read_programs(const Json& programs) {
    if (programs.size() != static_cast<std::size_t>(schedule_.graph.ranks)) {
      problems_.add(fmt::format("programs is a list of {}", programs.size()),
                    fmt::format("the graph has {} ranks", schedule_.graph.ranks),
                    "Give one program per rank.");
    }
    // Where the graph is wrong every instruction would be a misfit.
    if (!problems_.empty()) return;
    schedule_.programs.resize(programs.size());
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      read_program(programs[rank], element_path("programs", rank), schedule_.programs[rank]);
    }
  }

  void read_program(const Json& texts, const std::string& path, std::vector<Instruction>& program) {
    if (!texts.is_array()) {
      note_wrong(texts, path, "a list of instructions", problems_);
      return;
    }
    program.resize(texts.size());
    for (std::size_t i = 0; i < texts.size() && !problems_.full(); ++i) {
      read_instruction(texts[i], path, i, program[i]);
    }
    if (!program.empty() && program.back().fused_with_next) {
      problems_.add(fmt::format("{} ends with an instruction fused with the next", path));
    }
  }

  void read_instruction(const Json& value, const std::string& path, std::size_t index,
                        Instruction& instruction) {
    const bool parsed =
        value.is_string() && parse_instruction(value.get_ref<const std::string&>(), instruction);
    const std::string why =
        parsed ? misfit(instruction, schedule_.graph) : "must be an instruction, as in \"F 0.3\"";
    if (why.empty()) return;
    problems_.add(fmt::format("{} is {}", element_path(path, index), shown(value)), why);
    instruction = {};
  }

  void check_hash(const std::string& hash) {
    const std::string computed = schedule_hash(schedule_).hex();
    if (hash == computed) return;
    problems_.add(fmt::format("hash is {}", in_quotes(hash)),
                  fmt::format("graph and programs give {}: the file was changed", computed),
                  "Remove the key \"hash\" if the change is meant.");
  }

  DocumentProblems problems_;
  ObjectReader reader_;
  Schedule schedule_;
};

Schedule parse_schedule(const std::string& text, const std::string& origin) {
  const Json document = parse_strict_json(text, origin, format_name);
  return ScheduleReader(document, origin).read();
}

/// Appends a program as a list of texts.
void append_program(std::string& text, const std::vector<Instruction>& program) {
  text += '[';
  for (std::size_t i = 0; i < program.size(); ++i) {
    text += i == 0 ? "\"" : ",\"";
    append_instruction(text, program[i]);
    text += '"';
  }
  text += ']';
}

}  // namespace

void append_instruction(std::string& text, const Instruction& i) {
  text += i.op == Op::idle ? "idle" : to_string(i.op);
  append_field(text, " ", i.segment);
  append_field(text, ".", i.micro_batch);
  if (i.part > 0) append_field(text, "/", i.part);
  const bool message = is_message(i.op);
  if (message) append_field(text, is_send(i.op) ? ">" : "<", i.peer);
  append_field(text, " e", i.edge);
  if (!message) append_field(text, " p", i.peer);
  append_field(text, " g", i.group);
  append_field(text, " b", i.buffer);
  append_field(text, " s", i.sequence);
  if (i.fused_with_next) text += " +";
}

bool parse_instruction(std::string_view text, Instruction& i) {
  i = {};
  Scanner scanner(text);
  if (!scanner.take_op(i.op)) return false;
  if (scanner.take_space_before_number() && !scanner.take_number(i.segment)) return false;
  std::int32_t part = 0;
  if (!scanner.take_marked('.', i.micro_batch) || !scanner.take_marked('/', part)) return false;
  if (part < 0 || part > UINT16_MAX) return false;
  i.part = static_cast<std::uint16_t>(part);
  if (is_send(i.op) && !scanner.take_marked('>', i.peer)) return false;
  if (is_receive(i.op) && !scanner.take_marked('<', i.peer)) return false;
  while (!scanner.at_end()) {
    if (!scanner.take(' ') || !take_extra(scanner, i)) return false;
  }
  return true;
}

/// A message must stay on one line, and a terminal must not be steered by it.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t most_quoted = 40;
  std::string result = "\"";
  for (const char c : text.substr(0, most_quoted)) {
    const bool prints = c >= 0x20 && c < 0x7f;
    result += prints ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result + (text.size() > most_quoted ? "...\"" : "\"");
}

std::string schedule_to_text(const Schedule& schedule) {
  std::string text = fmt::format(
      "{{\"_format\":\"heteroperf-schedule\",\"_version\":1,\n\"name\":{},\"chunks\":{},"
      "\"level\":\"{}\",\n\"hash\":\"{}\",\n\"graph\":{},\n\"programs\":[",
      Json(schedule.name).dump(-1, ' ', false, Json::error_handler_t::replace), schedule.chunks,
      to_string(schedule.level), schedule_hash(schedule).hex(),
      detail::graph_to_text(schedule.graph));
  for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    text += rank == 0 ? "\n" : ",\n";
    append_program(text, schedule.programs[rank]);
  }
  return text + "]}\n";
}

Schedule schedule_from_text(const std::string& text) { return parse_schedule(text, "schedule"); }

Schedule read_schedule_file(const std::string& path) {
  return parse_schedule(read_text_file(path, "schedule"), path);
}

}  // namespace heteroperf

// Reads a journal. It has one JSON line per event, and each line names the SHA-256 of the line
// before in `prev`. The hashes make a chain: whoever changes, removes or inserts a line has to
// write all lines behind it anew, and the record names the last hash (`head`). The first line is
// `start`, which has no line before it, and nothing follows `stop`. A last line without a newline
// is *torn*: its process was killed while writing, and it does not count. Damage anywhere else
// throws a JournalError with the lines that are good.
#include "results/journal/journal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "metrics/base/text_file.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

/// Parses whole lines one after another and holds the chain.
class ChainReader {
 public:
  explicit ChainReader(Journal& journal) : journal_(journal) {}

  void read(std::string_view line) {
    ParsedLine parsed = parse(line);
    if (parsed.prev != prev_) {
      // Either of two lines that do not fit each other may be the wrong one, so the first of them
      // is not good either.
      const std::size_t before = journal_.lines.size();
      throw JournalError(
          journal_.path, before + 1, before - std::min<std::size_t>(before, 1),
          fmt::format("its 'prev' is {}, but the line before has the hash {}", parsed.prev, prev_));
    }
    check_order(parsed.event);
    prev_ = sha256_hex(line);
    journal_.lines.push_back({parsed.t_ns, std::move(parsed.event)});
  }

  const std::string& head() const { return prev_; }

 private:
  /// A file whose first line is not readable is no journal at all; any later line is damage.
  ParsedLine parse(std::string_view line) const {
    try {
      return event_from_json_line(line);
    } catch (const Error& error) {
      if (!journal_.lines.empty()) fail(error.what());
      throw UserError(fmt::format("{} is not a journal of this program", journal_.path),
                      fmt::format("line 1: {}", error.what()));
    }
  }

  /// Only the first line is a `start`, and none stands behind a `stop`.
  void check_order(const Event& event) {
    const bool first = journal_.lines.empty();
    if (std::holds_alternative<StartEvent>(event) != first) {
      fail(first ? "the journal does not begin with a 'start' line" : "a second 'start' line");
    }
    if (!first && std::holds_alternative<StopEvent>(journal_.lines.back().event)) {
      fail("it follows the 'stop' line");
    }
  }

  [[noreturn]] void fail(std::string what) const {
    const std::size_t good = journal_.lines.size();
    throw JournalError(journal_.path, good + 1, good, std::move(what));
  }

  Journal& journal_;
  std::string prev_{no_previous_line};
};

}  // namespace

JournalError::JournalError(const std::string& path, std::size_t line, std::size_t good_lines,
                           std::string what)
    : Error(ErrorKind::verification,
            {{fmt::format("{}, line {}: damaged", path, line), std::move(what), ""}}),
      line_(line),
      good_lines_(good_lines) {}

Journal parse_journal(std::string_view text, std::string path) {
  Journal journal;
  journal.path = std::move(path);
  journal.bytes = text.size();
  journal.sha256 = sha256_hex(text);
  ChainReader chain(journal);
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string_view::npos; start = end + 1) {
    chain.read(text.substr(start, end - start));
  }
  journal.torn_bytes = text.size() - start;
  journal.head = chain.head();
  if (journal.lines.empty()) {
    throw UserError(fmt::format("{} holds no whole line", journal.path),
                    fmt::format("{} bytes without a newline", journal.bytes));
  }
  return journal;
}

Journal read_journal(const std::string& path) {
  return parse_journal(read_regular_file(path), path);
}

/// The first line of a journal of any length is read without the others.
StartEvent read_journal_start(const std::string& path) {
  require_regular_file(path);
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) throw UserError(path + " has no line");
  StartEvent start = *parse_journal(line + '\n', path).first<StartEvent>();
  if (start.run_id.empty()) throw UserError(path + " is damaged", "its run_id is empty");
  return start;
}

std::vector<std::pair<const StepEvent*, const StepEvent*>> common_steps(const Journal& a,
                                                                        const Journal& b) {
  const auto by_number = [](const Journal& journal) {
    std::map<std::uint64_t, const StepEvent*> steps;
    for (const StepEvent* step : journal.all<StepEvent>()) steps.emplace(step->n, step);
    return steps;
  };
  const auto steps_b = by_number(b);
  std::vector<std::pair<const StepEvent*, const StepEvent*>> steps;
  for (const auto& [n, step] : by_number(a)) {
    const auto other = steps_b.find(n);
    if (other != steps_b.end()) steps.emplace_back(step, other->second);
  }
  return steps;
}

}  // namespace heteroperf

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "results/journal/events.hpp"

namespace heteroperf {

inline constexpr const char* journal_format = "heteroperf-journal";
inline constexpr int journal_version = 1;
/// `prev` of the first line.
inline constexpr std::string_view no_previous_line =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// The settings of a writer: how often it writes, and who else learns of events. Both callbacks run
/// inside the writer, so they must not take long.
struct JournalOptions {
  double flush_interval_s = 1.0;
  std::function<std::int64_t()> clock = now_ns;
  /// Sees every event as it is accepted, in order, under a lock: to be quick.
  std::function<void(std::int64_t t_ns, const Event& event)> on_line = {};
  /// Called once per interval on the background thread; may append. Throws nothing.
  std::function<void()> on_interval = {};
};

/// Appends events to `journal.jsonl`, one canonical JSON line each, chained by SHA-256.
///
/// Lines are buffered and written by a background thread at least once per interval, and before
/// `append` returns for phase, stop and warning events (phase and stop also reach the disk). Usable
/// from any thread of rank 0. When the disk refuses, `append` throws SystemError with the path and
/// the system's words; lines accepted before stay buffered, and every later call tries again.
class JournalWriter {
 public:
  /// Creates the file. Throws SystemError when it exists or cannot be created.
  explicit JournalWriter(std::string path, JournalOptions options = {});
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  /// Makes a line of the event, stamped with the clock's time. Where it throws SystemError, as said
  /// above, the event may be buffered already.
  void append(const Event& event);
  /// Writes what is buffered; for failure paths: never throws, gives up after 0.2 s on a lock held
  /// by another thread. False when lines are still buffered.
  bool flush_now() noexcept;

  /// From now on, until the journal is closed, `tell` learns of the first write that takes longer
  /// than `deadline_s`, as on a network's disk that does not answer; on a thread of its own, since
  /// the writing one hangs in the kernel. Call once.
  void watch_disk(double deadline_s, std::function<void(const Error&)> tell);

  const std::string& path() const;
  /// Wall time this writer has used, on all threads.
  double cost_s() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One line as read: its time on rank 0's clock, and its event.
struct JournalLine {
  std::int64_t t_ns = 0;
  Event event;
};

/// One journal line without its newline: {"t_ns","rank","kind",…,"prev"}. A double that is not
/// finite is written as "<name>_nonfinite":"nan" | "inf" | "-inf"; empty strings, lists and absent
/// values are left out.
std::string event_to_json_line(std::int64_t t_ns, const Event& event, std::string_view prev);

/// A line with the hash of the line before.
struct ParsedLine : JournalLine {
  std::string prev;
};
/// Throws UserError saying what is wrong with the line (malformed, unknown kind or key, wrong
/// type); the caller adds path and line number.
ParsedLine event_from_json_line(std::string_view line);

/// A journal as read. `lines` ends before a torn last line (one without its newline), which
/// `torn_bytes` tells of.
struct Journal {
  std::string path;
  std::vector<JournalLine> lines;
  std::string head;    ///< SHA-256 of the last whole line without its newline
  std::string sha256;  ///< hash of the whole file, a torn tail included
  std::uint64_t bytes = 0, torn_bytes = 0;

  /// The first event of this kind, or null.
  template <class T>
  const T* first() const {
    for (const JournalLine& line : lines) {
      if (const T* event = std::get_if<T>(&line.event)) return event;
    }
    return nullptr;
  }
  /// The last event of this kind, or null.
  template <class T>
  const T* last() const {
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      if (const T* event = std::get_if<T>(&line->event)) return event;
    }
    return nullptr;
  }
  /// Every event of this kind, in order.
  template <class T>
  std::vector<const T*> all() const {
    std::vector<const T*> events;
    for (const JournalLine& line : lines) {
      if (const T* event = std::get_if<T>(&line.event)) events.push_back(event);
    }
    return events;
  }
};

/// A journal that is not as it was written. Kind is `verification`; the text names path and line.
class JournalError : public Error {
 public:
  JournalError(const std::string& path, std::size_t line, std::size_t good_lines, std::string what);
  std::size_t line() const { return line_; }
  /// Lines before the damage: where two do not fit each other, the first of them is not good.
  std::size_t good_lines() const { return good_lines_; }

 private:
  std::size_t line_, good_lines_;
};

/// Reads, checks the chain and every field. Throws UserError when the file cannot be read, is empty
/// or is no journal of a version this program knows, JournalError on any other damage.
Journal read_journal(const std::string& path);
/// The steps that both journals have, by number. A step that a journal has twice counts by its
/// first line.
std::vector<std::pair<const StepEvent*, const StepEvent*>> common_steps(const Journal& a,
                                                                        const Journal& b);
/// The first line alone: what is damaged further on is not seen. Throws as `read_journal` does, and
/// where the line has no run_id.
StartEvent read_journal_start(const std::string& path);
/// As `read_journal`, of text already in memory.
Journal parse_journal(std::string_view text, std::string path);

}  // namespace heteroperf

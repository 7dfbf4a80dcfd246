#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace heteroperf {

/// The protocol of a run in lockstep, version 1: a gate lets two runs advance by turns, so that
/// both see the same machine. The gate names two pipes in HETEROPERF_TURNS; lines of text go over
/// them.
///
///   run to gate    turns 1                            it takes part (the first line)
///                  refused WHY                        it does not; it ends
///                  ready PEAK_BYTES FOLDER            it is warm; its memory, where it writes
///   gate to run    steps N                            do N steps of training and stop again
///                  end                                no more turns: leave a record
///   run to gate    done N CPU_NS WAIT_NS IDLE_NS T…   after a turn: CPU time of its processes,
///                                                     what their threads waited for a core (each
///                                                     at most as long as it ran), CPU time while
///                                                     standing still before it, and nanoseconds
///                                                     of each step
///
/// Between `ready` or `done` and the next line of the gate a run uses no core.
inline constexpr int turn_protocol_version = 1;

/// "VERSION:SECONDS:PREFIX" of HETEROPERF_TURNS.
struct TurnAddress {
  static constexpr const char* variable = "HETEROPERF_TURNS";

  int version = turn_protocol_version;
  double patience_s = 0;         ///< a run waits so long for a line of the gate
  std::filesystem::path prefix;  ///< both pipes' paths begin so

  std::filesystem::path orders() const { return prefix.string() + ".orders"; }
  std::filesystem::path answers() const { return prefix.string() + ".answers"; }
  std::string text() const;
  /// Throws UserError where it is none.
  static TurnAddress parse(const std::string& text);
};

/// The first line of a run that is warm.
struct TurnReady {
  std::uint64_t peak_bytes = 0;
  std::string folder;  ///< where the run writes, absolute
};

/// The line of a run after a turn, all times in nanoseconds.
struct TurnDone {
  std::int64_t cpu_ns = 0, wait_ns = 0, idle_cpu_ns = 0;
  std::vector<std::int64_t> step_ns;
};

std::string to_line(const TurnReady& ready);
std::string to_line(const TurnDone& done);
/// Nothing where the line is not of that kind, or not well formed.
std::optional<TurnReady> parse_ready(const std::string& line);
std::optional<TurnDone> parse_done(const std::string& line);

/// One end of the two pipes. Lines are at most 64 KiB.
class TurnPipe {
 public:
  enum class Side { gate, run };
  enum class Event { line, timed_out, gone, gave_up };
  struct Received {
    Event event = Event::timed_out;
    std::string line;
  };

  /// The gate makes the pipes, opens both ends, so that a run can come and go, and removes them in
  /// the end; a run opens what is there. From then on this process ignores SIGPIPE. Throws
  /// SystemError{environment}.
  TurnPipe(Side side, const TurnAddress& address);

  /// Throws SystemError{environment} where nobody reads any more.
  void send(const std::string& line);
  /// The next line. Sleeps until it comes; asks `give_up` ten times a second.
  Received receive(std::chrono::steady_clock::time_point deadline,
                   const std::function<bool()>& give_up);

 private:
  Received take_line();

  /// An open end of a pipe; made by this side, its file goes with it.
  class End {
   public:
    End(std::filesystem::path path, int mode, bool makes);
    ~End();
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    int descriptor() const { return descriptor_; }

   private:
    std::filesystem::path path_;
    bool makes_;
    int descriptor_ = -1;
  };

  std::filesystem::path path_;
  End in_, out_;
  std::string received_;
};

}  // namespace heteroperf

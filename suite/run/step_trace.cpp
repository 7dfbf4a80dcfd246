#include "suite/run/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "metrics/error.hpp"
#include "metrics/text_file.hpp"
#include "results/run_folder.hpp"
#include "runners/comm/text_exchange.hpp"
#include "runners/schedule/formats/trace_json.hpp"

namespace heteroperf {
namespace {

constexpr double microsecond_ns = 1e3;

/// Calls `take` with index, start and end of every span in the text.
template <class Take>
void read_spans(const std::string& text, Take&& take) {
  std::istringstream lines(text);
  std::size_t index = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  while (lines >> index >> start_ns >> end_ns) take(index, start_ns, end_ns);
}

std::string track_name(const ChosenPlan& chosen, int rank) {
  const RankRole& role = chosen.roles[static_cast<std::size_t>(rank)];
  const std::string share = held_share(chosen.plan, role);
  return fmt::format("rank {}, {}{}{}", rank, chosen.device_class(rank), share.empty() ? "" : ", ",
                     share);
}

std::string trace_of(const ChosenPlan& chosen, const std::vector<std::string>& texts) {
  std::int64_t zero_ns = std::numeric_limits<std::int64_t>::max();
  for (const std::string& text : texts) zero_ns = std::min(zero_ns, earliest_start_ns(text));
  std::vector<TraceTrack> tracks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const int position = chosen.roles[rank].position;
    const auto& program = chosen.schedule.programs[static_cast<std::size_t>(position)];
    tracks.push_back({track_name(chosen, static_cast<int>(rank)), position,
                      spans_from_text(texts[rank], program.size(), zero_ns)});
  }
  return trace_text(chosen.schedule, tracks);
}

}  // namespace

std::string spans_text(const std::vector<InstructionSpan>& spans, std::int64_t clock_offset_ns) {
  std::string text;
  for (const InstructionSpan& span : spans) {
    text += fmt::format("{} {} {}\n", span.index, span.start_ns + clock_offset_ns,
                        span.end_ns + clock_offset_ns);
  }
  return text;
}

std::vector<TimeSpan> spans_from_text(const std::string& text, std::size_t instructions,
                                      std::int64_t zero_ns) {
  std::vector<TimeSpan> spans(instructions);
  read_spans(text, [&](std::size_t index, std::int64_t start_ns, std::int64_t end_ns) {
    HETEROPERF_EXPECT(index < instructions);
    spans[index] = {static_cast<double>(start_ns - zero_ns) / microsecond_ns,
                    static_cast<double>(end_ns - zero_ns) / microsecond_ns};
  });
  return spans;
}

std::int64_t earliest_start_ns(const std::string& text) {
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
  read_spans(text, [&](std::size_t, std::int64_t start_ns, std::int64_t) {
    first_ns = std::min(first_ns, start_ns);
  });
  return first_ns;
}

void write_step_trace(RankContext& context, const ChosenPlan& chosen,
                      const std::vector<InstructionSpan>& spans) {
  const auto texts = gather_texts(context.all_ranks(), spans_text(spans, context.clock_offset_ns));
  if (!context.is_first()) return;
  try {
    write_file_atomically(context.config.trace, trace_of(chosen, texts));
  } catch (const SystemError& error) {
    context.post(WarningEvent{fmt::format("no trace: {}", error.what()), ""});
  }
}

}  // namespace heteroperf

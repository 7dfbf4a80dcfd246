// Replays gates in lockstep from turns that gates have recorded (turns.csv of their folders), with
// processes drawn anew: how often unchanged programs pass, how often slowed ones are regressions,
// and how often either goes wrong.
//
//   lockstep_replay_study THRESHOLD_PCT SECONDS [--slowed PCT] [--start S] [--pair S] [--pairs N]
//   turns.csv…
//
// Every recorded pair is one draw: a replayed gate takes pairs with replacement, exchanges base and
// head in half of them (unchanged programs have no sides), and looks after each from the sixth on
// as `heteroperf gate --lockstep` does. --slowed makes every turn of the head longer by so much, or
// names what the recorded heads were slowed by, whose sides then stay. A pair takes its turns and
// --start seconds more; no further one is begun after SECONDS, nor after N pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/sequential_test.hpp"
#include "metrics/turn_pairs.hpp"

namespace heteroperf {
namespace {

struct RecordedPair {
  std::vector<TurnQuad> quads;
  double seconds = 0;
};

struct Request {
  double margin = 0, seconds = 0, slowed = 0, start_s = 4, pair_s = 0;
  std::size_t most_pairs = SequentialRule{}.most_blocks;
  std::vector<std::string> files;
};

double number(const std::string& text) { return std::stod(text); }

Request request_of(const std::vector<std::string>& words) {
  Request request;
  if (words.size() < 3) throw UserError("THRESHOLD_PCT SECONDS FILES are wanted");
  request.margin = -std::log1p(-number(words[0]) / 100);
  request.seconds = number(words[1]);
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "--slowed") {
      request.slowed = number(words[++i]) / 100;
    } else if (words[i] == "--start") {
      request.start_s = number(words[++i]);
    } else if (words[i] == "--pairs") {
      request.most_pairs = std::stoul(words[++i]);
    } else if (words[i] == "--pair") {
      request.pair_s = number(words[++i]);
    } else {
      request.files.push_back(words[i]);
    }
  }
  return request;
}

/// The pairs of one gate; its first quad of each does not count, nor does its trial pair.
void read_pairs(const std::string& file, double pair_s, std::vector<RecordedPair>& pairs) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  std::map<int, RecordedPair> of_gate;
  while (std::getline(stream, line)) {
    std::istringstream fields(line);
    std::vector<std::string> row;
    for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
    if (row.size() < 11) break;
    const int pair = std::stoi(row[0]), quad = std::stoi(row[1]);
    const auto turn = static_cast<std::size_t>(std::stoi(row[2]));
    if (pair == 0) continue;
    RecordedPair& recorded = of_gate[pair];
    recorded.seconds += number(row[9]);
    if (quad == 0 || (pair_s > 0 && turn == 0 && recorded.seconds > pair_s)) continue;
    if (turn == 0) recorded.quads.push_back({{}, row[3] == "base"});
    if (recorded.quads.size() != static_cast<std::size_t>(quad)) continue;  // behind the cut
    recorded.quads.back().turns[turn] = {number(row[10]), number(row[4])};
  }
  for (auto& [pair, recorded] : of_gate) {
    if (recorded.quads.size() < fewest_quads + 1) continue;
    recorded.quads.pop_back();  // may be cut off
    if (pair_s > 0) recorded.seconds = std::min(recorded.seconds, pair_s);
    pairs.push_back(recorded);
  }
}

struct Outcome {
  ChangeVerdict verdict = ChangeVerdict::undecided;
  bool alarm = false;
  std::size_t pairs = 0;
  double seconds = 0, resolution = 0;
};

TurnPair drawn(const RecordedPair& pair, bool exchange, double slowed) {
  std::vector<TurnQuad> quads = pair.quads;
  for (TurnQuad& quad : quads) {
    if (exchange) quad.base_first = !quad.base_first;
    for (std::size_t i = 0; i < quad.turns.size(); ++i) {
      const bool is_base = (i == 0 || i == 3) == quad.base_first;
      if (!is_base) quad.turns[i].step_s *= 1 + slowed;
    }
  }
  return summarize_pair(quads);
}

Outcome replay(const std::vector<RecordedPair>& recorded, const Request& request,
               std::uint64_t seed) {
  RandomStream random(seed);
  SequentialRule rule;
  rule.margin = request.margin;
  rule.noise = 0;
  rule.fewest_blocks = 6;
  rule.most_blocks = request.most_pairs;
  std::vector<TurnPair> pairs;
  Outcome outcome;
  outcome.seconds = request.start_s;  // the trial pair
  while (pairs.size() < rule.most_blocks && outcome.seconds < request.seconds) {
    const RecordedPair& pair = recorded[random.below(recorded.size())];
    pairs.push_back(drawn(pair, random.unit() < 0.5, request.slowed));
    outcome.seconds += pair.seconds + request.start_s;
    outcome.pairs = pairs.size();
    if (pairs.size() < rule.fewest_blocks) continue;
    const PairsEvidence found = combine_pairs(pairs);
    LogRatio gain = found.effect;
    gain.mean = -gain.mean;
    const Evidence evidence{gain, found.control, pairs.size()};
    const Judgement judged = judge_evidence(std::span(&evidence, 1), rule).front();
    outcome.verdict = judged.verdict;
    outcome.alarm = judged.control_alarm;
    outcome.resolution = -std::expm1(-judged.resolution);
    if (judged.verdict != ChangeVerdict::undecided) break;
  }
  return outcome;
}

void tell_spread(const std::vector<RecordedPair>& recorded) {
  std::vector<TurnPair> pairs;
  for (const RecordedPair& pair : recorded) pairs.push_back(summarize_pair(pair.quads));
  double own = 0, quads = 0, seconds = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    own += pairs[i].effect.standard_error * pairs[i].effect.standard_error;
    quads += static_cast<double>(pairs[i].quads);
    seconds += recorded[i].seconds;
  }
  const auto n = static_cast<double>(pairs.size());
  fmt::print(
      "{} pairs, {:.0f} s of turns, {:.1f} quads a pair; error of a pair {:.2f} %, fresh "
      "processes differ by {:.2f} %\n",
      pairs.size(), seconds, quads / n, 100 * std::sqrt(own / n),
      100 * combine_pairs(pairs).process_spread);
}

int run(const std::vector<std::string>& words) {
  constexpr int gates = 2000;
  const Request request = request_of(words);
  std::vector<RecordedPair> recorded;
  for (const std::string& file : request.files) read_pairs(file, request.pair_s, recorded);
  if (recorded.size() < 2) throw UserError("the files hold fewer than 2 pairs of turns");
  tell_spread(recorded);
  std::map<ChangeVerdict, int> counts;
  int alarms = 0;
  std::vector<double> seconds, resolutions;
  for (int i = 0; i < gates; ++i) {
    const Outcome outcome = replay(recorded, request, static_cast<std::uint64_t>(i) + 1);
    ++counts[outcome.verdict];
    alarms += outcome.alarm ? 1 : 0;
    seconds.push_back(outcome.seconds);
    resolutions.push_back(outcome.resolution);
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(resolutions.begin(), resolutions.end());
  const auto share = [&](ChangeVerdict verdict) { return 100.0 * counts[verdict] / gates; };
  fmt::print(
      "{} gates at {:.2f} %, slowed by {:.2f} %: regression {:.1f} %, passed {:.1f} %, "
      "improved {:.1f} %, undecided {:.1f} % (control alarms {:.1f} %); median {:.0f} s, "
      "95 % within {:.0f} s; resolution median {:.2f} %\n",
      gates, -100 * std::expm1(-request.margin), 100 * request.slowed,
      share(ChangeVerdict::regression), share(ChangeVerdict::no_regression),
      share(ChangeVerdict::improvement), share(ChangeVerdict::undecided), 100.0 * alarms / gates,
      seconds[gates / 2], seconds[gates * 95 / 100], 100 * resolutions[gates / 2]);
  return 0;
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** arguments) {
  try {
    return heteroperf::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_replay_study: {}\n", error.what());
    return 2;
  }
}

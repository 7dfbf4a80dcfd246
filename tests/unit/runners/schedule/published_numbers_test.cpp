// Bubble rates, idle times and peaks of memory that the schedules' authors publish.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "tests/unit/runners/schedule/generated.hpp"

namespace heteroperf {
namespace {

/// A row of the table of the zero-bubble paper (arXiv 2401.10241), reproduced by its authors'
/// script; the column of 1F1B-I with every message round the ranks charged.
struct PublishedRow {
  int p, m;
  double forward, input_gradient, weight_gradient, latency;
  int chunks;
  double one_f_one_b, interleaved, h1, h2, one_p, two_p;

  friend void PrintTo(const PublishedRow& row, std::ostream* out) {
    *out << row.p << " ranks, " << row.m << " micro-batches, F " << row.forward;
  }
};

constexpr PublishedRow published[] = {
    {8, 24, 18522, 18086, 9337, 601, 3, .2431, .1090, .1585, .1083, .1585, .0433},
    {8, 32, 18513, 18086, 9331, 626, 3, .1985, .0847, .1242, .0837, .1242, .0039},
    {8, 64, 18546, 18097, 9321, 762, 3, .1240, .0461, .0674, .0444, .0674, .0026},
    {8, 24, 29718, 29444, 19927, 527, 4, .2347, .0827, .1323, .0698, .1323, .0029},
    {8, 32, 29802, 29428, 19530, 577, 4, .1898, .0644, .1045, .0559, .1045, .0022},
    {8, 64, 29935, 29621, 19388, 535, 4, .1091, .0328, .0554, .0294, .0554, .0010},
    {16, 48, 11347, 11248, 8132, 377, 3, .2552, .1136, .1397, .0672, .1397, .0066},
    {16, 64, 11307, 11254, 8101, 379, 3, .2082, .0878, .1088, .0516, .1088, .0054},
    {16, 128, 11325, 11308, 8109, 378, 3, .1251, .0459, .0576, .0266, .0576, .0028},
    {32, 96, 10419, 10207, 7715, 408, 2, .2646, .1528, .1421, .0641, .1421, .0038},
    {32, 128, 10408, 10204, 7703, 408, 2, .2168, .1192, .1106, .0490, .1106, .0029},
    {32, 256, 10402, 10248, 7698, 460, 2, .1352, .0641, .0594, .0257, .0594, .0018},
};
constexpr double half_a_digit = 5e-5;

class Published : public testing::TestWithParam<PublishedRow> {
 protected:
  ScheduleRequest asked() const {
    const PublishedRow& row = GetParam();
    return request(row.p, row.m, row.forward, row.input_gradient, row.weight_gradient, row.latency);
  }
};

TEST_P(Published, BubbleOfTheMakespan) {
  const PublishedRow& row = GetParam();
  EXPECT_NEAR(timed("1f1b", asked()).bubble_rate_makespan, row.one_f_one_b, half_a_digit);
  EXPECT_NEAR(timed("zb-h1", asked()).bubble_rate_makespan, row.h1, half_a_digit);
  ScheduleRequest chunked = asked();
  chunked.chunks = row.chunks;
  EXPECT_NEAR(timed("interleaved-1f1b", chunked).bubble_rate_makespan, row.interleaved,
              half_a_digit);
}

TEST_P(Published, BubbleOfTheSpan) {
  EXPECT_NEAR(timed("zb-h2", asked()).bubble_rate_span, GetParam().h2, half_a_digit);
}

TEST_P(Published, SearchedBubbleOfTheSpanIsNoLarger) {
  EXPECT_LE(timed("zb-1p", asked()).bubble_rate_span, GetParam().one_p + half_a_digit);
  EXPECT_LE(timed("zb-2p", asked()).bubble_rate_span, GetParam().two_p + half_a_digit);
}

INSTANTIATE_TEST_SUITE_P(Table, Published, testing::ValuesIn(published), [](const auto& row) {
  return "ranks" + std::to_string(row.param.p) + "_of_" + std::to_string(row.param.m) + "_F" +
         std::to_string(static_cast<int>(row.param.forward));
});

/// Random costs with the order that identities ask for.
class Identities : public testing::TestWithParam<int> {
 protected:
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  void expect_idle(const char* name, const ScheduleRequest& asked, double idle) {
    const ScheduleReport result = timed(name, asked);
    for (const RankTimes& rank : result.ranks) {
      ASSERT_NEAR(rank.idle, idle, 1e-9 * result.makespan)
          << name << " p=" << asked.ranks << " m=" << asked.micro_batches;
    }
  }
  std::mt19937_64 random_{7};
};

TEST_P(Identities, GpipeAnd1f1b) {
  const int p = GetParam();
  for (int m = 1; m <= 4 * p; ++m) {
    const double f = between(0.5, 2), b = between(0.5, 2), w = between(0.5, 2);
    expect_idle("gpipe", request(p, m, f, b, w), (p - 1) * (f + b + w));
    expect_idle("1f1b", request(p, m, f, b, w), (p - 1) * (f + b + w));
  }
}

TEST_P(Identities, ChunksDivideTheBubble) {
  const int p = GetParam();
  for (int m = p; m <= 4 * p; ++m) {
    const int v = 1 + m % 4;
    const double f = between(0.5, 2), b = between(0.5, 2), w = between(0.5, 2);
    ScheduleRequest asked = request(p, m, f, b, w);
    asked.chunks = v;
    expect_idle("looped-bfs", asked, (p - 1) * (f + b + w) / v);
    if (m % p == 0) expect_idle("interleaved-1f1b", asked, (p - 1) * (f + b + w) / v);
  }
}

TEST_P(Identities, ZbH1) {
  const int p = GetParam();
  for (int m = p; m <= 4 * p; ++m) {
    const double f = between(0.5, 2), b = between(0.5, 2), w = between(0, std::min(f, b));
    expect_idle("zb-h1", request(p, m, f, b, w), (p - 1) * (f + b - w));
  }
}

TEST_P(Identities, ZbH2) {
  const int p = GetParam();
  for (int m = 2 * p - 1; m <= 4 * p; ++m) {
    const double f = between(0.5, 2), b = between(0.5, 2), c = between(0, 0.3);
    const double w = between(0, std::min(f, (f + b + 2 * c) / 2));
    const ScheduleReport result = timed("zb-h2", request(p, m, f, b, w, c));
    ASSERT_NEAR(result.longest_span - m * (f + b + w), (p - 1) * (f + b + 2 * c - 2 * w),
                1e-9 * result.makespan)
        << "p=" << p << " m=" << m;
  }
}

TEST_P(Identities, ZbVWithEqualCosts) {
  const int p = GetParam();
  for (int m = 2 * p; m <= 4 * p; ++m) {
    const ScheduleReport result = timed("zb-v", request(p, m, 2, 2, 2));
    ASSERT_DOUBLE_EQ(result.longest_span, 6 * m) << "p=" << p << " m=" << m;
    ASSERT_DOUBLE_EQ(result.makespan, 6 * m + (p - 1)) << "p=" << p << " m=" << m;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Identities, testing::Range(2, 17));

/// Makespans of PyTorch's ZBV schedule; its costs are those of a chunk.
TEST(ZbV, MakespansOfPyTorch) {
  const struct {
    int p, m;
    double equal, with_latency, unequal;
  } cases[] = {{2, 4, 25, 128, 132},
               {4, 8, 51, 268, 284},
               {4, 12, 75, 388, 404},
               {8, 16, 103, 548, 588},
               {8, 24, 151, 788, 828}};
  for (const auto& is : cases) {
    EXPECT_EQ(timed("zb-v", request(is.p, is.m, 2, 2, 2, 0)).makespan, is.equal);
    EXPECT_EQ(timed("zb-v", request(is.p, is.m, 10, 10, 10, 1)).makespan, is.with_latency);
    EXPECT_EQ(timed("zb-v", request(is.p, is.m, 10, 12, 8, 2)).makespan, is.unequal);
  }
}

TEST(Chimera, StepsOfItsGrid) {
  const int cases[][3] = {{4, 4, 10},   {4, 8, 18},   {8, 8, 22}, {8, 16, 38},
                          {16, 16, 46}, {16, 32, 78}, {6, 6, 16}, {6, 12, 28}};
  for (const auto& [p, m, steps] : cases) {
    EXPECT_EQ(timed("chimera", request(p, m, 1, 0.5, 0.5)).makespan, steps) << p << "," << m;
  }
}

TEST(Chimera, IdleWhereBackwardTakesTwice) {
  for (const int p : {4, 8, 16}) {
    for (const int m : {p, 2 * p}) {
      const ScheduleReport result = timed("chimera", request(p, m, 1, 1, 1));
      EXPECT_EQ(result.makespan - 3 * m, (p - 2) * (m / p + 1)) << p << "," << m;
    }
  }
}

/// d: down, u: up. Its grid has two empty slots in every row, which the order does not show.
TEST(Chimera, RowsOfFourRanks) {
  const Schedule schedule = make("chimera", request(4, 4, 1, 0.5, 0.5));
  std::vector<std::string> rows;
  for (const auto& program : schedule.programs) {
    std::string& row = rows.emplace_back();
    for (const Instruction& is : program) {
      row += is.op == Op::forward ? "F" : "B";
      row += is.segment < 4 ? "d " : "u ";
    }
  }
  EXPECT_EQ(rows,
            (std::vector<std::string>{"Fd Fd Fu Bu Fu Bu Bd Bd ", "Fd Fu Fd Fu Bu Bd Bu Bd ",
                                      "Fu Fd Fu Fd Bd Bu Bd Bu ", "Fu Fu Fd Bd Fd Bd Bu Bu "}));
}

TEST(Dualpipe, IdleOfItsReadme) {
  for (const int p : {2, 4, 8, 12}) {
    for (const int m : {2 * p, 3 * p + 2, 4 * p}) {
      if (m % 2 != 0) continue;
      // (PP/2 − 1)(F&B + B − 3W), B the full backward; exact for equal costs, else the most.
      const auto readme = [&](double f, double b, double w) {
        return (p / 2 - 1) * ((f + b + w) + (b + w) - 3 * w);
      };
      EXPECT_DOUBLE_EQ(timed("dualpipe", request(p, m, 1, 1, 1)).ranks[0].idle, readme(1, 1, 1));
      const ScheduleReport unequal = timed("dualpipe", request(p, m, 1, 1.5, 1));
      for (const RankTimes& rank : unequal.ranks) {
        EXPECT_LE(rank.idle, readme(1, 1.5, 1) + 1e-9);
      }
    }
  }
}

TEST(Seq1f1b, PartsDivideTheBubble) {
  for (const auto& [parts, idle] : {std::pair{1, 72.0}, {2, 36.0}, {4, 18.0}}) {
    ScheduleRequest asked = request(4, 8, 8, 8, 8);
    asked.parts = parts;
    const ScheduleReport result = timed("seq1f1b", asked);
    for (const RankTimes& rank : result.ranks) EXPECT_DOUBLE_EQ(rank.idle, idle);
  }
}

/// Peak of activations freed at W or BW, against the formula of each schedule.
class Peaks : public testing::TestWithParam<int> {
 protected:
  std::vector<double> peaks(const char* name, int m, int parts = 1, int chunks = 0) {
    ScheduleRequest asked = request(GetParam(), m);
    asked.parts = parts;
    if (chunks > 0) asked.chunks = chunks;
    return timed(name, asked).peak_activations;
  }
  double most(const char* name, int m) {
    const std::vector<double> all = peaks(name, m);
    return *std::max_element(all.begin(), all.end());
  }
};

TEST_P(Peaks, OfOneDirection) {
  const int p = GetParam();
  for (const int m : {p, 2 * p, 4 * p}) {
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(peaks("gpipe", m)[r], m);
      EXPECT_EQ(peaks("looped-bfs", m)[r], m);
      EXPECT_EQ(peaks("1f1b", m)[r], std::min(m, p - r));
    }
  }
  for (const int m : {2 * p, 4 * p}) {
    EXPECT_EQ(most("zb-h1", m), p);
    EXPECT_EQ(most("zb-h2", m), 2 * p - 1);
  }
}

TEST_P(Peaks, OfChunksAndParts) {
  const int p = GetParam(), m = 4 * p;
  for (const int v : {2, 3}) {
    const std::vector<double> all = peaks("interleaved-1f1b", m, 1, v);
    for (int r = 0; r < p; ++r) {
      EXPECT_NEAR(all[r], (2 * (p - r - 1) + (v - 1) * p + 1) / double(v), 1e-9);
    }
  }
  for (const int parts : {1, 2, 4}) {
    EXPECT_DOUBLE_EQ(peaks("seq1f1b", m, parts)[0], (p - 1 + parts) / double(parts));
  }
}

TEST_P(Peaks, OfAV) {
  const int p = GetParam();
  for (const int m : {2 * p, 4 * p}) {
    EXPECT_EQ(most("zb-v", m), p);
    EXPECT_EQ(most("v-half", m), (p + 2) / 2);
    EXPECT_EQ(most("v-min", m), (p + 4) / 3);
    EXPECT_EQ(most("dualpipev", m), (2 * p + 1) / 2.0);
  }
}

TEST_P(Peaks, OfTwoDirections) {
  const int p = GetParam();
  if (p % 2 != 0) return;
  for (const int m : {p, 2 * p}) {
    const std::vector<double> chimera = peaks("chimera", m);
    EXPECT_EQ(chimera.front(), p / 2 + 1);
    EXPECT_EQ(chimera.back(), p / 2 + 1);
    EXPECT_EQ(chimera[p / 2], p);
    EXPECT_EQ(chimera[p / 2 - 1], p);
  }
  EXPECT_EQ(most("dualpipe", 2 * p), p + 1);
  EXPECT_EQ(most("dualpipe", 4 * p), p + 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Peaks, testing::Values(2, 3, 4, 5, 6, 8, 12, 16));

}  // namespace
}  // namespace heteroperf

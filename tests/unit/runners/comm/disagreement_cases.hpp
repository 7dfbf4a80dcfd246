#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Who does something else than the rest.
enum class Part { usual, odd };

/// Rank 1 plays the odd part. Each transport that can must tell every rank, before data move.
struct DisagreementCase {
  const char* name;
  /// `n` elements per rank.
  void (*play)(Communicator& comm, Part part, std::size_t n);
  /// Of the message; "{n}" stands for the number.
  std::vector<std::string> words;
};

namespace detail {

inline std::size_t ranks_of(const Communicator& comm) {
  return static_cast<std::size_t>(comm.size());
}
inline std::size_t own_count(const Communicator& comm, const std::vector<std::size_t>& counts) {
  return counts[comm.rank().index()];
}
/// Of one total, whoever cuts them: the odd rank gives rank 0 what the others give rank 1.
inline std::vector<std::size_t> cut(const Communicator& comm, Part part, std::size_t n) {
  std::vector<std::size_t> counts(ranks_of(comm), n);
  if (part == Part::odd) ++counts[0], --counts[1];
  return counts;
}
inline std::size_t if_usual(Part part, std::size_t n) { return part == Part::usual ? n : 0; }

inline void gather(Communicator& comm, const std::vector<std::size_t>& counts) {
  std::size_t total = 0;
  for (std::size_t count : counts) total += count;
  const std::vector<float> local(own_count(comm, counts));
  std::vector<float> all(total);
  comm.all_gather(std::span<const float>(local), std::span<float>(all), counts);
}
inline void scatter(Communicator& comm, const std::vector<std::size_t>& counts) {
  std::size_t total = 0;
  for (std::size_t count : counts) total += count;
  const std::vector<float> all(total);
  std::vector<float> local(own_count(comm, counts));
  comm.reduce_scatter(std::span<const float>(all), std::span<float>(local), counts, Reduction::sum);
}

}  // namespace detail

inline const std::vector<DisagreementCase>& disagreement_cases() {
  using namespace detail;
  static const std::vector<DisagreementCase> cases = {
      {"count",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<float> values(part == Part::odd ? n + 1 : n);
         comm.all_reduce(std::span<float>(values));
       },
       {"in all_reduce of {n} f32 (sum), rank 1 in all_reduce of "}},
      {"gathered_blocks",
       [](Communicator& comm, Part part, std::size_t n) { gather(comm, cut(comm, part, n)); },
       {"in all_gather of ", "(block sizes #", ", rank 1 in all_gather of "}},
      {"scattered_blocks",
       [](Communicator& comm, Part part, std::size_t n) { scatter(comm, cut(comm, part, n)); },
       {"in reduce_scatter of ", "(sum, block sizes #", ", rank 1 in reduce_scatter of "}},
      {"exchanged_blocks",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<std::size_t> to(ranks_of(comm), n), from(ranks_of(comm), n);
         if (part == Part::odd) ++to[0];
         const std::vector<float> local(ranks_of(comm) * n + (part == Part::odd ? 1 : 0));
         std::vector<float> received(ranks_of(comm) * n);
         comm.all_to_all(std::span<const float>(local), to, std::span<float>(received), from);
       },
       {"all_to_all of f32: rank 1 sends ", " to rank 0, which awaits {n}"}},
      {"nothing_to_all_reduce",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<float> values(if_usual(part, n));
         comm.all_reduce(std::span<float>(values));
       },
       {"in all_reduce of {n} f32 (sum), rank 1 in all_reduce of 0 f32 (sum)"}},
      {"nothing_to_reduce",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<float> values(if_usual(part, n));
         const MutableBuffer all = std::span<float>(values);
         comm.reduce(all, all, RankId(0));
       },
       {"in reduce of {n} f32 (sum, root 0), rank 1 in reduce of 0 f32 (sum, root 0)"}},
      {"nothing_to_broadcast",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<float> values(if_usual(part, n));
         comm.broadcast(std::span<float>(values), RankId(0));
       },
       {"in broadcast of {n} f32 (root 0), rank 1 in broadcast of 0 f32 (root 0)"}},
      {"nothing_to_gather",
       [](Communicator& comm, Part part, std::size_t n) {
         gather(comm, std::vector<std::size_t>(ranks_of(comm), if_usual(part, n)));
       },
       {"in all_gather of ", ", rank 1 in all_gather of 0 f32"}},
      {"nothing_to_scatter",
       [](Communicator& comm, Part part, std::size_t n) {
         scatter(comm, std::vector<std::size_t>(ranks_of(comm), if_usual(part, n)));
       },
       {"in reduce_scatter of ", ", rank 1 in reduce_scatter of 0 f32"}},
      {"root",
       [](Communicator& comm, Part part, std::size_t n) {
         std::vector<float> values(n);
         comm.broadcast(std::span<float>(values), RankId(part == Part::odd ? 1 : 0));
       },
       {"in broadcast of {n} f32 (root 0), rank 1 in broadcast of {n} f32 (root 1)"}},
      {"operation",
       [](Communicator& comm, Part part, std::size_t) {
         if (part == Part::odd) return comm.barrier();
         comm.split(0, 0);
       },
       {"in split, rank 1 in barrier"}},
  };
  return cases;
}

/// On every rank of a group of two or more, which is of no use afterwards.
inline void run_case(const DisagreementCase& one, Communicator& comm, std::size_t n) {
  try {
    one.play(comm, comm.rank() == RankId(1) ? Part::odd : Part::usual, n);
    // A rank that waits for nobody hears of it at the next meeting.
    comm.barrier();
    ADD_FAILURE() << "rank " << comm.rank().value() << " was not told";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::run_failed) << text;
    EXPECT_NE(text.find("Call the same collectives"), std::string::npos) << text;
    for (std::string words : one.words) {
      for (std::size_t at; (at = words.find("{n}")) != std::string::npos;) {
        words.replace(at, 3, std::to_string(n));
      }
      EXPECT_NE(text.find(words), std::string::npos) << text << "\nlacks\n" << words;
    }
  }
}

}  // namespace heteroperf

// The state of a training moves from the ranks of one plan to those of another, without a disk.
//
// Every rank tells all others which boxes of which tensors it holds and which it wants. Each tensor
// is cut into *cells*, at every border of every box, so that a cell is held whole or not at all.
// All cells of one element type, one after another, are the elements of a single dimension, and
// "who holds a cell" and "who wants it" are two layouts of that dimension. So one reshard plan per
// type moves all tensors at once: whoever wants what it holds keeps it, and two ranks exchange one
// message, however many tensors it carries. Every rank makes the same plan from the same lists.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "metrics/base/clock.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/reshard/reshard.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/checkpoint/checkpoint_index.hpp"
#include "runners/engine/checkpoint/held_tensor.hpp"

namespace heteroperf {
namespace {

/// The boxes of a tensor that one rank holds or wants.
struct RankBox {
  RankId rank;
  Box box;
};

/// A tensor as all ranks together describe it.
struct SpreadTensor {
  StoredTensor tensor;
  std::vector<RankBox> held, wanted;
  std::vector<std::vector<std::int64_t>> borders;  ///< by dimension, ascending, each once
  std::size_t first_cell = 0;                      ///< among those of its type
};
using SpreadTensors = std::map<std::string, SpreadTensor>;

DataType element_type(StoredType type) {
  switch (type) {
    case StoredType::f64:
      return DataType::f64;
    case StoredType::bf16:
      return DataType::bf16;
    case StoredType::i64:
      return DataType::i64;
    default:
      return DataType::f32;
  }
}

[[noreturn]] void refuse(const std::string& problem, const std::string& why) {
  throw SystemError(problem, why, "", ErrorKind::internal);
}

std::string list_of(const std::vector<TensorPiece>& pieces) {
  std::vector<IndexedTensor> list;
  for (const TensorPiece& piece : pieces) {
    if (piece.box.count() == 0) continue;
    list.push_back({{piece.tensor, piece.type, piece.shape}, {{0, 0, piece.box, ""}}});
  }
  return pieces_json_text(list);
}

/// Adds what every rank tells to the side `boxes` of its tensors.
void add_lists(const std::vector<std::string>& texts, std::vector<RankBox> SpreadTensor::*boxes,
               SpreadTensors& tensors) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const IndexedTensor& told : pieces_from_json_text(texts[rank])) {
      const auto& [name, type, shape] = told.tensor;
      SpreadTensor& spread =
          tensors.try_emplace(name, SpreadTensor{told.tensor, {}, {}, {}, 0}).first->second;
      if (described(spread.tensor.type, spread.tensor.shape) != described(type, shape)) {
        refuse(fmt::format("rank {} has tensor {} as {}", rank, name, described(type, shape)),
               "others as " + described(spread.tensor.type, spread.tensor.shape));
      }
      for (const StoredPiece& piece : told.pieces) {
        (spread.*boxes).push_back({RankId(rank), piece.box});
      }
    }
  }
}

void find_borders(SpreadTensor& spread) {
  spread.borders.clear();
  for (std::size_t dim = 0; dim < spread.tensor.shape.size(); ++dim) {
    std::set<std::int64_t> borders;
    for (const auto* side : {&spread.held, &spread.wanted}) {
      for (const RankBox& part : *side) borders.insert({part.box.first[dim], part.box.last[dim]});
    }
    spread.borders.emplace_back(borders.begin(), borders.end());
  }
}

std::size_t cell_count(const SpreadTensor& spread) {
  std::size_t count = 1;
  for (const auto& borders : spread.borders) count *= borders.empty() ? 0 : borders.size() - 1;
  return count;
}

/// Calls visit(cell's number, cell's box) for every cell within `box`, in the order of numbers.
template <class Visit>
void for_cells(const SpreadTensor& spread, const Box& box, Visit&& visit) {
  const auto descend = [&](const auto& self, std::size_t dim, std::size_t number,
                           Box cell) -> void {
    if (dim == box.dims) return visit(spread.first_cell + number, cell);
    const std::vector<std::int64_t>& borders = spread.borders[dim];
    std::size_t at = std::ranges::lower_bound(borders, box.first[dim]) - borders.begin();
    for (; borders[at] < box.last[dim]; ++at) {
      cell.first[dim] = borders[at];
      cell.last[dim] = borders[at + 1];
      self(self, dim + 1, number * (borders.size() - 1) + at, cell);
    }
  };
  Box cell;
  cell.dims = box.dims;
  descend(descend, 0, 0, cell);
}

/// All cells of one element type, as elements of one dimension.
struct CellLine {
  std::vector<std::int64_t> borders{0};
  std::vector<std::vector<RankId>> held, wanted;  ///< ranks, by cell
};

void add_rank(std::vector<RankId>& ranks, RankId rank) {
  // A rank may name a box twice: a tied weight of two of its stages.
  if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
}

/// Numbers the cells of a tensor behind those before it, and notes who holds and who wants them.
void add_cells(SpreadTensor& spread, CellLine& line) {
  find_borders(spread);
  const std::size_t cells = cell_count(spread);
  spread.first_cell = line.held.size();
  line.held.resize(spread.first_cell + cells);
  line.wanted.resize(spread.first_cell + cells);
  std::vector<std::int64_t> counts(cells);
  for (const RankBox& part : spread.held) {
    for_cells(spread, part.box, [&](std::size_t cell, const Box& box) {
      add_rank(line.held[cell], part.rank);
      counts[cell - spread.first_cell] = box.count();
    });
  }
  for (const RankBox& part : spread.wanted) {
    for_cells(spread, part.box, [&](std::size_t cell, const Box& box) {
      add_rank(line.wanted[cell], part.rank);
      if (!line.held[cell].empty()) return;
      refuse(
          fmt::format("rank {} wants {} {}", part.rank.value(), spread.tensor.name, to_string(box)),
          "no rank holds it");
    });
  }
  for (std::size_t c = 0; c < cells; ++c) {
    // An element that nobody wants, or a gap between boxes, has no place in the line.
    const bool moves = !line.wanted[spread.first_cell + c].empty();
    if (!moves) line.held[spread.first_cell + c].clear();
    line.borders.push_back(line.borders.back() + (moves ? counts[c] : 0));
  }
}

/// The move of all tensors of one type, on one rank.
class TypeMove {
 public:
  TypeMove(Communicator& world, StoredType type, SpreadTensors& tensors)
      : world_(world), type_(type), tensors_(tensors) {
    for (auto& [name, spread] : tensors) {
      if (spread.tensor.type == type) add_cells(spread, line_);
    }
  }

  /// Returns the bytes that all ranks send.
  std::uint64_t run(const std::vector<TensorPiece>& held, const std::vector<TensorPiece>& wanted) {
    const std::int64_t elements = line_.borders.back();
    if (elements == 0) return 0;
    const Layout from({elements}, {line_.borders}, line_.held);
    const Layout to({elements}, {line_.borders}, line_.wanted);
    const DataType type = element_type(type_);
    auto plan = std::make_shared<const ReshardPlan>(plan_reshard(from, to, {.type = type}));
    const std::size_t bytes = element_bytes(type_);
    const std::size_t source_count = from.count(world_.rank());
    const std::size_t result_count = to.count(world_.rank());
    std::vector<std::byte> source(source_count * bytes), result(result_count * bytes);
    for_parts(held, line_.held, [&](const Box& cell, std::size_t offset, const StridedView& view) {
      copy_box(cell, view, {cell, dense_strides(cell), source.data() + offset}, bytes);
    });
    Resharder(plan, world_.rank())
        .run(world_, {source.data(), source_count, type}, {result.data(), result_count, type});
    for_parts(wanted, line_.wanted,
              [&](const Box& cell, std::size_t offset, const StridedView& view) {
                copy_box(cell, {cell, dense_strides(cell), result.data() + offset}, view, bytes);
              });
    std::uint64_t sent = 0;
    for (const ReshardMessage& message : plan->messages) sent += message.size.value();
    return sent;
  }

 private:
  /// Calls visit(cell, its place in this rank's dense memory in bytes, piece) for every cell of
  /// every piece. The memory has the cells of this rank in their order.
  template <class Visit>
  void for_parts(const std::vector<TensorPiece>& pieces,
                 const std::vector<std::vector<RankId>>& holders, Visit&& visit) const {
    std::vector<std::size_t> offsets(holders.size());
    std::size_t next = 0;
    for (std::size_t cell = 0; cell < holders.size(); ++cell) {
      offsets[cell] = next;
      if (std::ranges::find(holders[cell], world_.rank()) == holders[cell].end()) continue;
      const std::size_t elements = line_.borders[cell + 1] - line_.borders[cell];
      next += elements * element_bytes(type_);
    }
    for (const TensorPiece& piece : pieces) {
      if (piece.type != type_ || piece.box.count() == 0) continue;
      const StridedView view{piece.box, piece.strides, static_cast<std::byte*>(piece.data)};
      for_cells(tensors_.at(piece.tensor), piece.box, [&](std::size_t cell, const Box& box) {
        if (!holders[cell].empty()) visit(box, offsets[cell], view);
      });
    }
  }

  Communicator& world_;
  StoredType type_;
  const SpreadTensors& tensors_;
  CellLine line_;
};

}  // namespace

MoveReport move_pieces(Communicator& world, const std::vector<TensorPiece>& held,
                       const std::vector<TensorPiece>& wanted) {
  const Stopwatch stopwatch;
  SpreadTensors tensors;
  add_lists(gather_texts(world, list_of(held)), &SpreadTensor::held, tensors);
  add_lists(gather_texts(world, list_of(wanted)), &SpreadTensor::wanted, tensors);
  // All plans are made before anything moves, so that a refusal leaves every rank as it was.
  std::vector<TypeMove> moves;
  for (const StoredType type :
       {StoredType::f32, StoredType::f64, StoredType::bf16, StoredType::i64}) {
    moves.emplace_back(world, type, tensors);
  }
  MoveReport report;
  for (TypeMove& move : moves) report.bytes += move.run(held, wanted);
  report.seconds = stopwatch.elapsed_s();
  return report;
}

}  // namespace heteroperf

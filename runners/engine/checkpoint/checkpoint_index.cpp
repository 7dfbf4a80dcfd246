// The index of a checkpoint as a value: how the lists of all ranks become one, and what must hold
// of it. The pieces of a tensor must cover it exactly once.
#include "runners/engine/checkpoint/checkpoint_index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "metrics/base/hash.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/engine/checkpoint/held_tensor.hpp"

namespace heteroperf {
namespace {

/// The box lies within the shape.
bool inside(const Box& box, const std::vector<std::int64_t>& shape) {
  if (box.dims != shape.size()) return false;
  for (std::size_t dim = 0; dim < box.dims; ++dim) {
    const bool fits =
        box.first[dim] >= 0 && box.first[dim] <= box.last[dim] && box.last[dim] <= shape[dim];
    if (!fits) return false;
  }
  return true;
}

/// The dimension along which the pieces begin at most places: where a sweep meets fewest.
std::size_t sweep_dim(const std::vector<StoredPiece>& pieces, std::size_t dims) {
  std::size_t best = 0, most = 0;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::set<std::int64_t> begins;
    for (const StoredPiece& piece : pieces) begins.insert(piece.box.first[dim]);
    if (begins.size() > most) best = dim;
    most = std::max(most, begins.size());
  }
  return best;
}

/// Two pieces that have elements in common, if there are. Pieces stand in the order of their
/// begins; each is compared with those that begin before it ends.
std::optional<std::pair<StoredPiece, StoredPiece>> first_overlap(std::vector<StoredPiece> pieces,
                                                                 std::size_t dims) {
  const std::size_t along = sweep_dim(pieces, dims);
  std::sort(pieces.begin(), pieces.end(), [&](const StoredPiece& a, const StoredPiece& b) {
    return a.box.first[along] < b.box.first[along];
  });
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t j = i + 1; j < pieces.size(); ++j) {
      if (dims > 0 && pieces[j].box.first[along] >= pieces[i].box.last[along]) break;
      if (intersection(pieces[i].box, pieces[j].box).count() == 0) continue;
      return std::pair(pieces[i], pieces[j]);
    }
  }
  return std::nullopt;
}

/// Checks one tensor: pieces inside it, inside their files, without overlaps, and as many elements
/// as the tensor has. Without overlaps the number of elements tells that there is no gap.
void check_tensor(const CheckpointIndex& index, const IndexedTensor& indexed,
                  ProblemList& problems) {
  const auto& [tensor, pieces] = indexed;
  const std::string name = fmt::format("tensor {} [{}]", tensor.name, fmt::join(tensor.shape, "x"));
  const auto elements = stored_count(tensor.shape);
  if (!elements) return problems.add(name + " is none", "its shape is out of range");
  std::uint64_t covered = 0;
  for (const StoredPiece& piece : pieces) {
    if (!inside(piece.box, tensor.shape)) {
      return problems.add(name + " has a piece outside of it", to_string(piece.box));
    }
    const StoredFile& file = index.files[piece.file];
    const auto count = static_cast<std::uint64_t>(piece.box.count());
    const std::uint64_t bytes = count * element_bytes(tensor.type);
    if (piece.offset < file.header_bytes || piece.offset > file.bytes ||
        bytes > file.bytes - piece.offset) {
      problems.add(fmt::format("{} {} lies outside of {}", name, to_string(piece.box), file.name),
                   fmt::format("{} bytes at {} of {}", bytes, piece.offset, file.bytes));
    }
    covered += count;
  }
  if (const auto twice = first_overlap(pieces, tensor.shape.size())) {
    const auto& [a, b] = *twice;
    return problems.add(
        name + " has elements twice",
        fmt::format("{} in {} and {} in {}", to_string(a.box), index.files[a.file].name,
                    to_string(b.box), index.files[b.file].name));
  }
  if (covered == *elements) return;
  problems.add(name + " is not whole", fmt::format("its {} pieces have {} of {} elements",
                                                   pieces.size(), covered, *elements));
}

}  // namespace

std::size_t element_bytes(StoredType type) {
  constexpr std::size_t bytes[] = {4, 8, 2, 8};
  return bytes[static_cast<std::size_t>(type)];
}

std::string described(StoredType type, const std::vector<std::int64_t>& shape) {
  return fmt::format("{} [{}]", to_string(type), fmt::join(shape, "x"));
}

std::string checksum_of(const void* data, std::size_t bytes) {
  return Hash128("checkpoint").update(std::span(static_cast<const std::byte*>(data), bytes)).hex();
}

std::optional<std::uint64_t> stored_count(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t most = std::int64_t{1} << 58;
  if (shape.size() > max_layout_dims) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > most / extent)) return std::nullopt;
    count *= extent;
  }
  return static_cast<std::uint64_t>(count);
}

void check_index(const CheckpointIndex& index, ProblemList& problems) {
  std::set<std::string> names;
  for (const IndexedTensor& indexed : index.tensors) {
    if (!names.insert(indexed.tensor.name).second) {
      problems.add("tensor " + indexed.tensor.name + " is listed twice");
    }
    check_tensor(index, indexed, problems);
  }
}

CheckpointIndex merge(const CheckpointState& state, const std::vector<WrittenFile>& files,
                      ProblemList& problems) {
  CheckpointIndex index{state, {}, {}};
  std::map<std::string, IndexedTensor> tensors;
  for (const WrittenFile& written : files) {
    for (const auto& [tensor, pieces] : written.tensors) {
      IndexedTensor& indexed = tensors.try_emplace(tensor.name).first->second;
      if (indexed.pieces.empty()) indexed.tensor = tensor;
      const std::string before = described(indexed.tensor.type, indexed.tensor.shape);
      const std::string here = described(tensor.type, tensor.shape);
      if (before != here) {
        problems.add(fmt::format("tensor {} is {} on rank {}", tensor.name, here, written.rank),
                     before + " on one before");
        continue;
      }
      indexed.pieces.push_back(pieces.front());
      indexed.pieces.back().file = index.files.size();
    }
    index.files.push_back(written.file);
  }
  for (auto& [name, indexed] : tensors) index.tensors.push_back(std::move(indexed));
  return index;
}

}  // namespace heteroperf

#include "tests/unit/runners/comm/reshard_cases.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace heteroperf {

std::vector<RankId> rank_range(int first, int count) {
  std::vector<RankId> ranks;
  for (int i = 0; i < count; ++i) ranks.emplace_back(first + i);
  return ranks;
}

ReshardConfig fine_config() {
  ReshardConfig config;
  config.smallest_slice = Bytes(4);
  return config;
}

std::vector<std::int64_t> even_boundaries(std::int64_t extent, std::int64_t parts) {
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i <= parts; ++i) at.push_back(extent * i / parts);
  return at;
}

Layout grid_layout(const Layout::Shape& shape, std::vector<std::vector<std::int64_t>> boundaries,
                   int first_rank, int replicas) {
  std::size_t tiles = 1;
  for (const auto& at : boundaries) tiles *= at.size() - 1;
  std::vector<std::vector<RankId>> holders;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    holders.push_back(rank_range(first_rank + static_cast<int>(tile) * replicas, replicas));
  }
  return Layout(shape, std::move(boundaries), std::move(holders));
}

Layout even_cut(Layout::Shape shape, std::size_t dim, int first_rank, int ranks) {
  std::vector<std::vector<std::int64_t>> boundaries;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    boundaries.push_back(even_boundaries(shape[d], d == dim ? ranks : 1));
  }
  return grid_layout(shape, std::move(boundaries), first_rank);
}

Layout replicated(const Layout::Shape& shape, int first_rank, int ranks) {
  std::vector<std::vector<std::int64_t>> boundaries;
  for (const std::int64_t extent : shape) boundaries.push_back({0, extent});
  return grid_layout(shape, std::move(boundaries), first_rank, ranks);
}

std::string text_of(const Layout& layout) {
  std::string text = "cut at";
  for (std::size_t dim = 0; dim < layout.shape().size(); ++dim) {
    for (const std::int64_t at : layout.boundaries(dim)) text += " " + std::to_string(at);
    text += ";";
  }
  for (std::size_t tile = 0; tile < layout.tiles(); ++tile) {
    text += " tile " + std::to_string(tile) + " on";
    for (const RankId rank : layout.holders(tile)) text += " " + std::to_string(rank.value());
  }
  return text;
}

int RandomLayouts::number(int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(engine_);
}

Layout::Shape RandomLayouts::shape() {
  Layout::Shape shape(static_cast<std::size_t>(number(0, 4)));
  for (std::int64_t& extent : shape)
    extent = number(0, 30) == 0 ? 0 : number(1, shape.size() < 3 ? 17 : 5);
  return shape;
}

Layout RandomLayouts::layout(const Layout::Shape& shape, int ranks) {
  std::vector<std::vector<std::int64_t>> boundaries;
  std::size_t tiles = 1;
  for (const std::int64_t extent : shape) {
    std::vector<std::int64_t> at{0, extent};
    const int cuts = tiles < 16 ? number(0, 3) : 0;
    for (int i = 0; i < cuts; ++i) at.push_back(number(0, static_cast<int>(extent)));
    std::sort(at.begin(), at.end());
    tiles *= at.size() - 1;
    boundaries.push_back(std::move(at));
  }
  const int first = number(0, ranks - 1), last = number(first, ranks - 1);
  std::vector<std::vector<RankId>> holders(tiles);
  for (auto& tile : holders) {
    std::vector<RankId> pool = rank_range(first, last - first + 1);
    std::shuffle(pool.begin(), pool.end(), engine_);
    pool.resize(static_cast<std::size_t>(number(1, static_cast<int>(pool.size()))));
    tile = std::move(pool);
  }
  return Layout(shape, std::move(boundaries), std::move(holders));
}

std::vector<std::int64_t> elements_of(const Layout& layout, RankId rank) {
  std::vector<std::int64_t> elements;
  for (const std::size_t tile : layout.tiles_of(rank)) {
    const Box box = layout.box(tile);
    for (std::int64_t i = 0; i < box.count(); ++i) {
      std::int64_t rest = i, element = 0, step = 1;
      for (std::size_t dim = box.dims; dim-- > 0;) {
        element += (box.first[dim] + rest % box.extent(dim)) * step;
        rest /= box.extent(dim);
        step *= layout.shape()[dim];
      }
      elements.push_back(element);
    }
  }
  return elements;
}

RankTensors spread(const std::vector<float>& tensor, const Layout& layout, int ranks) {
  RankTensors tensors(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::int64_t element : elements_of(layout, RankId(rank)))
      tensors[static_cast<std::size_t>(rank)].push_back(tensor[static_cast<std::size_t>(element)]);
  return tensors;
}

std::vector<float> linear_indices(const Layout& layout) {
  std::vector<float> tensor(static_cast<std::size_t>(layout.count()));
  std::iota(tensor.begin(), tensor.end(), 0.0f);
  return tensor;
}

namespace {

using Mail = std::map<std::pair<RankId, RankId>, std::vector<std::byte>>;

void post(const RankProgram::Parcel& send, RankId from, const RankProgram::Memories& memories,
          Mail& mail) {
  std::vector<std::byte>& message = mail[{from, send.peer}];
  message.resize(send.bytes);
  if (send.in_place)
    std::copy_n(RankProgram::outgoing(send, memories), send.bytes, message.data());
  else
    RankProgram::pack(send, memories, message.data());
}

void fetch(const RankProgram::Parcel& receive, RankId to, const RankProgram::Memories& memories,
           Mail& mail) {
  const std::vector<std::byte>& message = mail.at({receive.peer, to});
  if (receive.in_place)
    std::copy_n(message.data(), receive.bytes, RankProgram::incoming(receive, memories));
  else
    RankProgram::unpack(receive, message.data(), memories);
}

}  // namespace

RankTensors play(const ReshardPlan& plan, const RankTensors& sources) {
  std::vector<RankProgram> programs;
  for (std::size_t rank = 0; rank < sources.size(); ++rank)
    programs.emplace_back(plan, RankId(rank));
  RankTensors results(sources.size());
  std::vector<std::vector<std::byte>> arenas(sources.size());
  std::vector<RankProgram::Memories> memories(sources.size());
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    results[rank].assign(programs[rank].result_elements(), -1.0f);
    arenas[rank].resize(programs[rank].arena_bytes());
    memories[rank] = {reinterpret_cast<const std::byte*>(sources[rank].data()),
                      reinterpret_cast<std::byte*>(results[rank].data()), arenas[rank].data()};
    programs[rank].copy_kept(memories[rank]);
  }
  for (std::size_t stage = 0; stage < reshard_stages; ++stage) {
    Mail mail;
    for (std::size_t rank = 0; rank < sources.size(); ++rank)
      for (const auto& send : programs[rank].stage(stage).sends)
        post(send, RankId(rank), memories[rank], mail);
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      for (const auto& receive : programs[rank].stage(stage).receives)
        fetch(receive, RankId(rank), memories[rank], mail);
      if (stage == static_cast<std::size_t>(ReshardStage::sum))
        programs[rank].add_up(memories[rank]);
    }
  }
  return results;
}

}  // namespace heteroperf

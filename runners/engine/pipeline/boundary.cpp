// Tensors between two stages. The two sides may hold a tensor in different parts: replicas have
// different shares of the batch, tensor-parallel ranks different columns. A *reshard plan* knows
// which rank sends which box to which other rank; a *parcel* is one message of it. Each tensor of
// the edge is a *lane* with a plan of its own. A header of 16 bytes goes ahead of every parcel and
// says when it was sent, so that the receiver can tell a sender that was late from a message that
// was slow.
#include "runners/engine/pipeline/boundary.hpp"

#include <ATen/ops/empty.h>
#include <algorithm>
#include <span>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/reshard/reshard_plan.hpp"
#include "runners/comm/wire/wire_codec.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// The tiles that a rank holds: one, or the two chunks of a part of the sequences, which lie one
/// behind the other in the memory of a reshard plan.
struct LocalTiles {
  std::int64_t number = 0;
  std::vector<std::int64_t> shape;  ///< each tile's; {0, …} where it holds none

  LocalTiles(const Layout& layout, RankId rank) : shape(layout.shape()) {
    const std::vector<std::size_t> tiles = layout.tiles_of(rank);
    number = static_cast<std::int64_t>(tiles.size());
    if (tiles.empty()) {
      shape.front() = 0;
      return;
    }
    const Box box = layout.box(tiles.front());
    for (std::size_t d = 0; d < shape.size(); ++d) shape[d] = box.extent(d);
  }

  at::Tensor empty(at::ScalarType type) const {
    std::vector<std::int64_t> all = shape;
    if (number > 1) all.insert(all.begin(), number);
    return at::empty(all, at::TensorOptions().dtype(type));
  }
  /// {batch, rows of all tiles, …} from tiles.
  at::Tensor joined(const at::Tensor& tiles) const {
    return number > 1 ? tiles.transpose(0, 1).flatten(1, 2) : tiles;
  }
  /// The opposite.
  at::Tensor split(const at::Tensor& rows) const {
    return number > 1 ? rows.unflatten(1, {number, -1}).transpose(0, 1) : rows;
  }
};

at::Tensor bytes_tensor(std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
}

}  // namespace

/// One tensor of the edge.
struct BoundaryEnd::LaneEnd {
  LaneEnd(const ReshardPlan& plan, RankId rank, LocalTiles from, LocalTiles to,
          at::ScalarType element, WireFormat asked)
      : program(plan, rank),
        sent(std::move(from)),
        received(std::move(to)),
        type(element),
        wire(element == at::kFloat ? asked : WireFormat::fp32) {
    for (const ReshardStage stage : {ReshardStage::deliver, ReshardStage::forward}) {
      const RankProgram::Stage& messages = program.stage(static_cast<std::size_t>(stage));
      for (const RankProgram::Parcel& parcel : messages.sends) {
        for (const RankProgram::Part& part : parcel.parts) {
          HETEROPERF_EXPECT(part.place == ReshardPlace::source);
        }
        sends.push_back(&parcel);
      }
      for (const RankProgram::Parcel& parcel : messages.receives) receives.push_back(&parcel);
    }
  }

  RankProgram program;
  LocalTiles sent, received;
  at::ScalarType type;
  WireFormat wire;
  std::vector<const RankProgram::Parcel*> sends, receives;
};

/// One message under way, with the memory that it needs until it has gone.
struct BoundaryEnd::Outgoing {
  SendTimes times;
  at::Tensor memory;
  std::unique_ptr<Transfer> header, body;
  bool gone() { return header->test() && body->test(); }
  void wait() { header->wait(), body->wait(); }
};

class BoundaryEnd::Receiving final : public Arrival {
 public:
  /// `own`: tensors that this rank has on the other side of the border; null: none. `times` are
  /// theirs.
  Receiving(BoundaryEnd& end, const Tensors* own, const SendTimes& times)
      : end_(end), lanes_(end.lanes_), latest_(times) {
    for (const std::unique_ptr<const LaneEnd>& lane : *lanes_) {
      results_.push_back(lane->received.empty(lane->type));
      if (own != nullptr) {
        const at::Tensor& tensor = (*own)[results_.size() - 1];
        const at::Tensor source = on_host(lane->sent.split(tensor).contiguous());
        lane->program.copy_kept({static_cast<const std::byte*>(source.const_data_ptr()),
                                 static_cast<std::byte*>(results_.back().mutable_data_ptr()),
                                 nullptr});
      }
      for (const RankProgram::Parcel* parcel : lane->receives) start(*lane, *parcel);
    }
  }

  std::pair<Tensors, SendTimes> wait() override {
    SendTimes last = latest_;
    for (Part& part : parts_) {
      part.header->wait();
      part.body->wait();
      finish(part);
      last.sent_ns = std::max(last.sent_ns, part.times.sent_ns);
      last.modelled_s = std::max(last.modelled_s, part.times.modelled_s);
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
      results_[i] = (*lanes_)[i]->received.joined(results_[i]).to(end_.device_);
    }
    return {std::move(results_), last};
  }

 private:
  struct Part {
    const RankProgram::Parcel* parcel = nullptr;
    WireFormat wire = WireFormat::fp32;
    RankProgram::Memories memories;
    at::Tensor staging;
    SendTimes times;
    std::unique_ptr<Transfer> header, body;
  };

  /// Posts the receives of a parcel: straight into the result where its part is contiguous there,
  /// else into memory of its own.
  void start(const LaneEnd& lane, const RankProgram::Parcel& parcel) {
    Part& part = parts_.emplace_back();
    part.parcel = &parcel;
    part.wire = lane.wire;
    part.memories = {nullptr, static_cast<std::byte*>(results_.back().mutable_data_ptr()), nullptr};
    part.header = end_.world_.start_receive({&part.times, sizeof(SendTimes), DataType::u8},
                                            parcel.peer, end_.tag_ + 1);
    std::byte* target = parcel.in_place ? RankProgram::incoming(parcel, part.memories) : nullptr;
    std::size_t bytes = parcel.bytes;
    if (part.wire != WireFormat::fp32) bytes = wire_bytes(part.wire, parcel.bytes / 4);
    if (target == nullptr || part.wire != WireFormat::fp32) {
      part.staging = bytes_tensor(bytes);
      target = static_cast<std::byte*>(part.staging.mutable_data_ptr());
    }
    part.body = end_.world_.start_receive({target, bytes, DataType::u8}, parcel.peer, end_.tag_);
  }

  /// Decompresses and unpacks a parcel that has arrived.
  void finish(Part& part) {
    if (!part.staging.defined()) return;
    at::Tensor message = std::move(part.staging);
    if (part.wire != WireFormat::fp32) {
      const at::Tensor plain = bytes_tensor(part.parcel->bytes);
      decode(part.wire, static_cast<const std::byte*>(message.const_data_ptr()),
             std::span(static_cast<float*>(plain.mutable_data_ptr()), part.parcel->bytes / 4));
      message = plain;
    }
    RankProgram::unpack(*part.parcel, static_cast<const std::byte*>(message.const_data_ptr()),
                        part.memories);
  }

  BoundaryEnd& end_;
  std::shared_ptr<const Lanes> lanes_;
  SendTimes latest_;
  Tensors results_;
  std::deque<Part> parts_;  // transfers point into them
};

BoundaryEnd::BoundaryEnd(Communicator& world, const std::vector<EdgeTensor>& tensors,
                         at::ScalarType type, WireFormat wire, int tag, at::Device device)
    : world_(world),
      type_(type),
      wire_(wire),
      tag_(tag),
      device_(device),
      sent_bytes_(tensors.size()) {
  lay_out(tensors);
}

void BoundaryEnd::lay_out(const std::vector<EdgeTensor>& tensors) {
  HETEROPERF_EXPECT(tensors.size() == sent_bytes_.size());
  auto lanes = std::make_shared<Lanes>();
  for (const EdgeTensor& tensor : tensors) {
    // Boxes stay whole: the runner's receives have no moment to pass slices on.
    const ReshardPlan plan = plan_reshard(tensor.from, tensor.to, whole_boxes(data_type(type_)));
    lanes->push_back(std::make_unique<LaneEnd>(plan, world_.rank(),
                                               LocalTiles(tensor.from, world_.rank()),
                                               LocalTiles(tensor.to, world_.rank()), type_, wire_));
  }
  lanes_ = std::move(lanes);
}

BoundaryEnd::~BoundaryEnd() = default;

// Parcels that are contiguous in the tensor are sent from there, others are packed first. Either
// memory stays until the message has gone.
void BoundaryEnd::send(const Tensors& tensors, const SendTimes& times) {
  const Lanes& lanes = *lanes_;
  HETEROPERF_EXPECT(tensors.size() == lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const at::Tensor source = on_host(lanes[i]->sent.split(tensors[i]).contiguous());
    const RankProgram::Memories memories{static_cast<const std::byte*>(source.const_data_ptr()),
                                         nullptr, nullptr};
    for (const RankProgram::Parcel* parcel : lanes[i]->sends) {
      auto out = std::make_unique<Outgoing>();
      out->times = times;
      out->memory = source;
      const std::byte* data = nullptr;
      std::size_t bytes = parcel->bytes;
      if (parcel->in_place) {
        data = RankProgram::outgoing(*parcel, memories);
      } else {
        out->memory = bytes_tensor(bytes);
        RankProgram::pack(*parcel, memories,
                          static_cast<std::byte*>(out->memory.mutable_data_ptr()));
        data = static_cast<const std::byte*>(out->memory.const_data_ptr());
      }
      const WireFormat wire = lanes[i]->wire;
      if (wire != WireFormat::fp32) {
        const at::Tensor packed = bytes_tensor(wire_bytes(wire, bytes / 4));
        encode(wire, std::span(reinterpret_cast<const float*>(data), bytes / 4),
               static_cast<std::byte*>(packed.mutable_data_ptr()));
        out->memory = packed;
        data = static_cast<const std::byte*>(packed.const_data_ptr());
        bytes = packed.numel();
      }
      out->header =
          world_.start_send({&out->times, sizeof(SendTimes), DataType::u8}, parcel->peer, tag_ + 1);
      out->body = world_.start_send({data, bytes, DataType::u8}, parcel->peer, tag_);
      outgoing_.push_back(std::move(out));
      sent_bytes_[i] += bytes;
    }
  }
}

std::unique_ptr<BoundaryEnd::Arrival> BoundaryEnd::receive() {
  return std::make_unique<Receiving>(*this, nullptr, SendTimes());
}

std::unique_ptr<BoundaryEnd::Arrival> BoundaryEnd::pass(const Tensors& tensors,
                                                        const SendTimes& times) {
  send(tensors, times);
  return std::make_unique<Receiving>(*this, &tensors, times);
}

void BoundaryEnd::retire() {
  while (!outgoing_.empty() && outgoing_.front()->gone()) outgoing_.pop_front();
}

void BoundaryEnd::drain() {
  for (const std::unique_ptr<Outgoing>& out : outgoing_) out->wait();
  outgoing_.clear();
}

std::uint64_t BoundaryEnd::sent_bytes(std::size_t tensor) const { return sent_bytes_[tensor]; }

}  // namespace heteroperf

// Carrying out a plan: the copies, messages and sums of one rank, stage by stage.
//
// In each round of a stage a rank has at most one send and one receive. Staging memory has a slot
// for each of them per round under way, unless a message lies in one piece in the tensor itself.
#include "runners/comm/reshard/reshard.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// The number of rounds under way at once.
constexpr std::size_t rounds_under_way = 4;

/// The send and the receive of one round.
struct Round {
  std::unique_ptr<Transfer> send, receive;
  const RankProgram::Parcel* received = nullptr;
};

/// Slots begin on cache lines.
std::size_t slot_bytes(const RankProgram& program) {
  return (program.largest_message_bytes() + 63) / 64 * 64;
}

std::unique_ptr<std::byte[]> uninitialised(std::size_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

}  // namespace

Resharder::Resharder(std::shared_ptr<const ReshardPlan> plan, RankId rank)
    : plan_(std::move(plan)),
      rank_(rank),
      program_(*plan_, rank),
      staging_(uninitialised(2 * rounds_under_way * slot_bytes(program_))),
      arena_(uninitialised(program_.arena_bytes())) {
  for (const Layout* layout : {&plan_->from, &plan_->to})
    for (const RankId used : layout->ranks()) highest_rank_ = std::max(highest_rank_, used);
}

void Resharder::run(Communicator& group, ConstBuffer source, MutableBuffer result, int tag) {
  HETEROPERF_EXPECT(group.rank() == rank_ && highest_rank_.value() < group.size());
  HETEROPERF_EXPECT(source.count == program_.source_elements() &&
                    result.count == program_.result_elements());
  HETEROPERF_EXPECT(source.type == plan_->config.type && result.type == plan_->config.type);
  const RankProgram::Memories memories{static_cast<const std::byte*>(source.data),
                                       static_cast<std::byte*>(result.data), arena_.get()};
  program_.copy_kept(memories);
  for (std::size_t stage = 0; stage < reshard_stages; ++stage) {
    run_stage(group, program_.stage(stage), memories, tag);
    if (stage == static_cast<std::size_t>(ReshardStage::sum)) program_.add_up(memories);
  }
}

/// Rounds start in order, and a few of them are under way at once. Since every rank finishes them
/// in order, the earliest unfinished round of all can always end.
void Resharder::run_stage(Communicator& group, const RankProgram::Stage& stage,
                          const RankProgram::Memories& memories, int tag) {
  const DataType type = plan_->config.type;
  std::array<Round, rounds_under_way> rounds;
  const auto slot_of = [&](const Round& round, std::size_t side) {
    const auto slot = static_cast<std::size_t>(&round - rounds.data());
    return staging_.get() + (2 * slot + side) * slot_bytes(program_);
  };
  const auto start_send = [&](Round& round, const RankProgram::Parcel& parcel) {
    const std::byte* message = slot_of(round, 0);
    if (parcel.in_place)
      message = RankProgram::outgoing(parcel, memories);
    else
      RankProgram::pack(parcel, memories, slot_of(round, 0));
    round.send = group.start_send({message, parcel.bytes / size_of(type), type}, parcel.peer, tag);
  };
  const auto start_receive = [&](Round& round, const RankProgram::Parcel& parcel) {
    std::byte* const message =
        parcel.in_place ? RankProgram::incoming(parcel, memories) : slot_of(round, 1);
    round.receive =
        group.start_receive({message, parcel.bytes / size_of(type), type}, parcel.peer, tag);
    round.received = &parcel;
  };
  const auto finish = [&](Round& round) {
    if (round.receive) {
      round.receive->wait();
      if (!round.received->in_place)
        RankProgram::unpack(*round.received, slot_of(round, 1), memories);
    }
    if (round.send) round.send->wait();
    round = {};
  };
  std::size_t next = 0;
  auto receive = stage.receives.begin();
  auto send = stage.sends.begin();
  while (receive != stage.receives.end() || send != stage.sends.end()) {
    std::int32_t number = receive != stage.receives.end() ? receive->round : send->round;
    if (send != stage.sends.end()) number = std::min(number, send->round);
    Round& round = rounds[next++ % rounds_under_way];
    finish(round);
    if (receive != stage.receives.end() && receive->round == number)
      start_receive(round, *receive++);
    if (send != stage.sends.end() && send->round == number) start_send(round, *send++);
  }
  for (std::size_t i = 0; i < rounds_under_way; ++i) finish(rounds[next++ % rounds_under_way]);
}

ReshardCache::ReshardCache(RankId rank, std::size_t capacity)
    : rank_(rank), capacity_(std::max<std::size_t>(capacity, 1)) {}

std::shared_ptr<Resharder> ReshardCache::find(const Layout& from, const Layout& to,
                                              const ReshardConfig& config, GradientKind sources) {
  const auto wanted = [&](const std::shared_ptr<Resharder>& known) {
    const ReshardPlan& plan = known->plan();
    return plan.sources == sources && plan.from == from && plan.to == to && plan.config == config;
  };
  const auto place = std::find_if(recent_.begin(), recent_.end(), wanted);
  if (place != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, place);
    return recent_.front();
  }
  auto plan = std::make_shared<const ReshardPlan>(sources == GradientKind::partial
                                                      ? plan_sum(from, to, config)
                                                      : plan_reshard(from, to, config));
  recent_.push_front(std::make_shared<Resharder>(std::move(plan), rank_));
  ++planned_;
  if (recent_.size() > capacity_) recent_.pop_back();
  return recent_.front();
}

}  // namespace heteroperf

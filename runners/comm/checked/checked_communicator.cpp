#include "runners/comm/checked/checked_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/collective_terms.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/slice.hpp"

// A communicator that does everything with the one it wraps, and checks around it:
//
//   1. *agreement*: before a collective all ranks gather their claims (which collective each is in)
//      and throw alike when they differ;
//   2. the collective itself;
//   3. *payload*: the ranks gather checksums and compare. A result that all ranks have is compared
//      between them; blocks that travel unchanged are compared with their sender's checksum; a
//      result that one rank alone has is made twice and compared with itself;
//   4. all gather their findings, so that every rank throws the same error.
//
// A checked message is two messages of the group below, with the same tag: a label of fixed size,
// then the payload. The receiver knows from the label whether count and type fit before it trusts
// the payload, and whether the payload came undamaged. The label has a seal of its own, so that a
// damaged label is not taken for a wrong call.

namespace heteroperf {
namespace {

/// Four independent chains hide the latency of the multiplication.
constexpr std::size_t checksum_lanes = 4;
constexpr std::uint64_t odd_factor = 0x9e3779b97f4a7c15ULL;  // 2⁶⁴ / golden ratio

/// Bijective in `word` for a given state, and in the state for a given word, so that no single
/// changed word goes unseen.
std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * odd_factor, 29);
}

/// The announcement of a rank before a collective. It always has the same size, so that ranks in
/// different collectives can still hear each other.
struct Claim {
  CollectiveTerms terms;
  std::uint64_t seal = 0;  ///< checksum of the terms
};

/// The error that a rank found in a collective. It has a fixed size for the same reason.
struct Finding {
  enum class Kind : std::int64_t { none, changed, not_repeatable, counts_differ };
  Kind kind = Kind::none;
  std::int64_t sender = 0;
  std::uint64_t bytes = 0;  ///< size of the damaged message
  std::uint64_t sent_count = 0, awaited_count = 0;
};

template <class T>
ConstBuffer bytes_of(const T& value) {
  return {&value, sizeof value, DataType::u8};
}
template <class T>
MutableBuffer bytes_of(std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T), DataType::u8};
}

[[noreturn]] void fail(std::vector<Problem> problems) {
  throw Error(ErrorKind::run_failed, std::move(problems));
}

/// A small message that travels before every payload, with the same tag, and describes it.
struct MessageLabel {
  std::uint64_t count = 0;
  std::int64_t type = 0;
  std::uint64_t payload = 0;  ///< checksum; 0 when payloads are not checked
  std::uint64_t seal = 0;     ///< checksum of the fields above

  MessageLabel() = default;
  MessageLabel(ConstBuffer values, Checks checks)
      : count(values.count),
        type(static_cast<std::int64_t>(values.type)),
        payload(checks == Checks::payload ? checksum(values) : 0),
        seal(checksum(this, offsetof(MessageLabel, seal))) {}
  /// False when the label itself was damaged.
  bool sealed() const { return seal == checksum(this, offsetof(MessageLabel, seal)); }
};

class CheckedSend final : public Transfer {
 public:
  CheckedSend(Communicator& group, const Outgoing& out, Checks checks)
      : label_(out.values, checks),
        label_sent_(group.start_send(bytes_of(label_), out.to, out.tag)),
        payload_sent_(group.start_send(out.values, out.to, out.tag)) {}

  bool test() override { return label_sent_->test() && payload_sent_->test(); }
  void wait() override {
    label_sent_->wait();
    payload_sent_->wait();
  }

 private:
  MessageLabel label_;
  std::unique_ptr<Transfer> label_sent_, payload_sent_;
};

/// Both parts of the message are received from the start, so that no progress depends on a wait.
class CheckedReceive final : public Transfer {
 public:
  CheckedReceive(Communicator& group, const Incoming& in, Checks checks)
      : incoming_(in),
        self_(group.rank()),
        checks_payload_(checks == Checks::payload),
        label_came_(group.start_receive({&label_, sizeof label_, DataType::u8}, in.from, in.tag)),
        payload_came_(group.start_receive(in.values, in.from, in.tag)) {}

  bool test() override {
    if (checked_) return true;
    if (!label_came_->test()) return false;
    check_label();
    if (!payload_came_->test()) return false;
    check_payload();
    return true;
  }
  void wait() override {
    if (checked_) return;
    label_came_->wait();
    check_label();
    payload_came_->wait();
    check_payload();
  }

 private:
  void check_label() const {
    if (!label_.sealed()) {
      fail(awaited() +
               fmt::format(", and the {} bytes that announce it came damaged", sizeof label_),
           "their checksum does not fit");
    }
    const auto type = static_cast<DataType>(label_.type);
    if (label_.count == incoming_.values.count && type == incoming_.values.type) return;
    fail(fmt::format("{}, which sent {} {}", awaited(), label_.count, to_string(type)),
         "both sides need the same count and type", remedy_of_misfit);
  }
  void check_payload() {
    checked_ = !checks_payload_ || checksum(incoming_.values) == label_.payload;
    if (checked_) return;
    fail(fmt::format("a message changed on its way: send/receive of {} {} ({} bytes) with tag {}, "
                     "from rank {} to rank {}",
                     incoming_.values.count, to_string(incoming_.values.type),
                     ConstBuffer(incoming_.values).bytes(), incoming_.tag, incoming_.from.value(),
                     self_.value()),
         "its checksum does not fit");
  }
  [[noreturn]] void fail(const std::string& problem, const char* why,
                         const char* suggestion = "") const {
    throw Error(ErrorKind::run_failed, {{problem, why, suggestion}});
  }
  std::string awaited() const {
    return fmt::format("rank {} awaits {} {} with tag {} from rank {}", self_.value(),
                       incoming_.values.count, to_string(incoming_.values.type), incoming_.tag,
                       incoming_.from.value());
  }

  Incoming incoming_;
  RankId self_;
  bool checks_payload_;
  bool checked_ = false;
  MessageLabel label_;
  std::unique_ptr<Transfer> label_came_, payload_came_;
};

class CheckedCommunicator final : public Communicator {
 public:
  CheckedCommunicator(std::unique_ptr<Communicator> group, Checks checks)
      : group_(std::move(group)),
        checks_(checks),
        members_(group_->size()),
        claims_(members_),
        terms_(members_),
        checksums_(members_),
        findings_(members_) {}

  RankId rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string transport() const override { return group_->transport(); }
  std::string path() const override { return group_->path(); }
  std::string one_thread_reason() const override { return group_->one_thread_reason(); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    const CollectiveTerms terms = all_reduce_terms(input, reduction);
    agree(terms);
    group_->all_reduce(input, result, reduction);
    if (!checks_payload()) return;
    gather_checksums(result);
    // The ranks are compared with rank 0; nobody can tell which of two camps is right.
    std::vector<int> same, different;
    for (std::size_t r = 0; r < members_; ++r) {
      (checksums_[r] == checksums_[0] ? same : different).push_back(static_cast<int>(r));
    }
    if (different.empty()) return;
    fail({{fmt::format("data changed on their way: {} ({} bytes), {} and {} hold different results",
                       describe(terms), input.bytes(), name_ranks(same), name_ranks(different)),
           "the checksums of the results differ", ""}});
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    make_result(reduce_terms(input, root, reduction), input, result, rank() == root,
                [&](MutableBuffer into) { group_->reduce(input, into, root, reduction); });
  }
  void broadcast(MutableBuffer values, RankId root) override {
    const CollectiveTerms terms = broadcast_terms(values, root);
    agree(terms);
    group_->broadcast(values, root);
    if (!checks_payload()) return;
    gather_checksums(values);
    const bool changed = checksums_[rank().index()] != checksums_[root.index()];
    share(terms, {changed ? Finding::Kind::changed : Finding::Kind::none, root.value(),
                  ConstBuffer(values).bytes()});
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    const CollectiveTerms terms = all_gather_terms(all, counts);
    agree(terms);
    if (checks_payload()) gather_checksums(input);
    group_->all_gather(input, all, counts);
    if (checks_payload()) share(terms, check_blocks(all, counts));
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    make_result(reduce_scatter_terms(all, counts, reduction), result, result, true,
                [&](MutableBuffer into) { group_->reduce_scatter(all, into, counts, reduction); });
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    HETEROPERF_EXPECT(to_each.size() == members_ && from_each.size() == members_);
    const CollectiveTerms terms = all_to_all_terms(input);
    agree(terms);
    share(terms, check_counts(to_each, from_each));
    if (checks_payload()) {
      std::vector<std::int64_t> sums(members_);
      for_each_block(to_each, [&](std::size_t r, Slice block) {
        sums[r] = static_cast<std::int64_t>(checksum(part_of(input, block)));
      });
      const auto announced = swap_numbers(sums);
      checksums_.assign(announced.begin(), announced.end());
    }
    group_->all_to_all(input, to_each, result, from_each);
    if (checks_payload()) share(terms, check_blocks(result, from_each));
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return std::make_unique<CheckedSend>(*group_, Outgoing{values, to, tag}, checks_);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return std::make_unique<CheckedReceive>(*group_, Incoming{values, from, tag}, checks_);
  }
  void barrier() override {
    agree(bare_terms(CollectiveKind::barrier));
    group_->barrier();
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    agree(bare_terms(CollectiveKind::split));
    return std::make_unique<CheckedCommunicator>(group_->split(colour, key), checks_);
  }

 private:
  bool checks_payload() const { return checks_ == Checks::payload; }
  /// Throws the same error on every rank when they disagree. Collective.
  void agree(const CollectiveTerms& terms) {
    const Claim announced{terms, checksum(&terms, sizeof terms)};
    group_->all_gather(bytes_of(announced), bytes_of(claims_));
    for (std::size_t r = 0; r < members_; ++r) {
      const Claim& claim = claims_[r];
      terms_[r] = claim.terms;
      if (claim.seal == checksum(&claim.terms, sizeof claim.terms)) continue;
      fail({{fmt::format("a message changed on its way: rank {}'s announcement of a collective ({} "
                         "bytes) came damaged to rank {}, which is in {}",
                         r, sizeof claim, rank().index(), describe(terms)),
             "its checksum does not fit", ""}});
    }
    const auto differ = std::ranges::adjacent_find(terms_, std::ranges::not_equal_to());
    if (differ != terms_.end()) fail({disagreement(terms_)});
  }
  /// Makes a result that only this rank has, where it is `here`. To be checked it is made twice,
  /// first in other memory, because `result` may be the input.
  template <class Make>
  void make_result(const CollectiveTerms& terms, ConstBuffer like, MutableBuffer result, bool here,
                   Make make) {
    agree(terms);
    if (!checks_payload()) return make(result);
    const MutableBuffer first = here ? scratch(like) : MutableBuffer();
    make(first);
    make(result);
    const bool differs = here && checksum(first) != checksum(result);
    share(terms, {differs ? Finding::Kind::not_repeatable : Finding::Kind::none, 0, like.bytes()});
  }
  /// Gathers the checksums of all ranks' values. Collective.
  void gather_checksums(ConstBuffer values) {
    const std::uint64_t sum = checksum(values);
    group_->all_gather(bytes_of(sum), bytes_of(checksums_));
  }
  /// Swaps one number with every rank. Collective.
  std::vector<std::int64_t> swap_numbers(const std::vector<std::int64_t>& to_each) {
    std::vector<std::int64_t> from_each(members_);
    const std::vector<std::size_t> counts(members_, 1);
    group_->all_to_all(std::span(to_each), counts, std::span(from_each), counts);
    return from_each;
  }
  /// Throws the same error on every rank when any of them found something. Collective.
  void share(const CollectiveTerms& terms, const Finding& finding) {
    group_->all_gather(bytes_of(finding), bytes_of(findings_));
    std::vector<Problem> problems;
    for (std::size_t r = 0; r < members_; ++r) {
      if (findings_[r].kind == Finding::Kind::none) continue;
      problems.push_back(explain(terms, findings_[r], RankId(r)));
    }
    if (!problems.empty()) fail(std::move(problems));
  }
  Problem explain(const CollectiveTerms& terms, const Finding& finding, RankId finder) const {
    switch (finding.kind) {
      case Finding::Kind::counts_differ:
        return counts_disagreement(terms.type, RankId(finding.sender), finding.sent_count, finder,
                                   finding.awaited_count);
      case Finding::Kind::not_repeatable:
        return {fmt::format("data changed on their way: {}, the {} bytes of rank {}'s result",
                            describe(terms), finding.bytes, finder.value()),
                "repeating it gave other bits", ""};
      default:
        return {fmt::format("a message changed on its way: {}, {} bytes from rank {} to rank {}",
                            describe(terms), finding.bytes, finding.sender, finder.value()),
                "its checksum does not fit", ""};
    }
  }
  /// Finds the first block that does not have the checksum its sender says.
  Finding check_blocks(ConstBuffer blocks, Counts counts) const {
    Finding first;
    for_each_block(counts, [&](std::size_t r, Slice slice) {
      if (first.kind != Finding::Kind::none) return;
      const ConstBuffer block = part_of(blocks, slice);
      if (checksum(block) == checksums_[r]) return;
      first = {Finding::Kind::changed, static_cast<std::int64_t>(r), block.bytes(), 0, 0};
    });
    return first;
  }
  Finding check_counts(Counts to_each, Counts from_each) {
    const auto announced = swap_numbers({to_each.begin(), to_each.end()});
    for (std::size_t r = 0; r < members_; ++r) {
      const auto count = static_cast<std::uint64_t>(announced[r]);
      if (count == from_each[r]) continue;
      return {Finding::Kind::counts_differ, static_cast<std::int64_t>(r), 0, count, from_each[r]};
    }
    return {};
  }
  MutableBuffer scratch(ConstBuffer like) {
    scratch_.resize(std::max(scratch_.size(), like.bytes()));
    return {scratch_.data(), like.count, like.type};
  }

  std::unique_ptr<Communicator> group_;
  Checks checks_;
  std::size_t members_;
  std::vector<Claim> claims_;
  std::vector<CollectiveTerms> terms_;
  std::vector<std::uint64_t> checksums_;
  std::vector<Finding> findings_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t state[checksum_lanes] = {1, 2, 3, 4}, block[checksum_lanes];
  std::size_t left = bytes;
  for (; left >= sizeof block; left -= sizeof block, at += sizeof block) {
    std::memcpy(block, at, sizeof block);
    for (std::size_t i = 0; i < checksum_lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  if (left > 0) {
    std::memset(block, 0, sizeof block);
    std::memcpy(block, at, left);
    for (std::size_t i = 0; i < checksum_lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  std::uint64_t hash = bytes;
  for (std::uint64_t lane : state) hash = mix64(hash ^ lane);
  return hash;
}

std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> group,
                                                        Checks checks) {
  if (!group->memory().on_host()) {
    throw UserError(fmt::format("checks over transport {}", group->transport()),
                    "its buffers are not in host memory, where checksums are made",
                    "Leave the checks off, or put them around the host transport");
  }
  return std::make_unique<CheckedCommunicator>(std::move(group), checks);
}

}  // namespace heteroperf

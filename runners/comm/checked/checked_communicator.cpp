#include "runners/comm/checked/checked_communicator.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
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

namespace heteroperf {
namespace {

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

class CheckedCommunicator final : public Communicator {
 public:
  CheckedCommunicator(std::unique_ptr<Communicator> group, const CheckConfig& config)
      : group_(std::move(group)),
        config_(config),
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
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override {
    const CollectiveTerms terms = all_reduce_terms(mine, reduction);
    agree(terms);
    group_->all_reduce(mine, result, reduction);
    if (!config_.payload) return;
    gather_checksums(result);
    // The ranks are compared with rank 0; nobody can tell which of two camps is right.
    std::vector<int> same, different;
    for (std::size_t r = 0; r < members_; ++r) {
      (checksums_[r] == checksums_[0] ? same : different).push_back(static_cast<int>(r));
    }
    if (different.empty()) return;
    fail({{fmt::format("data changed on their way: {} ({} bytes), {} and {} hold different results",
                       describe(terms), mine.bytes(), name_ranks(same), name_ranks(different)),
           "the checksums of the results differ", ""}});
  }
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) override {
    const CollectiveTerms terms = reduce_terms(mine, root, reduction);
    agree(terms);
    const bool here = rank() == root;
    // The first result goes to other memory, because `result` may be `mine`.
    const MutableBuffer first = config_.payload && here ? scratch(mine) : MutableBuffer();
    if (config_.payload) group_->reduce(mine, first, root, reduction);
    group_->reduce(mine, result, root, reduction);
    if (!config_.payload) return;
    const bool differs = here && checksum(first) != checksum(result);
    share(terms, {differs ? Finding::Kind::not_repeatable : Finding::Kind::none, 0, mine.bytes()});
  }
  void broadcast(MutableBuffer values, RankId root) override {
    const CollectiveTerms terms = broadcast_terms(values, root);
    agree(terms);
    group_->broadcast(values, root);
    if (!config_.payload) return;
    gather_checksums(values);
    const bool changed = checksums_[rank().index()] != checksums_[root.index()];
    share(terms, {changed ? Finding::Kind::changed : Finding::Kind::none, root.value(),
                  ConstBuffer(values).bytes()});
  }
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override {
    const CollectiveTerms terms = all_gather_terms(all, counts);
    agree(terms);
    if (config_.payload) gather_checksums(mine);
    group_->all_gather(mine, all, counts);
    if (config_.payload) share(terms, check_blocks(all, counts));
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override {
    const CollectiveTerms terms = reduce_scatter_terms(all, counts, reduction);
    agree(terms);
    const MutableBuffer first = config_.payload ? scratch(mine) : MutableBuffer();
    if (config_.payload) group_->reduce_scatter(all, first, counts, reduction);
    group_->reduce_scatter(all, mine, counts, reduction);
    if (!config_.payload) return;
    const bool differs = checksum(first) != checksum(mine);
    share(terms, {differs ? Finding::Kind::not_repeatable : Finding::Kind::none, 0,
                  ConstBuffer(mine).bytes()});
  }
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override {
    HETEROPERF_EXPECT(to_each.size() == members_ && from_each.size() == members_);
    const CollectiveTerms terms = all_to_all_terms(mine);
    agree(terms);
    if (config_.agreement) share(terms, check_counts(to_each, from_each));
    if (config_.payload) {
      std::vector<std::int64_t> sums(members_);
      for_each_block(to_each, [&](std::size_t r, Slice block) {
        sums[r] = static_cast<std::int64_t>(checksum(part_of(mine, block)));
      });
      const auto announced = swap_numbers(sums);
      checksums_.assign(announced.begin(), announced.end());
    }
    group_->all_to_all(mine, to_each, theirs, from_each);
    if (config_.payload) share(terms, check_blocks(theirs, from_each));
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return start_checked_send(*group_, {values, to, tag}, config_);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return start_checked_receive(*group_, {values, from, tag}, config_);
  }
  void barrier() override {
    agree(bare_terms(CollectiveKind::barrier));
    group_->barrier();
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    agree(bare_terms(CollectiveKind::split));
    return std::make_unique<CheckedCommunicator>(group_->split(colour, key), config_);
  }

 private:
  /// Throws the same error on every rank when they disagree. Collective.
  void agree(const CollectiveTerms& terms) {
    if (!config_.agreement) return;
    const Claim mine{terms, checksum(&terms, sizeof terms)};
    group_->all_gather(bytes_of(mine), bytes_of(claims_));
    for (std::size_t r = 0; r < members_; ++r) {
      const Claim& claim = claims_[r];
      terms_[r] = claim.terms;
      if (claim.seal == checksum(&claim.terms, sizeof claim.terms)) continue;
      fail({{fmt::format("a message changed on its way: rank {}'s announcement of a collective ({} "
                         "bytes) came damaged to rank {}, which is in {}",
                         r, sizeof claim, rank().index(), describe(terms)),
             "its checksum does not fit", ""}});
    }
    if (!describe_disagreement(terms_).empty()) fail({disagreement(terms_)});
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
  CheckConfig config_;
  std::size_t members_;
  std::vector<Claim> claims_;
  std::vector<CollectiveTerms> terms_;
  std::vector<std::uint64_t> checksums_;
  std::vector<Finding> findings_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> group,
                                                        const CheckConfig& config) {
  if (!group->memory().on_host()) {
    throw UserError(fmt::format("checks over transport {}", group->transport()),
                    "its buffers are not in host memory, where checksums are made",
                    "Leave the checks off, or put them around the host transport");
  }
  return std::make_unique<CheckedCommunicator>(std::move(group), config);
}

}  // namespace heteroperf

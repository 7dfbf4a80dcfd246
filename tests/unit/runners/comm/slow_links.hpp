#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "runners/comm/communicator.hpp"

namespace heteroperf::test {

/// Bytes per second between two ranks; 0 where nothing is to be slower than it is.
using LinkRate = std::function<double(int from, int to)>;

/// Sends sleep as long as their link is slow; everything else is the inner communicator's own.
class SlowLinks final : public Communicator {
 public:
  SlowLinks(Communicator& inner, LinkRate rate) : inner_(inner), rate_(std::move(rate)) {}

  RankId rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string transport() const override { return inner_.transport(); }
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    inner_.all_reduce(input, result, reduction);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    inner_.reduce(input, result, root, reduction);
  }
  void broadcast(MutableBuffer values, RankId root) override { inner_.broadcast(values, root); }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    inner_.all_gather(input, all, counts);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    inner_.reduce_scatter(all, result, counts, reduction);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    inner_.all_to_all(input, to_each, result, from_each);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    const double rate = rate_(rank().value(), to.value());
    if (rate > 0) {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(static_cast<double>(values.bytes()) / rate));
    }
    return inner_.start_send(values, to, tag);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return inner_.start_receive(values, from, tag);
  }
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    return inner_.split(colour, key);
  }

 private:
  Communicator& inner_;
  LinkRate rate_;
};

}  // namespace heteroperf::test

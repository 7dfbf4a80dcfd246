#pragma once

#include <cstdint>
#include <memory>

#include "runners/engine/training.hpp"

namespace heteroperf::test {

/// Random samples of a spec; the label depends on the sample, so that there is something to learn.
class RandomSamples final : public DataSource {
 public:
  explicit RandomSamples(SampleSpec spec, std::uint64_t train = 1 << 20,
                         std::uint64_t validation = 50)
      : spec_(spec), train_(train), validation_(validation) {}

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override {
    return split == Split::train ? train_ : validation_;
  }
  std::int64_t images(Split split, std::uint64_t index) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override { return "random samples"; }
  std::string fingerprint() const override { return "random"; }

 private:
  SampleSpec spec_;
  std::uint64_t train_, validation_;
};

/// Two blocks, h 32, 4 heads, context 16, vocabulary 40; LLaMA-like when asked.
ModelGraph tiny_gpt(double dropout = 0.0);
ModelGraph gpt(int blocks, double dropout = 0.0);
ModelGraph tiny_llama();
/// Convolution, batch norm, ReLU, a residual, pooling and a linear head on 3x8x8 images.
ModelGraph tiny_cnn(double dropout = 0.0);
/// One attention block on 4x4 patches of 3x16x16 images.
ModelGraph tiny_vit();

/// A training of `graph` on RandomSamples of its shape, on one rank, by 4 samples.
TrainingSpec small_training(ModelGraph graph, Precision precision = Precision::fp64);
/// The same on `ranks` replicas of the whole model.
TrainingSpec replicated(TrainingSpec spec, int ranks, std::int64_t micro_batch = 4,
                        int micro_batches = 1);

}  // namespace heteroperf::test

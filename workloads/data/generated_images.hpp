#pragma once

#include <vector>

#include "workloads/data/hierarchical_grammar.hpp"
#include "workloads/data/patch_renderer.hpp"
#include "workloads/data_source.hpp"

namespace heteroperf {

/// Labelled images with a known Bayes error ("RHM texture"): a class grows into a square of symbols
/// (HierarchicalGrammar), each drawn as a noisy patch (PatchRenderer). With chance e the label is
/// replaced by one drawn from all classes, so no classifier errs less than e · (1 − 1 / classes),
/// and one that reads the patches and knows the grammar reaches that. The splits differ in the key
/// of their samples; the structure comes from the seed.
class GeneratedImages : public DataSource {
 public:
  static constexpr int label_noise_percent = 5;

  /// Zeros in `spec` mean 3×32×32 and 10 classes. Throws UserError with every value out of range.
  GeneratedImages(const SampleSpec& spec, std::uint64_t seed);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override;
  std::optional<double> error_floor() const override;

  /// What a sample is made of, for oracles: its class before label noise and its symbols.
  struct Latent {
    int clean_label = 0, label = 0;
    std::vector<std::uint8_t> symbols;
  };
  Latent latent(Split split, std::uint64_t index) const;
  const HierarchicalGrammar& grammar() const { return grammar_; }
  const PatchRenderer& renderer() const { return renderer_; }

 private:
  Latent draw_latent(RandomStream& random) const;
  RandomStream stream(Split split, std::uint64_t index) const;

  SampleSpec spec_;
  std::uint64_t seed_;
  HierarchicalGrammar grammar_;
  PatchRenderer renderer_;
};

}  // namespace heteroperf

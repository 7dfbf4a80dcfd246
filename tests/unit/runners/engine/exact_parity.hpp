#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runners/engine/training.hpp"

namespace heteroperf::test {

/// Degrees of the two components of the model of ExactParity.
struct ParityLayout {
  int encoder_tensor = 1, encoder_data = 1;
  int tensor = 1, data = 1;   ///< of the language model
  SequencePart context = {};  ///< the first part of the language model's sequences

  int encoder_ranks() const { return encoder_tensor * encoder_data; }
  int language_ranks() const { return tensor * data * context.parts; }
};

/// The ranks of the language model beside those of the encoder, which begin with rank 0: from rank
/// 0 on as well; behind them; or from amid them, so that half of the smaller component's are
/// common.
enum class ParityPlacement { same, apart, half };
constexpr std::array<const char*, 3> value_names(ParityPlacement) {
  return {"same", "apart", "half"};
}
inline constexpr std::array parity_placements{ParityPlacement::same, ParityPlacement::apart,
                                              ParityPlacement::half};

/// All 1080 combinations: encoder tp 1 to 3 by dp 1, 2, 3, 4, 5 and 12, language model tp 1, 2 and
/// 4 by dp 1 to 4 by cp 1, 2 and 3, these in blocks and zig-zag.
std::vector<ParityLayout> parity_layouts();

/// A layout in one placement.
struct ParityCase {
  ParityLayout layout;
  ParityPlacement placement = ParityPlacement::same;

  int ranks() const;
  std::string name() const;
};

/// Draws so many cases, always the same ones, of `least` to `most` ranks.
std::vector<ParityCase> drawn_parity_cases(std::size_t count, int least, int most);

/// One optimizer step of a model of two components in whole numbers, so small that every sum is
/// exact in float64 in whatever order: any layout has to give the bits of one process.
///
/// The encoder makes a row of every token, which the language model adds to its own; both are
/// linears with a ReLU between them. The loss is the squared error of 64 of the step's 144 tokens,
/// so that the division by their number is exact too.
class ExactParity {
 public:
  /// Trains on one rank.
  ExactParity();
  ~ExactParity();
  ExactParity(const ExactParity&) = delete;
  ExactParity& operator=(const ExactParity&) = delete;

  /// The training of a case.
  TrainingSpec training(const ParityCase& tested) const;
  /// Trains one step on the ranks of `world`. Tells rank 0 the first thing that differs from the
  /// step of one rank: the loss, a gradient, or the bytes between the components from those that
  /// were planned; nothing where all are the same bits. Collective.
  std::string difference(const TrainingSpec& spec, Communicator& world) const;
  /// The same on threads.
  std::string difference(const ParityCase& tested) const;
  /// Tells where the bytes planned between the components are not the least possible ones: a row
  /// for every rank that needs it and does not have it.
  static std::string wasted_bytes(const TrainingSpec& spec);

  /// The loss of the step on one rank, and its gradients by tensor.
  double loss() const { return loss_; }
  const std::map<std::string, std::vector<double>>& gradients() const { return gradients_; }

 private:
  std::filesystem::path folder_;
  TrainingSpec spec_;  ///< of one rank
  double loss_ = 0;
  std::map<std::string, std::vector<double>> gradients_;
};

/// Reads the velocities of SGD's first update, which are the gradients, from a checkpoint.
std::map<std::string, std::vector<double>> read_velocities(const std::filesystem::path& folder);
/// Makes an empty folder for files of a test.
std::filesystem::path make_test_folder();

}  // namespace heteroperf::test

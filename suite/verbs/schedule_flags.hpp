#pragma once

#include <CLI/App.hpp>

#include <string>

#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The way in which a message takes its time: `--model`, `--network`.
class NetworkFlags {
 public:
  void declare(CLI::App& command);
  /// Throws UserError for unknown models and for a network file that the model would not use.
  SimulationOptions options() const;

 private:
  NetworkModel model_ = NetworkModel::latency;
  std::string network_;
};

/// The costs of passes and messages: `--costs`, `--costs-file`.
class CostFlags {
 public:
  void declare(CLI::App& command);
  bool given() const { return !costs_.empty() || !file_.empty(); }
  /// For `ranks` ranks; 1,1,1,0 where none are given. Throws UserError.
  StageCosts costs(int ranks) const;

 private:
  std::string costs_, file_;
};

}  // namespace heteroperf

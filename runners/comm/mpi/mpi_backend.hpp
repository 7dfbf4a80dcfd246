#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runners/comm/world.hpp"

namespace heteroperf {

struct MpiSettings {
  /// The size of the largest MPI message; transfers are cut. MPI counts elements in an int.
  std::size_t max_message_bytes = std::size_t{1} << 30;
  HostPath host_path = HostPath::single_copy;
  /// The ranks of a host share cores. Groups of a split inherit it, as a small group does not show
  /// it.
  bool crowded = false;
};

/// The calls that the MPI module offers to the program. The module is loaded on first use, so that
/// the program starts where no MPI library is installed. There is one object per process.
class MpiBackend {
 public:
  virtual ~MpiBackend() = default;

  /// The library's version in its own words. May be called before initialise().
  virtual std::string version() = 0;

  /// MPI_Init_thread. Throws SystemError{timeout} when it does not return within `deadline_s`.
  virtual void initialise(double deadline_s) = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True when all ranks share one host. Collective.
  virtual bool on_one_host(double deadline_s) = 0;
  /// Sends rank 0's text to all ranks. Collective.
  virtual void broadcast_text(std::string& text, double deadline_s) = 0;

  /// The communicator of all ranks. Collective.
  virtual std::unique_ptr<Communicator> make_world(std::shared_ptr<PeerWatch> watch,
                                                   const MpiSettings& settings) = 0;
  /// MPI_Finalize. Throws SystemError{timeout} when it does not return within `deadline_s`.
  virtual void finalise(double deadline_s) = 0;
};

}  // namespace heteroperf

/// The module's only entry, by this name and type.
extern "C" {
using HeteroperfMpiEntry = heteroperf::MpiBackend*();
}

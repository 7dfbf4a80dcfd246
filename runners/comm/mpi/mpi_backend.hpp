#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runners/comm/communicator.hpp"
#include "runners/comm/peer_watch.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

struct MpiSettings {
  /// Of a single MPI message; larger ones are cut. MPI counts elements in an int.
  std::size_t max_message_bytes = std::size_t{1} << 30;
  HostPath host_path = HostPath::single_copy;
};

/// What an MPI group's communicator also is.
class PathReport {
 public:
  virtual ~PathReport() = default;
  virtual HostPath host_path() const = 0;
  /// Why this one: "4 ranks on one host", "the ranks are on 2 hosts", …
  virtual const std::string& path_reason() const = 0;
};

/// What the MPI module offers to the program. One object per process.
class MpiBackend {
 public:
  virtual ~MpiBackend() = default;

  /// The library's own words; legal before initialise().
  virtual std::string version() = 0;

  /// MPI_Init_thread. Throws SystemError{timeout} when it does not return within `deadline_s`.
  virtual void initialise(double deadline_s) = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Collective: whether all ranks share one host.
  virtual bool on_one_host(double deadline_s) = 0;
  /// Collective: rank 0's text to all.
  virtual void broadcast_text(std::string& text, double deadline_s) = 0;

  /// All ranks.
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

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "metrics/base/error.hpp"
#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/mpi/mpi_group.hpp"

// The entry of the MPI module: starting and ending MPI, and the few exchanges that are needed
// before the control channel stands. These have a plain deadline instead of a watch, because
// nobody can know yet which rank is missing.

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;

/// Makes a function that throws SystemError{timeout} once `deadline_s` has passed.
std::function<void()> time_limit(std::string operation, double deadline_s) {
  const auto end = Clock::now() + std::chrono::duration<double>(deadline_s);
  return [operation = std::move(operation), end, deadline_s] {
    if (Clock::now() < end) return;
    throw SystemError(operation + " does not return",
                      fmt::format("waited {:g} s for the other ranks", deadline_s),
                      "Look at the processes of the run", ErrorKind::timeout);
  };
}

class Backend final : public MpiBackend {
 public:
  std::string version() override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    return std::string(text, length);
  }

  void initialise(double deadline_s) override {
    auto provided = std::make_shared<int>(MPI_THREAD_SINGLE);
    run_blocking_call(
        [provided] {
          // Where several threads may call MPI, sums of gradients overlap with other messages.
          check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, provided.get()),
                    "MPI_Init_thread");
        },
        time_limit("MPI_Init_thread", deadline_s));
    if (*provided >= MPI_THREAD_SERIALIZED) return;
    throw SystemError("this MPI library is not thread-safe", "MPI_THREAD_SERIALIZED is needed",
                      "Use another MPI library, or --transport threads", ErrorKind::environment);
  }

  int rank() const override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }

  int size() const override {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
  }

  bool on_one_host(double deadline_s) override {
    auto here = std::make_shared<int>(0);
    run_blocking_call(
        [here] {
          MPI_Comm shared = MPI_COMM_NULL;
          check_mpi(
              MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared),
              "MPI_Comm_split_type");
          MPI_Comm_size(shared, here.get());
          MPI_Comm_free(&shared);
        },
        time_limit("MPI_Comm_split_type", deadline_s));
    return *here == size();
  }

  void broadcast_text(std::string& text, double deadline_s) override {
    std::int32_t length = static_cast<std::int32_t>(text.size());
    broadcast_bytes(&length, sizeof length, deadline_s);
    text.resize(length);
    broadcast_bytes(text.data(), length, deadline_s);
  }

  std::unique_ptr<Communicator> make_world(std::shared_ptr<PeerWatch> watch,
                                           const MpiSettings& settings) override {
    std::vector<RankId> members;
    for (int r = 0; r < size(); ++r) members.emplace_back(r);
    auto copy = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    run_blocking_call(
        [copy] { check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, copy.get()), "MPI_Comm_dup"); },
        [&] {
          check_peers(*watch, members, {"joining the run", {}});
        });
    return make_mpi_communicator(*copy, std::move(members), std::move(watch), settings);
  }

  void finalise(double deadline_s) override {
    run_blocking_call([] { check_mpi(MPI_Finalize(), "MPI_Finalize"); },
                      time_limit("MPI_Finalize", deadline_s));
  }

 private:
  static void broadcast_bytes(void* data, int bytes, double deadline_s) {
    RequestBatch requests;
    check_mpi(MPI_Ibcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, requests.add()), "MPI_Ibcast");
    wait_for_requests(requests, deadline_s, "joining the run");
  }
};

}  // namespace
}  // namespace heteroperf

extern "C" heteroperf::MpiBackend* heteroperf_mpi_backend() {
  static heteroperf::Backend backend;
  return &backend;
}

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "metrics/base/name_table.hpp"
#include "runners/comm/nccl/stream_copier.hpp"

// The module that talks to NCCL and CUDA: the product's implementations of NcclLibrary, CopyStreams
// and device memory, which hand each call on and translate its answer. Everything that decides
// anything stands outside of it, where it is tested without a GPU.

namespace heteroperf {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

/// Throws SystemError{environment} with CUDA's words unless `code` is success.
void check_cuda(cudaError_t code, const char* operation) {
  if (code == cudaSuccess) return;
  throw SystemError(std::string("CUDA failed during ") + operation, cudaGetErrorString(code),
                    "nvidia-smi tells what holds the device.", ErrorKind::environment);
}

NcclStatus status_of(ncclResult_t code, ncclComm_t handle = nullptr) {
  if (code == ncclSuccess) return {};
  if (code == ncclInProgress) return {NcclStatus::State::in_progress, {}};
  const char* last = handle == nullptr ? "" : ncclGetLastError(handle);
  return {NcclStatus::State::failed,
          fmt::format("{}{}{}", ncclGetErrorString(code), *last == '\0' ? "" : ": ", last)};
}

std::string library_version() {
  int code = 0;
  ncclGetVersion(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

/// A row of a table of our values and NCCL's names for them.
template <class Ours, class Theirs>
struct Translation {
  Ours value;
  Theirs nccl;
};

constexpr Translation<DataType, ncclDataType_t> types[] = {
    {DataType::f32, ncclFloat32}, {DataType::f64, ncclFloat64}, {DataType::bf16, ncclBfloat16},
    {DataType::f16, ncclFloat16}, {DataType::i32, ncclInt32},   {DataType::i64, ncclInt64},
    {DataType::u8, ncclUint8}};
constexpr Translation<Reduction, ncclRedOp_t> operations[] = {{Reduction::sum, ncclSum},
                                                              {Reduction::min, ncclMin},
                                                              {Reduction::max, ncclMax},
                                                              {Reduction::average, ncclAvg}};

ncclDataType_t type_of(DataType type) { return row_of(types, type).nccl; }
ncclRedOp_t operation_of(Reduction reduction) { return row_of(operations, reduction).nccl; }

ncclComm_t comm(void* handle) { return static_cast<ncclComm_t>(handle); }

/// The place of a handle as NCCL sees it. NCCL's own thread may store a new handle there after the
/// call has returned.
ncclComm_t* handle_at(void*& place) { return reinterpret_cast<ncclComm_t*>(&place); }

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

NcclStatus status_of(cudaError_t code) {
  if (code == cudaSuccess) return {};
  if (code == cudaErrorNotReady) return {NcclStatus::State::in_progress, {}};
  return {NcclStatus::State::failed, cudaGetErrorString(code)};
}

/// The two copy streams of one device.
class Streams final : public CopyStreams {
 public:
  explicit Streams(int device) : device_(device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    for (cudaStream_t* stream : {&to_host_, &to_device_}) {
      check_cuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  ~Streams() override {
    for (cudaStream_t stream : {to_host_, to_device_}) cudaStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  std::string device() const override { return fmt::format("cuda:{}", device_); }
  void* pin(std::size_t bytes) override {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return memory;
  }
  void unpin(void* memory) noexcept override { cudaFreeHost(memory); }
  void* make_event() override {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return event;
  }
  void destroy_event(void* event) noexcept override {
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  NcclStatus start(Direction direction, void* to, const void* from, std::size_t bytes,
                   void* event) override {
    const bool read = direction == Direction::to_host;
    cudaStream_t stream = read ? to_host_ : to_device_;
    const cudaError_t code = cudaMemcpyAsync(
        to, from, bytes, read ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream);
    return status_of(code == cudaSuccess ? cudaEventRecord(static_cast<cudaEvent_t>(event), stream)
                                         : code);
  }
  NcclStatus status(void* event) override {
    return status_of(cudaEventQuery(static_cast<cudaEvent_t>(event)));
  }

 private:
  int device_;
  cudaStream_t to_host_ = nullptr, to_device_ = nullptr;
};

/// The memory of one device. Its copies to and from the host end before the call returns; those of
/// the copier run beside the caller.
class DeviceMemory final : public BufferMemory {
 public:
  explicit DeviceMemory(int device) : device_(device), copier_(std::make_shared<Streams>(device)) {}
  bool on_host() const override { return false; }
  DeviceCopier* copier() override { return &copier_; }

  void* allocate(std::size_t bytes) override {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cudaMalloc");
    return memory;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }
  void write(void* to, const void* host, std::size_t bytes) override {
    check_cuda(cudaMemcpy(to, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    // A copy from pageable memory may return before the bytes are there, and other streams do not
    // wait for it.
    check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  }
  void read(void* host, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpy(host, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  int device_;
  StreamCopier copier_;
};

/// NCCL on one device, with one stream for all operations.
class Library final : public NcclLibrary {
 public:
  explicit Library(int device) : device_(device), memory_(device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Library() override { cudaStreamDestroy(stream_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string version() const override { return library_version(); }
  DeviceIdentity device() const override {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
    return {"nvidia", properties.name, Bytes(properties.totalGlobalMem)};
  }
  NcclId unique_id() override {
    ncclUniqueId id{};
    const ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) {
      throw SystemError("NCCL has no unique id", ncclGetErrorString(code),
                        "NCCL_SOCKET_IFNAME names the interface to use.", ErrorKind::environment);
    }
    NcclId bytes;
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
  }
  NcclStatus init(const NcclId& bytes, int ranks, int rank, void*& handle) override {
    ncclUniqueId id{};
    std::memcpy(&id, bytes.data(), sizeof id);
    ncclConfig_t config = non_blocking();
    return status_of(ncclCommInitRankConfig(handle_at(handle), ranks, id, rank, &config));
  }
  NcclStatus split(void* handle, int colour, int key, void*& part) override {
    ncclConfig_t config = non_blocking();
    return status_of(ncclCommSplit(comm(handle), colour, key, handle_at(part), &config),
                     comm(handle));
  }
  NcclStatus status(void* handle) override {
    ncclResult_t code = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm(handle), &code);
    return status_of(asked == ncclSuccess ? code : asked, comm(handle));
  }
  void abort(void* handle) noexcept override { ncclCommAbort(comm(handle)); }
  NcclStatus finalize(void* handle) override {
    return status_of(ncclCommFinalize(comm(handle)), comm(handle));
  }
  void destroy(void* handle) noexcept override { ncclCommDestroy(comm(handle)); }

  void group_start() override { ncclGroupStart(); }
  NcclStatus group_end() override { return status_of(ncclGroupEnd()); }
  NcclStatus all_reduce(ConstBuffer in, void* out, Reduction reduction, void* handle) override {
    return status_of(ncclAllReduce(in.data, out, in.count, type_of(in.type),
                                   operation_of(reduction), comm(handle), stream_),
                     comm(handle));
  }
  NcclStatus reduce(ConstBuffer in, void* out, Reduction reduction, int root,
                    void* handle) override {
    return status_of(ncclReduce(in.data, out, in.count, type_of(in.type), operation_of(reduction),
                                root, comm(handle), stream_),
                     comm(handle));
  }
  NcclStatus broadcast(MutableBuffer values, int root, void* handle) override {
    return status_of(ncclBroadcast(values.data, values.data, values.count, type_of(values.type),
                                   root, comm(handle), stream_),
                     comm(handle));
  }
  NcclStatus all_gather(ConstBuffer in, void* out, void* handle) override {
    return status_of(ncclAllGather(in.data, out, in.count, type_of(in.type), comm(handle), stream_),
                     comm(handle));
  }
  NcclStatus reduce_scatter(ConstBuffer in, MutableBuffer out, Reduction reduction,
                            void* handle) override {
    return status_of(ncclReduceScatter(in.data, out.data, out.count, type_of(in.type),
                                       operation_of(reduction), comm(handle), stream_),
                     comm(handle));
  }
  NcclStatus send(ConstBuffer values, int to, void* handle) override {
    return status_of(
        ncclSend(values.data, values.count, type_of(values.type), to, comm(handle), stream_),
        comm(handle));
  }
  NcclStatus receive(MutableBuffer values, int from, void* handle) override {
    return status_of(
        ncclRecv(values.data, values.count, type_of(values.type), from, comm(handle), stream_),
        comm(handle));
  }

  NcclStatus stream_status() override { return status_of(cudaStreamQuery(stream_)); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
  }
  BufferMemory& memory() override { return memory_; }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  DeviceMemory memory_;
};

/// NCCL takes two ranks of one device for a mistake unless they look like two hosts, which then
/// talk over the loopback network. Settings that the user made stay.
void look_like_hosts(int rank) {
  const std::pair<const char*, std::string> settings[] = {
      {"NCCL_HOSTID", fmt::format("heteroperf-rank-{}", rank)},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_MAX_CTAS", "1"}};
  for (const auto& [name, value] : settings) setenv(name, value.c_str(), 0);
}

class Backend final : public NcclBackend {
 public:
  std::string version() override { return library_version(); }
  int devices(std::string& reason) override {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess) return count;
    reason = cudaGetErrorString(code);
    return 0;
  }
  std::shared_ptr<NcclLibrary> open(int index, int rank, int ranks_on_device) override {
    static std::mutex environment;  // all threads share the process's environment
    const std::lock_guard lock(environment);
    if (ranks_on_device > 1) look_like_hosts(rank);
    return std::make_shared<Library>(index);
  }
};

}  // namespace
}  // namespace heteroperf

extern "C" heteroperf::NcclBackend* heteroperf_nccl_backend() {
  static heteroperf::Backend backend;
  return &backend;
}

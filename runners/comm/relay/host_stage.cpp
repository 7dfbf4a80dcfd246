#include "runners/comm/relay/host_stage.hpp"

namespace heteroperf {

MutableBuffer HostStage::read(ConstBuffer values) {
  in_.reserve(device_, 1, values.bytes());
  const std::span<std::byte> host = in_.slot(0, values.bytes());
  if (!host.empty()) {
    await(copier_.start_read(static_cast<const std::byte*>(values.data), host),
          "the copy to the host");
  }
  return {host.data(), values.count, values.type};
}

MutableBuffer HostStage::room(ConstBuffer like) {
  out_.reserve(device_, 1, like.bytes());
  return {out_.slot(0, like.bytes()).data(), like.count, like.type};
}

void HostStage::write(ConstBuffer host, MutableBuffer values) {
  if (host.count == 0) return;
  await(copier_.start_write({static_cast<const std::byte*>(host.data), host.bytes()},
                            static_cast<std::byte*>(values.data)),
        "the copy to the device");
}

void HostStage::await(const WatchedCopier::Copy& copy, const char* what) {
  try {
    for (Idle idle; !copier_.done(copy, what, 0);) idle.pause();
  } catch (...) {
    in_.abandon();
    out_.abandon();
    throw;
  }
}

}  // namespace heteroperf

// Bytes that come over a control connection, in pieces: the first byte says how long they are, and
// whether the sender has proved itself.
#include <algorithm>

#include "runners/comm/control/connection.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  if (size == 0) return 0;
  const bool trusted = data[0] % 2 == 1;
  const std::size_t piece = 1 + data[0] / 2;
  FrameReader reader(trusted ? Connection::friend_limit_bytes : Connection::stranger_limit_bytes);
  for (std::size_t begin = 1; begin < size && !reader.broken(); begin += piece) {
    reader.append(text_of(data + begin, std::min(piece, size - begin)));
    while (const auto frame = reader.next()) {
      decode_failure(*frame);
      decode_heartbeat(*frame);
      if (encode(*frame).size() != frame_header_bytes + frame->payload.size()) std::abort();
    }
    if (!reader.broken() && reader.room() == 0) std::abort();
  }
  return 0;
}

#include "runners/comm/control/frame.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t rank_bytes = 4;
/// The kind, and whether it is the rank's own word.
constexpr std::size_t failure_header_bytes = 2;

void put(std::string& bytes, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint64_t take(std::string_view bytes, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  bytes.reserve(frame_header_bytes + frame.payload.size());
  put(bytes, frame.payload.size(), 4);
  put(bytes, static_cast<std::uint64_t>(frame.kind), 1);
  put(bytes, frame.id, 8);
  return bytes + frame.payload;
}

Frame heartbeat_frame(const std::optional<OverdueWait>& wait) {
  if (!wait) return {};
  std::string payload;
  for (const RankId rank : wait->needed) {
    put(payload, static_cast<std::uint64_t>(rank.value()), rank_bytes);
  }
  return {Frame::Kind::heartbeat, wait->id, std::move(payload)};
}

std::optional<OverdueWait> decode_heartbeat(const Frame& frame) {
  if (frame.payload.empty()) return std::nullopt;
  OverdueWait wait{frame.id, {}};
  std::string_view rest = frame.payload;
  for (; rest.size() >= rank_bytes; rest.remove_prefix(rank_bytes)) {
    wait.needed.emplace_back(static_cast<std::int32_t>(take(rest, rank_bytes)));
  }
  return wait;
}

Frame failure_frame(const RankFailure& failure) {
  std::string payload;
  put(payload, static_cast<std::uint64_t>(failure.kind), 1);
  put(payload, failure.own_word ? 1 : 0, 1);
  return {Frame::Kind::failure, static_cast<std::uint64_t>(failure.rank.value()),
          payload + failure.reason};
}

RankFailure decode_failure(const Frame& frame) {
  RankFailure failure{RankId(static_cast<std::int32_t>(frame.id)), ErrorKind::run_failed, ""};
  if (frame.payload.size() < failure_header_bytes) return failure;
  const auto kind = static_cast<unsigned char>(frame.payload[0]);
  if (kind <= static_cast<unsigned char>(ErrorKind::interrupted)) {
    failure.kind = static_cast<ErrorKind>(kind);
  }
  failure.own_word = frame.payload[1] != 0;
  failure.reason = frame.payload.substr(failure_header_bytes);
  return failure;
}

std::size_t FrameReader::room() const {
  const std::size_t held = buffer_.size() - begin_, most = max_payload_ + frame_header_bytes;
  return held < most ? most - held : 0;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (broken_ || rest.size() < frame_header_bytes) return std::nullopt;
  const std::size_t payload = take(rest, 4);
  const auto kind = static_cast<std::uint8_t>(rest[4]);
  broken_ = payload > max_payload_ || kind > Frame::last_kind;
  if (broken_ || rest.size() < frame_header_bytes + payload) return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(kind), take(rest.substr(5), 8),
              std::string(rest.substr(frame_header_bytes, payload))};
  begin_ += frame_header_bytes + payload;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > (std::size_t{1} << 16)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

}  // namespace heteroperf

#include "cli/turn_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mererun {

TurnReader::Result TurnReader::read(std::string& turn) {
  while (true) {
    const auto end = buffer_.find('\n');
    if (end != std::string::npos || (is_at_end_ && !buffer_.empty())) {
      was_interrupted_ = false;
      turn = buffer_.substr(0, end);
      if (turn.ends_with('\r')) turn.pop_back();
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      return Result::kTurn;
    }
    if (is_at_end_) return Result::kEnd;
    std::array<char, 4096> chunk;
    const ssize_t count = ::read(descriptor_, chunk.data(), chunk.size());
    if (count > 0) {
      buffer_.append(chunk.data(), static_cast<std::size_t>(count));
    } else if (count == 0) {
      is_at_end_ = true;
    } else if (errno == EINTR) {
      buffer_.clear();
      return std::exchange(was_interrupted_, true) ? Result::kGivenUp : Result::kInterrupted;
    } else {
      fail_expected(ErrorCode::kIo, "stdin", "a line", std::strerror(errno));
    }
  }
}

}  // namespace mererun

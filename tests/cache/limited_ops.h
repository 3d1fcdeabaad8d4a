#pragma once

#include <memory>

#include "base/error.h"
#include "kernels/forwarding_ops.h"

namespace mererun::testing {

/// Another backend whose allocations are counted and can be made to fail.
class LimitedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  int allocations = 0;
  int allowed = -1;            // allocations until one fails; negative: no limit
  std::size_t live_bytes = 0;  // as asked for
  bool refuses_downloads = false;

  Buffer allocate(std::size_t bytes) override {
    if (allowed == 0) throw Error(ErrorCode::kOutOfMemory, "limited ops: expected memory, got none");
    if (allowed > 0) --allowed;
    ++allocations;
    live_bytes += bytes;
    auto memory = std::make_shared<Buffer>(inner().allocate(bytes));
    return Buffer(memory->data(), bytes, [this, memory, bytes](void*) { live_bytes -= bytes; });
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (refuses_downloads) throw Error(ErrorCode::kIo, "limited ops: expected a download, got none");
    inner().download(host, device, bytes);
  }
};

}  // namespace mererun::testing

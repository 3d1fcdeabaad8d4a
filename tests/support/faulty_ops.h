#pragma once

#include "base/error.h"
#include "kernels/forwarding_ops.h"

namespace mererun::testing {

/// Another backend that fails on the n-th operation after arming.
class FaultyOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  /// The n-th operation from now throws kDevice, once; n = 0 disarms.
  void arm(int n) { countdown_ = n; }

  bool is_host() const override { return false; }  // results are downloaded, as from a device

 private:
  void around(std::string_view, const std::function<void()>& call) override {
    if (countdown_ > 0 && --countdown_ == 0)
      throw Error(ErrorCode::kDevice, "planted fault: expected a working device, got a failing one");
    call();
  }

  int countdown_ = 0;
};

}  // namespace mererun::testing

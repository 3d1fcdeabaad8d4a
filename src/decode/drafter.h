#pragma once

#include <vector>

#include "base/types.h"
#include "cache/sequence_state.h"
#include "decode/depth_policy.h"
#include "decode/sampler.h"
#include "decode/token_constraint.h"

namespace mererun {

struct DraftRequest {
  SequenceState& state;  // at position n; the pending token's transition is already recorded in its history
  TokenId pending;       // chosen for position n
  int depth;             // drafts wanted, >= 1
  Sampler& sampler;      // the request's rules and noise; left as found
  const TokenConstraint* constraint;  // null without one; left as found
  // Set: a drafter that can tell how sure it is of a draft asks it whether to go on, up to `limit` drafts.
  const DepthPolicy* policy = nullptr;
  int limit = 0;
};

/// Proposes tokens to follow the pending one. A proposal can be wrong in any way: it only costs time.
///
/// Thread-safety: one thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Appends at most request.depth tokens (`limit`, with a policy asked) for positions n + 1, n + 2, ... to
  /// `drafts`; fewer, or none, is allowed.
  virtual void draft(const DraftRequest& request, std::vector<TokenId>& drafts) = 0;
};

}  // namespace mererun

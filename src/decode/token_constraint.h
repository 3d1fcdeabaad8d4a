#pragma once

#include <memory>

#include "base/types.h"
#include "decode/token_mask.h"

namespace mererun {

/// What the output may contain next (a grammar, a JSON schema), advanced token by token.
///
/// Thread-safety: one thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Ids allowed as the next token; null when all are. Valid until the next accept.
  virtual const TokenMask* mask() = 0;
  /// Advances over a token that `mask` allows.
  virtual void accept(TokenId id) = 0;
  /// True when the output is complete and nothing but its end can follow. (Where it may end and may also go
  /// on, the mask allows the end-of-sequence tokens.)
  virtual bool is_complete() const = 0;
  /// A copy to look ahead with.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace mererun

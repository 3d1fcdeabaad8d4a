#pragma once

#include <string>
#include <vector>

#include "cache/snapshot.h"
#include "engine/engine.h"

namespace mererun {

/// What a snapshot holds and what it makes the drafter say: equal before and after a restart, or the restart
/// changed something.
struct SnapshotProof {
  std::string state_sha256;           // logits, last hidden row, recurrent states, whole KV pages, history
  std::vector<TokenId> first_drafts;  // greedy, behind the token that the logits choose
};

/// Needs the snapshot's logits; without a draft head or a whole history there are no drafts. For the thread
/// that computes. Errors: those of the model.
SnapshotProof prove_snapshot(Engine& engine, const Snapshot& snapshot);

}  // namespace mererun

#pragma once

#include "kernels/attention.h"
#include "tensor/tensor_view.h"

namespace mererun {

// Block-sparse attention of Flash-Next. Positions form blocks of four; an indexer scores the complete blocks
// and a row attends to the best of them and to the positions after the last complete one (the tail). While
// all blocks fit the budget every position is visible and `attend` serves: both take tiles of 64 listed
// positions, so there is no seam. Source: model-math "Flash-Next", sparse attention.

/// Norm and rotation of the index queries, append of the raw index keys (int16 codes and one scale a
/// position, rounded like keys), and the pooled key of every block that these rows complete.
///
/// Pooled key of block j: the mean of its four keys as the cache holds them, ((a + b) + (c + d)) · 0.25, then
/// the norm, then the rotation of position 4j. It lies in the cache where later rows with the same positions
/// overwrite it; a row reads only blocks that are complete at its position.
struct IndexPrepareParams {
  TensorView qk;         // [T, (heads + 1) * index_dim] f32: query heads, then the key
  TensorView q_norm;     // [1, index_dim] f32
  TensorView k_norm;     // [1, index_dim] f32
  TensorView positions;  // [1, T] i32, consecutive
  RopeView rope;
  float eps = 1e-6f;
  int heads = 0;
  TensorView q;       // out [T, heads * index_dim] f32
  KvLayerView cache;  // with index_dim > 0; appended at positions
};

/// The blocks that each row attends to, ascending: the K of highest score among the (p + 1) / 4 complete
/// ones, lowest block on ties. Every row must see at least K complete blocks.
///
/// score: per head, fma over d ascending from +0, then max(0, dot) added up over heads ascending from +0,
/// then times index_dim^-1/2. A pure function of the row's query and the pooled keys.
struct SelectBlocksParams {
  TensorView q;          // [T, heads * index_dim] f32
  TensorView positions;  // [1, T] i32, consecutive
  KvLayerView cache;
  int heads = 0;
  TensorView blocks;  // out [T, K] i32
};

/// `attend` over each row's own list of positions: those of its blocks, ascending, then its tail. Tile i
/// holds entries 64i .. 64i + 63 of the list; everything else is as in AttendParams.
struct AttendBlocksParams {
  TensorView q;          // [T, heads * head_dim] f32
  TensorView q_gate;     // [T, heads * 2 * head_dim] f32: the gate halves are read
  TensorView positions;  // [1, T] i32, consecutive
  TensorView blocks;     // [T, K] i32, ascending, complete at the row's position
  KvLayerView cache;
  int heads = 0;
  float scale_log2e = 0;
  TensorView out;  // [T, heads * head_dim] f32
};

}  // namespace mererun

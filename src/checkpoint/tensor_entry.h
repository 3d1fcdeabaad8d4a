#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "tensor/dtype.h"

namespace mererun {

/// One tensor of a checkpoint, borrowed from the mapped file: row-major, little-endian, checked to lie inside
/// the file and to hold exactly dtype x shape bytes. The data may be unaligned: read it with memcpy.
struct TensorEntry {
  std::string name;         // canonical name: see canonical_name()
  std::string stored_name;  // as the file spells it, for messages
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty for a scalar; every dimension >= 0
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const MappedFile* file =
      nullptr;             // outlives the entry inside a Checkpoint; null only when parsed from memory
  bool is_vision = false;  // of the vision tower: stored under its own name, unused by text models

  std::uint64_t num_elements() const { return bytes / size_of(dtype); }
};

/// "[4096, 640] U32".
std::string describe_type(DType dtype, const std::vector<std::int64_t>& shape);
/// "[4096, 640] U32 in model-00002-of-00004.safetensors": what an error message says it got.
std::string describe(const TensorEntry& tensor);

/// Index of the first NaN or infinity of a BF16, F16 or F32 tensor (NaN of an F8_E4M3 one), in storage order;
/// no value when all are finite or the dtype is an integer. Reads every byte.
std::optional<std::uint64_t> find_non_finite(const TensorEntry& tensor);

}  // namespace mererun

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace mererun {

class JsonFields;

/// Reads `quantization` (or its twin `quantization_config`) of config.json. Internal to model/.
/// Errors: kUnsupported for a mode other than affine or another quantisation method; kCorruptData for bad
/// entries and for twins that differ.
QuantizationConfig parse_quantization(const JsonFields& top);

/// Bits and group of one affine weight, from its shapes.
struct AffineFormat {
  int bits = 0;
  int group = 0;
  friend bool operator==(const AffineFormat&, const AffineFormat&) = default;
};

/// "4-bit g64".
std::string to_string(AffineFormat format);

/// bits = 32 * weight_columns / in, group = in / scale_columns; no value unless both are whole, bits in
/// {2,3,4,5,6,8} and group in {32,64,128}.
std::optional<AffineFormat> infer_affine(int in, std::int64_t weight_columns, std::int64_t scale_columns);

/// Compares what the shapes say with what `quantization` says, over one set of tensors (a trunk or a draft
/// head). Shapes decide: an explicit entry that disagrees is a problem; a default that disagrees with some
/// tensors is a note; a default that no tensor matches is a problem.
class QuantizationCheck {
 public:
  explicit QuantizationCheck(const QuantizationConfig& config) : config_(&config) {}

  /// One bound module under the names it may have in the dictionary (prefixes removed). `found`: its affine
  /// format, no value if it is stored unquantised. Returns the problem, if any.
  std::optional<std::string> see(const std::vector<std::string>& modules, std::optional<AffineFormat> found);

  /// After all modules of a trunk: the problem of a default that nothing matches, if any.
  std::optional<std::string> unmatched_default() const;
  /// A note when some tensors differ from the default without an entry of their own.
  std::optional<std::string> deviation_note() const;

 private:
  const QuantizationConfig* config_;
  int quantised_ = 0;
  int matched_ = 0;    // by the default
  int deviating_ = 0;  // from the default, without an entry
  std::string first_deviating_;
  std::string first_format_;
};

}  // namespace mererun

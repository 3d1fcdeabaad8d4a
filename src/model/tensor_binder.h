#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/host_weights.h"
#include "model/quantization.h"
#include "tensor/linear_source.h"

namespace mererun {

/// Takes tensors out of one checkpoint, each once, and checks every one against what the architecture
/// expects. Nothing throws for a bad tensor: it is written down, so that all problems of a checkpoint are
/// listed together. Internal to model/.
class TensorBinder {
 public:
  /// kEntriesOnly: compare with entries of `quantization` that name a module, not with its default.
  enum class Precision { kDefaultAndEntries, kEntriesOnly, kShapesOnly };

  TensorBinder(std::shared_ptr<const Checkpoint> checkpoint, const QuantizationConfig& quantization,
               Precision precision, std::vector<std::string>& problems);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const TensorEntry* find(std::string_view name) const { return checkpoint_->find(name); }
  /// Whether any tensor's canonical name starts with `prefix`.
  bool has_prefix(std::string_view prefix) const;

  /// A matrix [out, in] of `module`, dense or affine. Empty source (and a problem) if it is missing or wrong.
  LinearSource matrix(const std::string& module, int out, int in);
  /// A stack [experts, out, in] under the name of `module`, with or without ".weight". `aliases`: other names
  /// of it in `quantization`. Scales and biases are found beside it.
  LinearSource stack(const std::string& module, int experts, int out, int in,
                     std::vector<std::string> aliases);
  /// A tensor that must be there, for callers that interpret its shape; null (and a problem) if missing.
  const TensorEntry* required(const std::string& name, std::string_view expected);
  /// A vector of `length` elements widened to f32; `also` are further shapes with as many elements.
  std::vector<float> vector(const std::string& name, int length,
                            std::span<const std::vector<std::int64_t>> also = {});
  /// Marks a tensor as used without binding it.
  void take(const TensorEntry& tensor);
  /// Takes the tensors of a matrix that is known and not used, if they are there.
  void ignore(const std::string& module);
  void problem(std::string text) { problems_->push_back(std::move(text)); }

  /// Lists every tensor with one of these name prefixes that nothing took as a problem. Vision tensors are
  /// counted in `report` instead.
  void list_left_over(std::span<const std::string_view> skip_prefixes, std::string_view only_prefix,
                      LoadReport& report);
  /// Adds what was taken to the report, and what comparing with `quantization` showed.
  void finish(LoadReport& report);

 private:
  /// An empty source; what is left of the module is no problem of its own beside the one that was listed.
  LinearSource abandoned(const std::string& module);
  LinearSource bind(const std::string& module, const TensorEntry& weight, std::vector<std::int64_t> leading,
                    int in, const std::vector<std::string>& names);
  bool bind_affine(const std::string& module, const TensorEntry& weight, const TensorEntry& scales,
                   const std::vector<std::int64_t>& leading, LinearSource& source);

  std::shared_ptr<const Checkpoint> checkpoint_;
  Precision precision_;
  QuantizationCheck check_;
  std::vector<std::string>* problems_;
  std::unordered_set<const TensorEntry*> used_;
};

/// Widens a BF16, F16 or F32 tensor to f32.
std::vector<float> widen(const TensorEntry& tensor);

}  // namespace mererun

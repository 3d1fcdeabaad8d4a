#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "tensor/element.h"

namespace mererun {
namespace {

constexpr std::string_view kExperts = ".mlp.experts.";

bool is_head_name(std::string_view canonical) {
  return canonical.starts_with("mtp.") || canonical.starts_with("draft_lm_head.");
}

std::string_view without(std::string_view text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (const auto at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

/// The name in the file of the result.
std::string output_name(std::string_view canonical) {
  if (canonical.starts_with("mtp.")) return std::string(canonical.substr(4));
  if (canonical.starts_with("lm_head")) return fmt::format("language_model.{}", canonical);
  return replaced(fmt::format("language_model.model.{}", canonical), "ngram_embedding.shard_",
                  "ngram_embedding.shards.");
}

class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input) {}

  ConversionPlan run() {
    for (const TensorEntry& tensor : in_.trunk.tensors()) {
      if (!tensor.is_vision)
        add(tensor);
      else
        ++plan_.vision_tensors;
    }
    if (in_.head != nullptr) {
      for (const TensorEntry& tensor : in_.head->tensors()) {
        if (is_head_name(tensor.name)) add(tensor);
      }
    }
    for (auto& [base, experts] : experts_) add_stack(base, std::move(experts));
    plan_.has_head = in_.head_norms.has_value();
    if (plan_.has_head) add_draft_output();
    distribute();
    return std::move(plan_);
  }

 private:
  void add(const TensorEntry& tensor) {
    const std::string_view name = tensor.name;
    // Made anew from the output matrix, or meaningless without a vocabulary.
    if (name.starts_with("draft_lm_head.")) return;
    check_type(tensor);
    if (const auto at = name.find(kExperts); at != std::string_view::npos) {
      add_experts(tensor, at);
    } else if (is_matrix(tensor)) {
      add_matrix(std::string(without(name, ".weight")), rows_of(tensor), tensor.shape);
    } else {
      add_plain(tensor);
    }
  }

  void check_type(const TensorEntry& tensor) const {
    const bool quantised = tensor.name.ends_with(".scales") || tensor.name.ends_with(".biases") ||
                           tensor.dtype == DType::kU32 || tensor.dtype == DType::kU8;
    const bool is_integer = tensor.dtype == DType::kI64 || tensor.dtype == DType::kI32;
    if (!quantised && (is_float(tensor.dtype) || is_integer)) return;
    fail_expected(ErrorCode::kUnsupported, tensor.stored_name,
                  "a BF16, F16 or F32 checkpoint that is not quantised yet", describe(tensor));
  }

  /// Linear weights and embeddings; conv weights and whatever has one axis stay as they are.
  static bool is_matrix(const TensorEntry& tensor) {
    return is_float(tensor.dtype) && tensor.shape.size() >= 2 && tensor.name.ends_with(".weight") &&
           tensor.name.find("conv1d") == std::string::npos;
  }

  void add_matrix(std::string module, SourceRows source, std::vector<std::int64_t> shape) {
    PlannedTensor planned{
        .name = output_name(module), .source = std::move(source), .shape = std::move(shape)};
    planned.format = in_.recipe.format_of(module, planned.source.in);
    if (!planned.format) planned.name += ".weight";
    put(is_head_name(module), std::move(planned));
  }

  void add_plain(const TensorEntry& tensor) {
    PlannedTensor planned{.name = output_name(tensor.name), .source = rows_of(tensor), .shape = tensor.shape};
    const bool keeps_type = tensor.name.ends_with("A_log") || !is_float(tensor.dtype);
    planned.dtype = keeps_type ? tensor.dtype : DType::kBF16;
    planned.is_copied = !is_float(tensor.dtype);
    if (tensor.name.ends_with("conv1d.weight") && planned.shape.size() == 3 && planned.shape[1] == 1)
      std::swap(planned.shape[1],
                planned.shape[2]);  // taps before the channel of one: the same order in memory
    planned.adds_one = adds_one(tensor);
    put(is_head_name(tensor.name), std::move(planned));
  }

  bool adds_one(const TensorEntry& tensor) const {
    if (in_.config.family == Family::kFlashNext || !has_norm_convention(tensor.name)) return false;
    if (!tensor.name.starts_with("mtp.")) return in_.trunk_norms == NormConvention::kZeroCentred;
    const SourceRows rows = rows_of(tensor);
    std::vector<float> values(static_cast<std::size_t>(rows.rows() * rows.in));
    rows.read(0, rows.rows(), values);
    NormStatistics own;
    own.add(values);
    const bool zero_centred = *in_.head_norms == NormConvention::kZeroCentred;
    return contradicts(own, *in_.head_norms) ? !zero_centred : zero_centred;
  }

  /// `at`: of kExperts in the name. Fused stacks are split at once; single experts are collected.
  void add_experts(const TensorEntry& tensor, std::size_t at) {
    const std::string base = tensor.name.substr(0, at) + ".mlp.switch_mlp.";
    const std::string_view rest =
        without(std::string_view(tensor.name).substr(at + kExperts.size()), ".weight");
    const std::int64_t width = in_.config.moe_intermediate;
    const std::int64_t hidden = in_.config.hidden;
    if (rest == "gate_up_proj") {
      add_part(base + "gate_proj", tensor, width, hidden, 0, 2 * width);
      add_part(base + "up_proj", tensor, width, hidden, width, 2 * width);
    } else if (rest == "down_proj") {
      add_part(base + "down_proj", tensor, hidden, width, 0, hidden);
    } else if (tensor.shape.size() == 3) {
      add_matrix(base + std::string(rest), rows_of(tensor), tensor.shape);
    } else {
      experts_[base + std::string(rest.substr(rest.find('.') + 1))].push_back(&tensor);
    }
  }

  /// Rows [first, first + out) of the `all` rows of every expert of a fused stack, [E, all, in] or
  /// transposed, [E, in, all]; a stack that fits both is told apart by the down projection, as loading does.
  void add_part(const std::string& module, const TensorEntry& stack, std::int64_t out, std::int64_t in,
                std::int64_t first, std::int64_t all) {
    const bool transposed = is_transposed(stack);
    SourceRows source;
    source.tensors = {&stack};
    source.experts = in_.config.experts;
    source.out = out;
    source.in = in;
    source.base = transposed ? first : first * in;
    source.expert_stride = all * in;
    source.row_stride = transposed ? 1 : in;
    source.column_stride = transposed ? all : 1;
    add_matrix(module, std::move(source), {in_.config.experts, out, in});
  }

  bool is_transposed(const TensorEntry& stack) const {
    const std::int64_t e = in_.config.experts;
    const std::int64_t h = in_.config.hidden;
    const std::int64_t i = in_.config.moe_intermediate;
    const bool decides_by_down = h != i;
    std::string name = stack.name;
    if (decides_by_down)
      name = replaced(std::move(name), "experts.gate_up_proj", "experts.down_proj");
    else
      name = replaced(std::move(name), "experts.down_proj", "experts.gate_up_proj");
    const Checkpoint& files = in_.head != nullptr && is_head_name(name) ? *in_.head : in_.trunk;
    const TensorEntry* decisive = files.find(name);
    if (decisive == nullptr) return false;
    return decisive->shape ==
           (decides_by_down ? std::vector<std::int64_t>{e, i, h} : std::vector<std::int64_t>{e, h, 2 * i});
  }

  /// Experts stored one by one, in any order of names.
  void add_stack(const std::string& module, std::vector<const TensorEntry*> tensors) {
    const auto number = [](const TensorEntry* t) {
      return std::stoi(t->name.substr(t->name.find(kExperts) + kExperts.size()));
    };
    std::sort(tensors.begin(), tensors.end(),
              [&](const TensorEntry* a, const TensorEntry* b) { return number(a) < number(b); });
    SourceRows source = rows_of(*tensors.front());
    source.experts = static_cast<std::int64_t>(tensors.size());
    const std::vector<std::int64_t> shape{source.experts, source.out, source.in};
    source.tensors = std::move(tensors);
    add_matrix(module, std::move(source), shape);
  }

  /// The coarse output matrix of the head's shortlist: 2 bits, from the unquantised output matrix.
  void add_draft_output() {
    const TensorEntry* output = in_.trunk.find("lm_head.weight");
    if (output == nullptr) output = in_.trunk.find("embed_tokens.weight");
    if (!in_.draft_vocabulary || output == nullptr || output->shape.back() % 64 != 0) return;
    PlannedTensor planned{.name = "draft_lm_head", .source = rows_of(*output)};
    planned.source.chosen = in_.draft_vocabulary;
    planned.source.out = in_.draft_vocabulary->padded_rows();
    planned.format = AffineFormat{2, 64};
    planned.shape = {planned.source.out, planned.source.in};
    plan_.draft_rows = in_.draft_vocabulary->rows();
    put(true, std::move(planned));
  }

  void put(bool is_head, PlannedTensor planned) {
    plan_.source_bytes += planned.source.bytes();
    plan_.bytes += planned.bytes();
    (is_head ? head_ : trunk_).push_back(std::move(planned));
  }

  void distribute() {
    std::vector<PlannedShard> shards(1);
    std::uint64_t filled = 0;
    for (PlannedTensor& tensor : trunk_) {
      const std::uint64_t bytes = tensor.bytes();
      if (filled != 0 && filled + bytes > in_.max_shard_bytes) {
        shards.emplace_back();
        filled = 0;
      }
      filled += bytes;
      shards.back().tensors.push_back(std::move(tensor));
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
      shards[i].file = shards.size() == 1
                           ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    }
    if (!head_.empty()) shards.push_back({"mtp/model.safetensors", std::move(head_)});
    plan_.shards = std::move(shards);
  }

  const PlanInput& in_;
  ConversionPlan plan_;
  std::vector<PlannedTensor> trunk_;
  std::vector<PlannedTensor> head_;
  std::map<std::string, std::vector<const TensorEntry*>> experts_;  // by canonical stack name
};

}  // namespace

std::uint64_t PlannedTensor::code_bytes() const {
  return static_cast<std::uint64_t>(source.rows() * source.in) * static_cast<std::uint64_t>(format->bits) / 8;
}

std::uint64_t PlannedTensor::scale_bytes() const {
  return static_cast<std::uint64_t>(source.rows() * (source.in / format->group)) * 2;
}

std::uint64_t PlannedTensor::bytes() const {
  if (format) return code_bytes() + 2 * scale_bytes();
  return static_cast<std::uint64_t>(source.rows() * source.in) * size_of(dtype);
}

bool has_norm_convention(std::string_view canonical) {
  constexpr std::array<std::string_view, 6> kNorms = {
      "input_layernorm.weight",  "post_attention_layernorm.weight", "self_attn.q_norm.weight",
      "self_attn.k_norm.weight", "pre_fc_norm_embedding.weight",    "pre_fc_norm_hidden.weight"};
  if (canonical == "norm.weight" || canonical == "mtp.norm.weight") return true;
  return std::any_of(kNorms.begin(), kNorms.end(),
                     [&](std::string_view norm) { return canonical.ends_with(norm); });
}

ConversionPlan make_plan(const PlanInput& input) { return Planner(input).run(); }

}  // namespace mererun

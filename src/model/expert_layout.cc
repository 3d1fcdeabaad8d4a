#include "model/expert_layout.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "model/weight_tables.h"
#include "tensor/element.h"

namespace mererun {

namespace {

using Owned = std::shared_ptr<std::byte[]>;

class ExpertBinder {
 public:
  ExpertBinder(TensorBinder& binder, const std::string& layer, const ModelConfig& config,
               LoadOptions::Experts experts, HostLayer& weights, LoadReport& report)
      : binder_(binder),
        base_(layer + "mlp."),
        config_(config),
        rebuilds_(experts == LoadOptions::Experts::kRebuild),
        layer_(weights),
        moe_(std::get<HostMoe>(weights.feed_forward)),
        report_(report) {}

  void bind() {
    const bool fused = is_fused();
    const bool transposed = is_transposed();
    for (const StackRow& row : expert_stacks(config_)) {
      const bool half = fused && row.field != &HostMoe::expert_down;
      if (half) continue;
      if (transposed) {
        moe_.*row.field = transposed_stack(row, row.projection, row.out, 0, row.out);
      } else if (const std::string module = stacked_module(row.projection); !module.empty()) {
        moe_.*row.field = binder_.stack(module, config_.experts, row.out, row.in, aliases(row.projection));
      } else if (binder_.has_prefix(base_ + "experts.0.")) {
        moe_.*row.field = per_expert(row);
      } else {
        // Reports the missing tensor.
        moe_.*row.field = binder_.stack(missing_module(row.projection), config_.experts, row.out, row.in, {});
      }
    }
    if (fused) bind_fused(transposed);
  }

 private:
  /// Whether the file holds any part of it.
  bool has(std::string_view name) const {
    return binder_.find(fmt::format("{}{}", base_, name)) != nullptr ||
           binder_.has_prefix(fmt::format("{}{}.", base_, name));
  }

  /// A file of `experts.down_proj` alone is one of fused stacks that lacks the other.
  bool is_fused() const {
    const auto stacked = [&](std::string_view projection) { return !stacked_module(projection).empty(); };
    return stacked("gate_up_proj") ||
           (has("experts.down_proj") && !stacked("gate_proj") && !stacked("up_proj"));
  }

  /// What a stack would be called beside the others: as most files do where there are none.
  std::string missing_module(std::string_view projection) const {
    const bool plain = has("experts.down_proj") || has("experts.gate_up_proj") || has("experts.gate_proj") ||
                       has("experts.up_proj");
    return fmt::format("{}{}{}", base_, plain ? "experts." : "switch_mlp.", projection);
  }

  /// The module that holds a projection as one stack; empty if there is none.
  std::string stacked_module(std::string_view projection) const {
    for (const std::string_view parent : {"switch_mlp.", "experts."}) {
      if (has(fmt::format("{}{}", parent, projection)))
        return fmt::format("{}{}{}", base_, parent, projection);
    }
    return {};
  }

  /// Other names of a stack in `quantization`.
  std::vector<std::string> aliases(std::string_view projection) const {
    std::vector<std::string> names;
    for (const std::string_view parent : {"switch_mlp.", "experts."}) {
      names.push_back(fmt::format("{}{}{}", base_, parent, projection));
      if (projection != "down_proj") names.push_back(fmt::format("{}{}gate_up_proj", base_, parent));
    }
    return names;
  }

  const TensorEntry* unquantised_stack(std::string_view projection) const {
    for (const std::string_view suffix : {"", ".weight"}) {
      const TensorEntry* tensor = binder_.find(fmt::format("{}experts.{}{}", base_, projection, suffix));
      if (tensor != nullptr && is_float(tensor->dtype)) return tensor;
    }
    return nullptr;
  }

  bool is_transposed() const {
    const std::int64_t e = config_.experts;
    const std::int64_t h = config_.hidden;
    const std::int64_t i = config_.moe_intermediate;
    const auto shaped = [](const TensorEntry* t, std::array<std::int64_t, 3> shape) {
      return t != nullptr && t->shape == std::vector<std::int64_t>(shape.begin(), shape.end());
    };
    // A square stack does not tell.
    return (h != i && shaped(unquantised_stack("down_proj"), {e, i, h})) ||
           (h != 2 * i && shaped(unquantised_stack("gate_up_proj"), {e, h, 2 * i}));
  }

  void bind_fused(bool transposed) {
    const int width = config_.moe_intermediate;
    if (transposed) {
      const StackRow row{"gate_up_proj", &HostMoe::expert_gate, width, config_.hidden};
      moe_.expert_gate = transposed_stack(row, "gate_up_proj", 2 * width, 0, width);
      if (moe_.expert_gate.empty()) return;
      moe_.expert_up = transposed_stack(row, "gate_up_proj", 2 * width, width, width);
      return;
    }
    std::string module = stacked_module("gate_up_proj");
    if (module.empty()) module = missing_module("gate_up_proj");
    std::vector<std::string> names = aliases("gate_proj");
    const LinearSource both = binder_.stack(module, config_.experts, 2 * width, config_.hidden, names);
    if (both.empty()) return;
    moe_.expert_gate = rows_of_each(both, 0, width);
    moe_.expert_up = rows_of_each(both, width, width);
  }

  /// Rows [first, first + count) of every expert, borrowed.
  static LinearSource rows_of_each(const LinearSource& stack, int first, int count) {
    LinearSource part = stack;
    part.out = count;
    part.expert_stride = stack.rows_between_experts();
    const auto skip = [&](const void* data, std::int64_t row_bytes) -> const void* {
      return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + first * row_bytes;
    };
    part.weight = skip(stack.weight, stack.weight_row_bytes());
    part.scales = skip(stack.scales, stack.scale_row_bytes());
    part.biases = skip(stack.biases, stack.scale_row_bytes());
    return part;
  }

  Owned allocate(std::int64_t bytes) {
    Owned memory(new std::byte[static_cast<std::size_t>(bytes)]);
    layer_.owned.push_back(memory);
    return memory;
  }

  /// Columns [first, first + count) of the stored [E, in, columns] as rows: [E, count, in].
  LinearSource transposed_stack(const StackRow& row, std::string_view projection, int columns, int first,
                                int count) {
    const TensorEntry* tensor = unquantised_stack(projection);
    const std::vector<std::int64_t> shape{config_.experts, row.in, columns};
    if (tensor == nullptr || tensor->shape != shape) {
      const std::string name = fmt::format("{}experts.{}", base_, projection);
      const std::string expected =
          fmt::format("[{}, {}, {}] (transposed, as the down projection is)", shape[0], shape[1], shape[2]);
      if (tensor != nullptr) binder_.take(*tensor);
      binder_.problem(fmt::format("{}: expected {}, got {}", name, expected,
                                  tensor == nullptr ? "no such tensor" : describe(*tensor)));
      return {};
    }
    binder_.take(*tensor);
    const std::size_t size = size_of(tensor->dtype);
    LinearSource source;
    source.name = fmt::format("{}experts.{}", base_, projection);
    source.experts = config_.experts;
    source.out = count;
    source.in = row.in;
    source.dtype = tensor->dtype;
    source.weight = tensor->data;
    report_.copied_bytes += static_cast<std::uint64_t>(source.bytes());
    if (!rebuilds_) return source;
    Owned memory = allocate(source.bytes());
    std::byte* to = memory.get();
    for (std::int64_t e = 0; e < config_.experts; ++e) {
      const std::byte* expert = tensor->data + static_cast<std::size_t>(e * row.in * columns) * size;
      for (int r = 0; r < count; ++r) {
        const std::byte* column = expert + static_cast<std::size_t>(first + r) * size;
        for (int i = 0; i < row.in; ++i, to += size) {
          std::memcpy(to, column + static_cast<std::size_t>(i) * static_cast<std::size_t>(columns) * size,
                      size);
        }
      }
    }
    source.weight = memory.get();
    return source;
  }

  /// Joins the experts' own tensors to one stack, keeping their precision.
  LinearSource per_expert(const StackRow& row) {
    std::vector<LinearSource> parts;
    const std::size_t problems_free = static_cast<std::size_t>(config_.experts);
    for (int e = 0; e < config_.experts; ++e) {
      LinearSource part =
          binder_.matrix(fmt::format("{}experts.{}.{}", base_, e, row.projection), row.out, row.in);
      if (!part.empty()) parts.push_back(std::move(part));
    }
    if (parts.size() != problems_free) return {};
    LinearSource source = parts.front();
    for (const LinearSource& part : parts) {
      if (part.format == source.format && part.dtype == source.dtype && part.bits == source.bits &&
          part.group == source.group) {
        continue;
      }
      binder_.problem(fmt::format("{}: expected the precision of {}, got another", part.name, source.name));
      return {};
    }
    source.name = fmt::format("{}experts.{}", base_, row.projection);
    source.experts = config_.experts;
    report_.copied_bytes += static_cast<std::uint64_t>(source.bytes());
    if (!rebuilds_) return source;
    const auto join = [&](const void* LinearSource::*field, std::int64_t row_bytes) -> const void* {
      if (row_bytes == 0) return nullptr;
      const std::size_t bytes = static_cast<std::size_t>(row_bytes * row.out);
      Owned memory = allocate(static_cast<std::int64_t>(bytes * parts.size()));
      for (std::size_t e = 0; e < parts.size(); ++e)
        std::memcpy(memory.get() + e * bytes, parts[e].*field, bytes);
      return memory.get();
    };
    source.weight = join(&LinearSource::weight, source.weight_row_bytes());
    source.scales = join(&LinearSource::scales, source.scale_row_bytes());
    source.biases = join(&LinearSource::biases, source.scale_row_bytes());
    return source;
  }

  TensorBinder& binder_;
  std::string base_;
  const ModelConfig& config_;
  bool rebuilds_;
  HostLayer& layer_;
  HostMoe& moe_;
  LoadReport& report_;
};

}  // namespace

void bind_experts(TensorBinder& binder, const std::string& layer, const ModelConfig& config,
                  LoadOptions::Experts experts, HostLayer& layer_weights, LoadReport& report) {
  ExpertBinder(binder, layer, config, experts, layer_weights, report).bind();
}

}  // namespace mererun

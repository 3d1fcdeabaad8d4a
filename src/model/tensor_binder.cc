#include "model/tensor_binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/element.h"

namespace mererun {

namespace {

constexpr std::string_view kFloats = "BF16, F16 or F32";

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::vector<std::int64_t> with_last(std::vector<std::int64_t> leading, std::int64_t last) {
  leading.push_back(last);
  return leading;
}

bool has_leading(const TensorEntry& tensor, const std::vector<std::int64_t>& leading) {
  return tensor.shape.size() == leading.size() + 1 &&
         std::equal(leading.begin(), leading.end(), tensor.shape.begin());
}

}  // namespace

std::vector<float> widen(const TensorEntry& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element_f32(tensor.dtype, tensor.data, static_cast<std::int64_t>(i));
  return values;
}

TensorBinder::TensorBinder(std::shared_ptr<const Checkpoint> checkpoint,
                           const QuantizationConfig& quantization, Precision precision,
                           std::vector<std::string>& problems)
    : checkpoint_(std::move(checkpoint)), precision_(precision), check_(quantization), problems_(&problems) {}

bool TensorBinder::has_prefix(std::string_view prefix) const {
  const std::span<const TensorEntry> tensors = checkpoint_->tensors();
  const auto it =
      std::lower_bound(tensors.begin(), tensors.end(), prefix,
                       [](const TensorEntry& tensor, std::string_view name) { return tensor.name < name; });
  return it != tensors.end() && it->name.starts_with(prefix);
}

void TensorBinder::take(const TensorEntry& tensor) { used_.insert(&tensor); }

void TensorBinder::ignore(const std::string& module) {
  for (const char* part : {".weight", ".scales", ".biases"}) {
    if (const TensorEntry* tensor = find(module + part)) take(*tensor);
  }
}

LinearSource TensorBinder::abandoned(const std::string& module) {
  ignore(module);
  return {};
}

const TensorEntry* TensorBinder::required(const std::string& name, std::string_view expected) {
  const TensorEntry* tensor = find(name);
  if (tensor == nullptr) {
    problem(fmt::format("{}: expected {}, got no such tensor", name, expected));
  } else {
    take(*tensor);
  }
  return tensor;
}

LinearSource TensorBinder::matrix(const std::string& module, int out, int in) {
  const TensorEntry* weight = required(module + ".weight", fmt::format("[{}, {}]", out, in));
  if (weight == nullptr) return abandoned(module);
  return bind(module, *weight, {out}, in, {module});
}

LinearSource TensorBinder::stack(const std::string& module, int experts, int out, int in,
                                 std::vector<std::string> aliases) {
  const TensorEntry* weight = find(module);
  if (weight == nullptr) weight = required(module + ".weight", fmt::format("[{}, {}, {}]", experts, out, in));
  if (weight == nullptr) return abandoned(module);
  take(*weight);
  aliases.insert(aliases.begin(), module);
  return bind(module, *weight, {experts, out}, in, aliases);
}

LinearSource TensorBinder::bind(const std::string& module, const TensorEntry& weight,
                                std::vector<std::int64_t> leading, int in,
                                const std::vector<std::string>& names) {
  LinearSource source;
  source.name = module;
  source.experts = leading.size() == 2 ? static_cast<int>(leading[0]) : 1;
  source.out = static_cast<int>(leading.back());
  source.in = in;
  const TensorEntry* scales = find(module + ".scales");
  std::optional<AffineFormat> format;
  if (scales != nullptr) {
    take(*scales);
    if (!bind_affine(module, weight, *scales, leading, source)) return {};
    format = AffineFormat{source.bits, source.group};
  } else {
    const std::vector<std::int64_t> shape = with_last(leading, in);
    if (weight.dtype == DType::kU32) {
      problem(fmt::format("{}.scales: expected them beside {}, {}, got no such tensor", module,
                          weight.stored_name, describe(weight)));
      return abandoned(module);
    }
    if (weight.shape != shape || !is_float(weight.dtype)) {
      problem(fmt::format("{}: expected {} {}, got {}", weight.stored_name, shape_text(shape), kFloats,
                          describe(weight)));
      return {};
    }
    source.format = WeightFormat::kDense;
    source.dtype = weight.dtype;
  }
  source.weight = weight.data;
  if (precision_ != Precision::kShapesOnly) {
    if (auto text = check_.see(names, format)) problem(std::move(*text));
  }
  return source;
}

bool TensorBinder::bind_affine(const std::string& module, const TensorEntry& weight,
                               const TensorEntry& scales, const std::vector<std::int64_t>& leading,
                               LinearSource& source) {
  const TensorEntry* biases = required(module + ".biases", describe_type(scales.dtype, scales.shape));
  if (biases == nullptr) return false;
  const auto wrong = [&](const TensorEntry& tensor, const std::string& expected) {
    problem(fmt::format("{}: expected {}, got {}", tensor.stored_name, expected, describe(tensor)));
    return false;
  };
  const std::string rows = shape_text(with_last(leading, 0));
  const std::string open = rows.substr(0, rows.size() - 2);  // "[out, "
  if (weight.dtype != DType::kU32 || !has_leading(weight, leading)) {
    return wrong(weight, fmt::format("{}{} * bits / 32] U32", open, source.in));
  }
  if (!is_float(scales.dtype) || !has_leading(scales, leading)) {
    return wrong(scales, fmt::format("{}{} / group] {}", open, source.in, kFloats));
  }
  if (biases->dtype != scales.dtype || biases->shape != scales.shape) {
    return wrong(*biases, fmt::format("{} as its scales", describe_type(scales.dtype, scales.shape)));
  }
  const std::optional<AffineFormat> format =
      infer_affine(source.in, weight.shape.back(), scales.shape.back());
  if (!format) {
    return wrong(weight,
                 fmt::format("columns for 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128 over {} inputs "
                             "(its scales have {} columns)",
                             source.in, scales.shape.back()));
  }
  source.format = WeightFormat::kAffine;
  source.bits = format->bits;
  source.group = format->group;
  source.dtype = scales.dtype;
  source.scales = scales.data;
  source.biases = biases->data;
  return true;
}

std::vector<float> TensorBinder::vector(const std::string& name, int length,
                                        std::span<const std::vector<std::int64_t>> also) {
  const std::vector<std::int64_t> plain{length};
  std::string expected = also.empty() ? shape_text(plain) : std::string();
  for (const auto& shape : also)
    expected += fmt::format("{}{}", expected.empty() ? "" : " or ", shape_text(shape));
  const TensorEntry* tensor = required(name, expected);
  if (tensor == nullptr) return {};
  const bool fits = also.empty() ? tensor->shape == plain
                                 : std::find(also.begin(), also.end(), tensor->shape) != also.end();
  if (!fits || !is_float(tensor->dtype)) {
    problem(
        fmt::format("{}: expected {} {}, got {}", tensor->stored_name, expected, kFloats, describe(*tensor)));
    return {};
  }
  return widen(*tensor);
}

void TensorBinder::list_left_over(std::span<const std::string_view> skip_prefixes,
                                  std::string_view only_prefix, LoadReport& report) {
  for (const TensorEntry& tensor : checkpoint_->tensors()) {
    if (tensor.is_vision) {
      ++report.vision_tensors;
      continue;
    }
    const auto starts = [&](std::string_view prefix) { return tensor.name.starts_with(prefix); };
    if (used_.contains(&tensor) || !starts(only_prefix)) continue;
    if (std::any_of(skip_prefixes.begin(), skip_prefixes.end(), starts)) continue;
    problem(fmt::format("{}: expected no tensor of this name, got {}", tensor.stored_name, describe(tensor)));
  }
}

void TensorBinder::finish(LoadReport& report) {
  report.tensors += static_cast<std::int64_t>(used_.size());
  for (const TensorEntry* tensor : used_) report.mapped_bytes += tensor->bytes;
  for (const std::string& note : checkpoint_->notes()) report.notes.push_back(note);
  if (precision_ != Precision::kDefaultAndEntries) return;
  if (auto text = check_.unmatched_default()) problem(std::move(*text));
  if (auto text = check_.deviation_note()) report.notes.push_back(std::move(*text));
}

}  // namespace mererun

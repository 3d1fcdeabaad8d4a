#include "model/quantization.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/tensor_names.h"
#include "model/json_fields.h"

namespace mererun {

namespace {

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {32, 64, 128};

bool contains(std::span<const int> values, int value) {
  for (const int candidate : values) {
    if (candidate == value) return true;
  }
  return false;
}

void require_affine(const JsonFields& entry, std::string_view fallback) {
  const std::string mode = entry.text_or("mode", fallback);
  if (mode != "affine") {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: mode", entry.where()), "affine", mode);
  }
}

int read_bits(const JsonFields& entry, int fallback) {
  const int bits = entry.integer_or("bits", fallback, 1, 32);
  if (!contains(kBits, bits)) entry.fail("bits", "2, 3, 4, 5, 6 or 8");
  return bits;
}

int read_group(const JsonFields& entry, int fallback) {
  const int group = entry.integer_or("group_size", fallback, 1, 1 << 20);
  if (!contains(kGroups, group)) entry.fail("group_size", "32, 64 or 128");
  return group;
}

std::string describe(const ModuleQuantization& module) {
  return module.quantised ? to_string({module.bits, module.group}) : std::string("unquantised");
}

void read_modules(const JsonFields& dictionary, QuantizationConfig& config) {
  for (const auto& [key, value] : dictionary.json().items()) {
    ModuleQuantization module{.quantised = true, .bits = config.bits, .group = config.group, .key = key};
    if (value.is_boolean()) {
      module.quantised = value.get<bool>();
    } else if (value.is_object()) {
      const JsonFields entry(value, fmt::format("{}: {}", dictionary.where(), key));
      require_affine(entry, "affine");
      module.bits = read_bits(entry, config.bits);
      module.group = read_group(entry, config.group);
    } else {
      continue;  // group_size, bits, mode and whatever scalar a converter adds
    }
    const std::string name(canonical_name(key));
    const auto [known, inserted] = config.modules.emplace(name, module);
    if (!inserted && describe(known->second) != describe(module)) {
      fail_expected(ErrorCode::kCorruptData, fmt::format("{}: {}", dictionary.where(), key),
                    fmt::format("{} as under {}", describe(known->second), known->second.key),
                    describe(module));
    }
  }
}

}  // namespace

std::string to_string(AffineFormat format) { return fmt::format("{}-bit g{}", format.bits, format.group); }

std::optional<AffineFormat> infer_affine(int in, std::int64_t weight_columns, std::int64_t scale_columns) {
  if (in <= 0 || weight_columns <= 0 || scale_columns <= 0 || weight_columns > in) return std::nullopt;
  if (32 * weight_columns % in != 0 || in % scale_columns != 0) return std::nullopt;
  const AffineFormat format{static_cast<int>(32 * weight_columns / in), static_cast<int>(in / scale_columns)};
  if (!contains(kBits, format.bits) || !contains(kGroups, format.group)) return std::nullopt;
  return format;
}

QuantizationConfig parse_quantization(const JsonFields& top) {
  QuantizationConfig config;
  const std::optional<JsonFields> twin = top.object("quantization_config");
  if (twin && twin->has("quant_method")) {
    fail_expected(ErrorCode::kUnsupported, fmt::format("{}: quant_method", twin->where()),
                  "an unquantised or MLX affine checkpoint", twin->text_or("quant_method", ""));
  }
  const Json* found = find_quantization(top.json(), top.where());
  if (found == nullptr) return config;
  const JsonFields dictionary(*found, fmt::format("{}: quantization", top.where()));
  require_affine(dictionary, "affine");
  config.present = true;
  config.bits = read_bits(dictionary, 4);
  config.group = read_group(dictionary, 64);
  read_modules(dictionary, config);
  return config;
}

std::optional<std::string> QuantizationCheck::see(const std::vector<std::string>& modules,
                                                  std::optional<AffineFormat> found) {
  if (found) ++quantised_;
  if (!config_->present) return std::nullopt;
  for (const std::string& name : modules) {
    const auto entry = config_->modules.find(name);
    if (entry == config_->modules.end()) continue;
    const ModuleQuantization& stated = entry->second;
    const std::string shapes = found ? to_string(*found) : std::string("unquantised");
    if (describe(stated) == shapes) return std::nullopt;
    return fmt::format("{}: expected {} (config.json quantization \"{}\"), got {} by its shapes",
                       modules.front(), describe(stated), stated.key, shapes);
  }
  if (!found) return std::nullopt;
  if (*found == AffineFormat{config_->bits, config_->group}) {
    ++matched_;
  } else if (++deviating_ == 1) {
    first_deviating_ = modules.front();
    first_format_ = to_string(*found);
  }
  return std::nullopt;
}

std::optional<std::string> QuantizationCheck::unmatched_default() const {
  if (!config_->present) return std::nullopt;
  const std::string stated = to_string({config_->bits, config_->group});
  if (quantised_ == 0) {
    return fmt::format("config.json quantization: expected {} tensors, got none that is quantised", stated);
  }
  if (matched_ > 0 || deviating_ == 0) return std::nullopt;
  return fmt::format(
      "config.json quantization: expected {} (the default), got {} by the shapes of {} and no tensor "
      "that matches",
      stated, first_format_, first_deviating_);
}

std::optional<std::string> QuantizationCheck::deviation_note() const {
  if (quantised_ > 0 && !config_->present)
    return "config.json states no quantization; bits and groups follow the shapes";
  if (deviating_ == 0 || matched_ == 0) return std::nullopt;
  return fmt::format(
      "{} tensors differ from the default {} without an entry of their own ({} is {}); shapes decide",
      deviating_, to_string({config_->bits, config_->group}), first_deviating_, first_format_);
}

}  // namespace mererun

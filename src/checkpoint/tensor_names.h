#pragma once

#include <string>
#include <string_view>

namespace mererun {

/// The one name under which a text tensor or module is matched: `name` without its leading
/// `model.language_model.`, `language_model.model.`, `language_model.` or `model.`. So
/// `language_model.model.layers.0.mlp.gate.weight` and `model.layers.0.mlp.gate.weight` are both
/// `layers.0.mlp.gate.weight`, and `language_model.lm_head.weight` is `lm_head.weight`. The companion matrix
/// of a draft head, `mtp.draft_lm_head.*`, is `draft_lm_head.*`. Vision names are returned unchanged. Works
/// on module paths (keys of the `quantization` dictionary) as well. The view points into `name`. Source: the
/// spellings that the Hugging Face and MLX converters write.
std::string_view canonical_name(std::string_view name);

/// Whether a stored name belongs to the vision tower: `visual.`, `vision_tower.` or `vision_model.`, alone or
/// after one of the prefixes above.
bool is_vision_name(std::string_view name);

/// `text` in double quotes for a message: control bytes escaped, cut after 160 bytes.
std::string quote(std::string_view text);

}  // namespace mererun

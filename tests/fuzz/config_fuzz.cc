// Any bytes as a config.json: an Error, or a tree that every getter answers with a value or an Error.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config_json.h"

namespace {

using mererun::Json;

template <typename Action>
void tolerate(Action action) {
  try {
    (void)action();
  } catch (const mererun::Error&) {
  }
}

void ask_everything(const Json& object, int depth) {
  for (const auto& item : object.items()) {
    const std::string& key = item.key();
    tolerate([&] { return mererun::optional_int(object, key, -5, 1 << 20, "fuzz"); });
    tolerate([&] { return mererun::optional_number(object, key, {-1.5, 1e9}, "fuzz"); });
    tolerate([&] { return mererun::optional_bool(object, key, "fuzz"); });
    tolerate([&] { return mererun::optional_string(object, key, "fuzz"); });
    tolerate([&] { return mererun::optional_object(object, key, "fuzz"); });
    tolerate([&] { return mererun::optional_strings(object, key, "fuzz"); });
    tolerate([&] { return mererun::optional_ints(object, key, INT64_MIN, INT64_MAX, "fuzz"); });
    if (item.value().is_object() && depth < 4) ask_everything(item.value(), depth + 1);
  }
  tolerate([&] { return mererun::find_quantization(object, "fuzz"); });
  tolerate([&] { return mererun::require_int(object, "hidden_size", 1, 65536, "fuzz: text_config"); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tolerate([&] {
    const Json json = mererun::parse_json_object(text, "fuzz");
    MERERUN_CHECK(mererun::parse_json_object(json.dump(), "fuzz") == json, "a written tree reads back equal");
    ask_everything(json, 0);
    return 0;
  });
  return 0;
}

#include "tests/engine/tiny_engine.h"

#include "tests/support/models.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace fs = std::filesystem;

EngineOptions engine_options_for(const fs::path& folder, std::size_t prefix_cache_bytes) {
  EngineOptions options;
  options.model = {.model = "", .root = folder.string()};
  options.backend = parse_backend(tested_backend());
  options.process.speculation = Speculation::kOn;
  options.process.min_prompt_tokens = 0;
  options.cost = {.measured = false};
  options.threads = 1;  // the models are too small for more
  options.prefix_cache_bytes = prefix_cache_bytes;
  return options;
}

void add_tokenizer(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(bundled("demo-dense-4bit") / name, folder / name, fs::copy_options::overwrite_existing);
}

fs::path with_tokenizer(const TempFolder& temp, const fs::path& checkpoint) {
  const fs::path folder = temp / checkpoint.filename().string();
  fs::copy(checkpoint, folder, fs::copy_options::recursive);
  add_tokenizer(folder);
  return folder;
}

fs::path tiny_checkpoint_folder(const TempFolder& temp, int max_positions, bool moe) {
  TinySpec spec = moe ? tiny_moe() : tiny_dense();
  spec.max_positions = max_positions;
  const fs::path folder = write_tiny_checkpoint(temp / (moe ? "made-up-moe" : "made-up-dense"), spec);
  add_tokenizer(folder);
  return folder;
}

}  // namespace mererun::testing

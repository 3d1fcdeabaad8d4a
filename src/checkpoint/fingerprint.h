#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace mererun {

/// Identity of a checkpoint as 64 lower-case hex digits: receipts and stored snapshots are valid for it only.
///
/// SHA-256 over config.json, tokenizer.json, tokenizer_config.json, the chat template and mererun.json; then
/// for every file of the trunk and of the draft head its name, size, header and a fixed sample of its data
/// (64 windows of 4 KiB, evenly spaced, the first and last bytes among them; all of it when it is no longer
/// than that). Reads a few hundred KiB per file. Where the folder lies changes nothing.
///
/// head   the opened draft head, or null when there is none or it is in the trunk's own files
///
/// Errors: kIo.
std::string fingerprint(const Checkpoint& trunk, const Checkpoint* head);

}  // namespace mererun

#pragma once

#include <string>
#include <string_view>

namespace mererun {

/// Turns a vocabulary key of a byte-level BPE file back into the bytes that it stands for and appends them to
/// `out`. The alphabet gives every byte one printable character: bytes 33-126, 161-172 and 174-255 the code
/// point of the same number, the other 68 in ascending order U+0100..U+0143 (so space is U+0120).
///
/// Returns false, leaving `out` as it was, when a character is outside the alphabet or the key is not UTF-8.
///
/// Source: bytes_to_unicode of the GPT-2 reference tokenizer.
bool append_key_bytes(std::string_view key, std::string& out);

}  // namespace mererun

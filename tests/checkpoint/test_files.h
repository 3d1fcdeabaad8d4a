#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

/// A safetensors image: the length of `header`, `header`, `data`.
std::string safetensors_image(std::string_view header, std::string_view data);
/// The same with any stated header length.
std::string safetensors_image(std::uint64_t stated_length, std::string_view header, std::string_view data);

/// A header for one-dimensional tensors laid end to end, and zero data for them.
std::string image_of_u8_tensors(const std::vector<std::string>& names, std::size_t bytes_each = 4);

/// Runs `action`, which must throw Error, and returns it; throws another exception otherwise.
Error error_of(const std::function<void()>& action);

}  // namespace mererun::testing

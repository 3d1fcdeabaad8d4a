#pragma once

#include <filesystem>
#include <string>

#include "tests/cuda/report.h"

namespace mererun::cuda_check {

/// Logits of one checkpoint on the CPU and on the GPU: prefill, decode, every verify width, every accepted
/// prefix, the draft head.
void check_model_bits(Report& report, const std::string& name, const std::filesystem::path& folder,
                      int prompt_tokens, int decode_tokens);

/// Linears, experts and delta steps of the true 27B and 35B shapes against the CPU backend.
void check_true_shapes(Report& report);

/// Read bandwidth, then linears at several widths.
void bench_linears(Report& report);

/// Decode and verification of a model of true size with random weights ("27b", "35b").
void bench_model(Report& report, const std::string& size);

}  // namespace mererun::cuda_check

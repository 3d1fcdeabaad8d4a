#pragma once

#include <filesystem>
#include <string>

#include "tests/cuda/report.h"

namespace mererun::cuda_check {

/// Logits of one checkpoint on the CPU and on the GPU: prefill, decode, every verify width, every accepted
/// prefix, the draft head.
void check_model_bits(Report& report, const std::string& name, const std::filesystem::path& folder,
                      int prompt_tokens, int decode_tokens);

/// Greedy generations that draft with the model's own head: the ids of the CPU, with graphs and without, and
/// the same ids a hundred times.
void check_generation(Report& report, const std::string& name, const std::filesystem::path& folder);

/// Linears and experts of the true 27B, 35B and Flash-Next shapes against the CPU backend.
void check_true_shapes(Report& report);

/// Read bandwidth, then linears at several widths.
void bench_linears(Report& report);

/// Decode, verification, prefill and drafting of a model of true size with random weights ("27b", "35b").
void bench_model(Report& report, const std::string& size);
/// Decode and verification behind 65,536 positions.
void bench_long_context(Report& report, const std::string& size);

}  // namespace mererun::cuda_check

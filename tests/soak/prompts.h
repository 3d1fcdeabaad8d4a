#pragma once

#include <string>
#include <vector>

#include "engine/request.h"

namespace mererun::testing {

struct SoakPrompt {
  std::string kind;  // code, math, prose, retrieval, tools
  ChatPrompt chat;
};

/// `count` different conversations of the five kinds in turn, the same ones every time.
std::vector<SoakPrompt> soak_prompts(int count);

}  // namespace mererun::testing

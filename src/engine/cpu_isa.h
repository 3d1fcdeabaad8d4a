#pragma once

// The CPU's instruction sets by name, for the front ends: they see the engine's folder and base only.
#include "kernels/cpu/cpu_isa.h"

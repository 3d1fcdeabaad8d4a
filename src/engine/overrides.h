#pragma once

// The program's variables, for the front ends: they see the engine's folder and base only.
#include "decode/overrides.h"

// Shadows the toolkit's header: sources of runtime/cuda compiled with this folder first run on the
// CPU.
#pragma once

#include "device_emulation.h"
#include "host_emulation.h"

// A trace of PyTorch's profiler (Kineto's JSON) is read as a stream of events: times of steps,
// kernels and collectives, and the gaps between kernels. Internal to interop/logs.
#pragma once

#include <string>

#include "interop/logs/block_buffer.h"
#include "interop/logs/training_log.h"

namespace plimsoll {

/// Reads a trace that begins with `begin`. Throws InputError, with the line, where it is no JSON,
/// and where it has neither a step nor a kernel.
TrainingLog read_profiler_trace(BlockSource source, std::string begin, const std::string& file);

}  // namespace plimsoll

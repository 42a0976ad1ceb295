// The CPU backend: one core per rank, oneDNN where it has the op, own loops for what it lacks.
// All tensors are dense, of f32, bf16 or f16, token ids i32. Whatever the type, arithmetic is f32
// and each result is rounded once. bf16 products are oneDNN's where it has them (AVX-512); f16
// products are f32 products of converted panels, for which no speed is claimed.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/backend.h"

namespace plimsoll {

/// prepare() throws EnvironmentError, naming the op and the bytes, when oneDNN's scratch memory
/// does not fit in RankContext::workspace; supports() knows no workspace and cannot foresee that.
std::unique_ptr<Backend> make_cpu_backend();

/// The oneDNN library that runs, e.g. "oneDNN 2.6.3".
std::string onednn_version();

/// The implementation with which oneDNN runs a legal matmul, e.g. "brg:avx512_core"; "gemm:jit"
/// allocates large temporaries of its own inside execution and "ref:any" is slow; "none": nothing,
/// on this processor.
std::string cpu_matmul_implementation(const Op& op, std::span<const Tensor> tensors);
/// Scratch memory the matmul takes from the workspace.
Bytes cpu_matmul_workspace(const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll

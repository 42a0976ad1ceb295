// The CPU backend has one core per rank. It uses oneDNN where it has the op, and own loops
// elsewhere. All tensors are dense, in f32, bf16 or f16, and token ids are i32. Arithmetic is f32
// for all types, and each result is rounded once. Products of bf16 are oneDNN's where it has them
// (AVX-512). Products of f16 are f32 products of converted panels, for which no speed is claimed.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/backend.h"

namespace plimsoll {

/// prepare() of this backend throws EnvironmentError, naming the op and the bytes, when oneDNN's
/// scratch memory does not fit in RankContext::workspace. supports() does not know the workspace
/// and cannot foresee this.
std::unique_ptr<Backend> make_cpu_backend();

/// Returns the oneDNN library that runs, e.g. "oneDNN 2.6.3".
std::string onednn_version();

/// Returns the implementation with which oneDNN runs a legal matmul, e.g. "brg:avx512_core".
/// "gemm:jit" allocates large temporaries during execution, "ref:any" is slow, and "none" means
/// that this processor has none.
std::string cpu_matmul_implementation(const Op& op, std::span<const Tensor> tensors);
/// Returns the scratch memory that the matmul takes from the workspace.
Bytes cpu_matmul_workspace(const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll

// These are matrix products of a warp on tensor cores, and the loads for them. They are
// instructions of PTX (PTX ISA 8.0, sections "mma", "ldmatrix" and "cp.async") that C++ does not
// name. tests/cuda_on_cpu has a header of the same name.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace plimsoll {

/// d [16,8] += a [16,16] b [16,8], products of bf16 or f16 summed in f32. With g = lane / 4 and
/// t = lane % 4, two values per register, the first one in the lower half:
///
/// - a: rows g, g + 8, g, g + 8; columns 2t, 2t + 1, of the last two registers 8 more
/// - b: rows 2t, 2t + 1, of the second register 8 more; column g
/// - d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&d)[4],
                                                            const std::uint32_t (&a)[4],
                                                            std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&d)[4], const std::uint32_t (&a)[4],
                                                     std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Loads four matrices of 8 rows of 16 bytes from shared memory. Lane l gives row l % 8 of matrix l
/// / 8. From each matrix it gets two values: row lane / 4, columns 2 (lane % 4) and the next.
__device__ __forceinline__ void load_matrices(std::uint32_t (&values)[4], const void* row) {
  const auto address = std::uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}
/// Loads the transposed matrices.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&values)[4],
                                                         const void* row) {
  const auto address = std::uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}

/// Starts to copy 16 bytes from global to shared memory, both aligned; it writes zeros where not
/// `valid`. The bytes are there after a commit, the wait for it, and a barrier for other threads'
/// copies.
__device__ __forceinline__ void start_copy(void* shared, const void* global, bool valid) {
  const auto address = std::uint32_t(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
/// Waits for all copies that this thread has committed.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}

/// Returns 2^x to about 2^-22, and 0 for minus infinity.
__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Packs two values, rounded to nearest, into one register of multiply_add.
template <class T>
__device__ __forceinline__ std::uint32_t pack_two(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack_two<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}
template <>
__device__ __forceinline__ std::uint32_t pack_two<__half>(float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}

}  // namespace plimsoll

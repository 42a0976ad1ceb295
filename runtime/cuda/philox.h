// This is the generator of models/job/philox.h on the device, which gives the same words.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace plimsoll {

struct PhiloxWords {
  std::uint32_t words[4];
};

__device__ __forceinline__ PhiloxWords device_philox(std::uint32_t c0, std::uint32_t c1,
                                                     std::uint32_t c2, std::uint32_t c3,
                                                     std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(kMultiply0, c0), low0 = kMultiply0 * c0;
    const std::uint32_t high1 = __umulhi(kMultiply1, c2), low1 = kMultiply1 * c2;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

/// Returns the key of everything that one op draws in one step: FNV-1a over the three numbers.
__device__ __forceinline__ std::uint64_t device_philox_key(std::int64_t seed, std::int64_t step,
                                                           std::int64_t site) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const std::int64_t numbers[3] = {seed, step, site};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    for (int shift = 0; shift < 64; shift += 8)
      hash = (hash ^ std::uint8_t(std::uint64_t(numbers[i]) >> shift)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace plimsoll

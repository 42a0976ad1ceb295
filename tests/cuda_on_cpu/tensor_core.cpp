// Products of a warp on tensor cores. They are most of the emulation's arithmetic, so they are
// compiled once, and nobody looks for races in them: each lane works on registers.
#include "runtime/cuda/tensor_core.h"

namespace plimsoll {
namespace {

constexpr int kDepth = 16;  ///< columns of a, rows of b

/// A lane hands over its parts of a and b, two values per register.
struct Fragments {
  std::array<std::uint32_t, 4> a;
  std::array<std::uint32_t, 2> b;
};

float value_of(__nv_bfloat16 value) { return __bfloat162float(value); }
float value_of(__half value) { return __half2float(value); }

using Values = std::array<float, kDepth>;

/// Returns a row of a or a column of b. Four lanes, of which `first` is the first, hold two values
/// each: of the first eight in `registers[0]`, of the last eight in `registers[1]`.
template <class T, std::size_t kSize>
Values values_of(const std::byte* all, int first, std::array<std::uint32_t, kSize> Fragments::*part,
                 std::array<std::size_t, 2> registers) {
  Values values;
  for (int holder = 0; holder < 4; ++holder) {
    const auto lane = cuda_on_cpu::lane_value<Fragments>(all, unsigned(first + holder));
    for (std::size_t half = 0; half < 2; ++half) {
      const std::uint32_t two = (lane.*part)[registers[half]];
      float* const at = values.data() + 8 * half + 2 * std::size_t(holder);
      at[0] = value_of(T{std::uint16_t(two)});
      at[1] = value_of(T{std::uint16_t(two >> 16)});
    }
  }
  return values;
}

}  // namespace

template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const Fragments mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const std::byte* all = cuda_on_cpu::meet_warp(0xffffffffu, &mine, sizeof(mine));
  const int g = int(cuda_on_cpu::lane()) / 4, t = int(cuda_on_cpu::lane()) % 4;
  const Values rows[] = {values_of<T>(all, 4 * g, &Fragments::a, {0, 2}),
                         values_of<T>(all, 4 * g, &Fragments::a, {1, 3})};
  const Values columns[] = {values_of<T>(all, 4 * (2 * t), &Fragments::b, {0, 1}),
                            values_of<T>(all, 4 * (2 * t + 1), &Fragments::b, {0, 1})};
  for (std::size_t i = 0; i < 4; ++i) {
    float sum = d[i];
    for (std::size_t k = 0; k < kDepth; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    d[i] = sum;
  }
}

template void multiply_add<__nv_bfloat16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t,
                                          std::uint32_t);
template void multiply_add<__half>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t,
                                   std::uint32_t);

}  // namespace plimsoll

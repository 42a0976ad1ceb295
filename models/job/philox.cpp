// The rounds of Philox 4x32-10 are computed here.
#include "models/job/philox.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr std::uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

using Counter = std::array<std::uint32_t, 4>;

inline void rounds(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3,
                   std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiply0} * c0;
    const std::uint64_t product1 = std::uint64_t{kMultiply1} * c2;
    c0 = std::uint32_t(product1 >> 32) ^ c1 ^ key0;
    c1 = std::uint32_t(product1);
    c2 = std::uint32_t(product0 >> 32) ^ c3 ^ key1;
    c3 = std::uint32_t(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

Counter counter_of(std::uint64_t block, std::int64_t layer) {
  return {std::uint32_t(block), std::uint32_t(block >> 32), std::uint32_t(layer), 0};
}

}  // namespace

std::array<std::uint32_t, 4> philox(Counter counter, PhiloxKey key) {
  rounds(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return counter;
}

// FNV-1a over the three numbers.
PhiloxKey philox_key(std::int64_t seed, std::int64_t step, std::int64_t site) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::int64_t number : {seed, step, site}) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ std::uint8_t(std::uint64_t(number) >> shift)) * 0x100000001b3;
    }
  }
  return {std::uint32_t(hash), std::uint32_t(hash >> 32)};
}

std::int64_t philox_site(std::string_view parameter) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : parameter) hash = (hash ^ std::uint8_t(letter)) * 0x100000001b3;
  return std::int64_t(hash);
}

void philox_words(PhiloxKey key, std::int64_t layer, std::int64_t first, std::int64_t count,
                  std::uint32_t* words) {
  const std::int64_t end = first + count;
  std::int64_t at = first;
  while (at < end) {
    const Counter four = philox(counter_of(std::uint64_t(at) / 4, layer), key);
    const std::int64_t stop = std::min(end, at / 4 * 4 + 4);
    for (; at < stop; ++at) *words++ = four[std::size_t(at % 4)];
  }
}

}  // namespace plimsoll

// The values of a token from two operands are put side by side, or taken apart again; a rank keeps
// its rows of a tensor that every rank of its group holds whole.
#include <cstring>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"

namespace plimsoll {

namespace {

/// Bytes of one token in each part; b has a row for each token.
struct TokenParts {
  std::int64_t tokens, a, b;
  TokenParts(const Tensor& first, const Tensor& second)
      : tokens(second.shape[0]),
        a(bytes_of(first).count() / tokens),
        b(bytes_of(second).count() / tokens) {}
};

}  // namespace

KernelPointer prepare_join_tokens(const KernelRequest& request) {
  const TokenParts s(request.input(0), request.input(1));
  return make_kernel([s](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      std::byte* to = out[0] + i * (s.a + s.b);
      std::memcpy(to, in[0] + i * s.a, std::size_t(s.a));
      std::memcpy(to + s.a, in[1] + i * s.b, std::size_t(s.b));
    }
  });
}

KernelPointer prepare_part_tokens(const KernelRequest& request) {
  const TokenParts s(request.output(0), request.output(1));
  return make_kernel([s](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      const std::byte* from = in[0] + i * (s.a + s.b);
      std::memcpy(out[0] + i * s.a, from, std::size_t(s.a));
      std::memcpy(out[1] + i * s.b, from + s.a, std::size_t(s.b));
    }
  });
}

KernelPointer prepare_own_part(const KernelRequest& request) {
  const Tensor& part = request.output(0);
  const auto bytes = std::size_t(bytes_of(part).count());
  const std::size_t begin = bytes * std::size_t(part_index(*part.split, request.context.at));
  return make_kernel([bytes, begin](Addresses in, Addresses out, const RunPosition&) {
    std::memcpy(out[0], in[0] + begin, bytes);
  });
}

}  // namespace plimsoll

// Tokens and targets from the bytes of the training text: one byte, one token.
#include <algorithm>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/example_reader.h"
#include "runtime/sequence_reader.h"

namespace plimsoll {

namespace {

/// Each position gets `depths` tokens, of which the first is `ahead` of it. The text's last token
/// stands for those behind its end, which only MTP modules reach.
KernelPointer prepare_load(const KernelRequest& request, std::int64_t ahead, std::int64_t depths) {
  const BatchPlace place(request.context);
  const TokenParts parts = token_parts(request.params<DataParams>(), place.micro_batch);
  INVARIANT(parts.tokens() * depths == request.output_elements(0),
            "tokens are not a part of a micro-batch of sequences");
  const SequencePart own = own_tokens(request.context, parts.sequence);
  const SequenceReader reader(request.context.text, parts.sequence * own.ranks);
  ExampleReader examples(request.context);
  return make_kernel([=](Addresses, Addresses out, const RunPosition& position) mutable {
    examples.read(position);
    auto* tokens = reinterpret_cast<std::int32_t*>(out[0]);
    const std::int64_t first = place.first_sequence(position.micro_batch);
    for (std::int64_t i = 0; i < parts.tokens(); ++i) {
      const std::int64_t token = parts.token(position.part, i);
      const std::int64_t sequence = first + token / parts.sequence;
      const std::byte* from = reader.sequence(position.step, sequence);
      const std::int64_t last = reader.last(position.step, sequence);
      const std::int64_t begin =
          examples.position(own, token / parts.sequence, token % parts.sequence) + ahead;
      for (std::int64_t d = 0; d < depths; ++d)
        *tokens++ = std::to_integer<std::int32_t>(from[std::min(begin + d, last)]);
    }
  });
}

}  // namespace

KernelPointer prepare_load_tokens(const KernelRequest& request) {
  return prepare_load(request, 0, 1);
}

KernelPointer prepare_load_targets(const KernelRequest& request) {
  const auto& params = request.params<DataParams>();
  return prepare_load(request, params.ahead, params.depths);
}

}  // namespace plimsoll

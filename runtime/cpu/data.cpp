// Tokens and targets from the bytes of the training text: one byte, one token.
#include <algorithm>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/sequence_reader.h"

namespace plimsoll {

namespace {

/// Each position gets `depths` tokens, of which the first is `ahead` of it. The text's last token
/// stands for those behind its end, which only MTP modules reach.
KernelPointer prepare_load(const KernelRequest& request, std::int64_t ahead, std::int64_t depths) {
  const BatchPlace place(request.context);
  const std::int64_t sequence = request.params<DataParams>().sequence;
  INVARIANT(place.micro_batch * sequence * depths == request.output_elements(0),
            "tokens are not a micro-batch of sequences");
  const SequencePart part = own_tokens(request.context, sequence);
  const SequenceReader reader(request.context.text, sequence * part.ranks);
  return make_kernel([=](Addresses, Addresses out, const RunPosition& position) {
    auto* tokens = reinterpret_cast<std::int32_t*>(out[0]);
    const std::int64_t first = place.first_sequence(position.micro_batch);
    for (std::int64_t i = 0; i < place.micro_batch; ++i) {
      const std::byte* from = reader.sequence(position.step, first + i);
      const std::int64_t last = reader.last(position.step, first + i);
      for (std::int64_t j = 0; j < part.tokens; ++j) {
        for (std::int64_t d = 0; d < depths; ++d) {
          const std::int64_t at = std::min(part.position(j) + ahead + d, last);
          *tokens++ = std::to_integer<std::int32_t>(from[at]);
        }
      }
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

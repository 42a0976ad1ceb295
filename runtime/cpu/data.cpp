// Tokens and targets from the bytes of the training text: one byte, one token.
#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/sequence_reader.h"

namespace plimsoll {

namespace {

KernelPointer prepare_load(const KernelRequest& request, std::int64_t shift) {
  const BatchPlace place(request.context);
  const std::int64_t sequence = request.params<DataParams>().sequence;
  INVARIANT(place.micro_batch * sequence == request.output_elements(0),
            "tokens are not a micro-batch of sequences");
  const SequencePart part = own_tokens(request.context, sequence);
  const SequenceReader reader(request.context.text, sequence * part.ranks);
  return make_kernel(
      [place, reader, part, shift](Addresses, Addresses out, const RunPosition& position) {
        auto* tokens = reinterpret_cast<std::int32_t*>(out[0]);
        const std::int64_t first = place.first_sequence(position.micro_batch);
        for (std::int64_t i = 0; i < place.micro_batch; ++i) {
          const std::byte* from = reader.sequence(position.step, first + i) + shift;
          for (std::int64_t j = 0; j < part.tokens; ++j)
            *tokens++ = std::to_integer<std::int32_t>(from[part.position(j)]);
        }
      });
}

}  // namespace

KernelPointer prepare_load_tokens(const KernelRequest& request) { return prepare_load(request, 0); }

KernelPointer prepare_load_targets(const KernelRequest& request) {
  return prepare_load(request, 1);
}

}  // namespace plimsoll

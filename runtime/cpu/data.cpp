// Tokens and targets from the bytes of the training text: one byte, one token.
#include <fmt/format.h>

#include "runtime/cpu/kernels.h"

namespace plimsoll {

namespace {

/// Which sequences of the global batch a rank reads in a micro-batch.
struct DataPlace {
  std::int64_t batch_index;    ///< of the rank among those that share the global batch
  std::int64_t micro_batch;    ///< sequences per micro-batch
  std::int64_t micro_batches;  ///< per step and rank
  std::int64_t sequence;

  std::int64_t first_sequence(std::int64_t micro_batch_index) const {
    return (batch_index * micro_batches + micro_batch_index) * micro_batch;
  }
};

DataPlace data_place(const KernelRequest& request) {
  const RankContext& context = request.context;
  INVARIANT(context.program != nullptr, "data ops need a program");
  const Program& program = *context.program;
  DataPlace place{};
  place.batch_index = context.at[std::size_t(Axis::dp)] * program.grid[Axis::sharding] +
                      context.at[std::size_t(Axis::sharding)];
  place.micro_batch = program.micro_batch;
  place.micro_batches = program.micro_batches;
  place.sequence = request.params<DataParams>().sequence;
  INVARIANT(place.micro_batch * place.sequence == request.output_elements(0),
            "tokens are not a micro-batch of sequences");
  return place;
}

}  // namespace

KernelPointer prepare_load(const KernelRequest& request) {
  const DataPlace place = data_place(request);
  const TrainingText text = request.context.text;
  const std::int64_t starts = std::int64_t(text.bytes.size()) - place.sequence - 1;
  if (starts <= 0) {
    throw InputError("training text", "",
                     fmt::format("found {} bytes; a sequence of {} needs at least {}",
                                 text.bytes.size(), place.sequence, place.sequence + 2));
  }
  const std::int64_t shift = request.op.kind == OpKind::load_targets ? 1 : 0;
  return make_kernel(
      [place, text, starts, shift](Addresses, Addresses out, const RunPosition& position) {
        auto* tokens = reinterpret_cast<std::int32_t*>(out[0]);
        const std::int64_t first = place.first_sequence(position.micro_batch);
        for (std::int64_t i = 0; i < place.micro_batch; ++i) {
          const std::int64_t index = position.step * text.global_batch + first + i;
          const std::byte* from = text.bytes.data() + (index * place.sequence) % starts + shift;
          for (std::int64_t j = 0; j < place.sequence; ++j)
            *tokens++ = std::to_integer<std::int32_t>(from[j]);
        }
      });
}

}  // namespace plimsoll

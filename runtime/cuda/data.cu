// Tokens and targets from the bytes of the training text, and the masked language model (Devlin et
// al. 2019, arXiv 1810.04805, appendix A.1): the same ids as runtime/cpu/masked_tokens.cpp makes.
#include <memory>

#include "runtime/batch_place.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/philox.h"
#include "runtime/cuda/storage.h"
#include "runtime/sequence_reader.h"

namespace plimsoll {

namespace {

/// Where this rank's sequences lie, for kernels that know the step and the micro-batch.
struct TextPlace {
  struct Text {
    const std::uint8_t* bytes;
    std::int64_t size, starts;
  };
  Text trained, held_out;
  std::int64_t global_batch, sequence;
  BatchPlace batch;

  __device__ std::int64_t first(const RunPosition& position) const {
    return batch.first_sequence(position.micro_batch);
  }
  __device__ const Text& text_of(std::int64_t step) const { return step < 0 ? held_out : trained; }
  __device__ std::int64_t start(std::int64_t step, std::int64_t index) const {
    const std::int64_t read = step < 0 ? -1 - step : step;
    return (read * global_batch + index) * sequence % text_of(step).starts;
  }
  /// The text's last byte, counted from the start of a sequence.
  __device__ std::int64_t last(std::int64_t step, std::int64_t index) const {
    return text_of(step).size - 1 - start(step, index);
  }
  __device__ const std::uint8_t* at(std::int64_t step, std::int64_t index) const {
    return text_of(step).bytes + start(step, index);
  }
};

__global__ void load_text(TextPlace place, TokenParts parts, SequencePart own,
                          ExampleTable examples, const RunPosition* position, std::int64_t ahead,
                          std::int64_t depths, std::int32_t* ids) {
  for (std::int64_t i = global_thread(); i < parts.tokens() * depths; i += global_threads()) {
    const std::int64_t token = parts.token(position->part, i / depths);
    const std::int64_t sequence = place.first(*position) + token / parts.sequence;
    const std::int64_t last = place.last(position->step, sequence);
    const std::int64_t at =
        examples.position(own, token / parts.sequence, token % parts.sequence) + ahead + i % depths;
    ids[i] = std::int32_t(place.at(position->step, sequence)[at < last ? at : last]);
  }
}

enum class Masked { tokens, positions, targets };

struct MaskedParams {
  std::int64_t predicted, vocabulary, seed;
};

__device__ __forceinline__ std::int64_t below(std::uint32_t word, std::int64_t limit) {
  return std::int64_t((std::uint64_t{word} * std::uint64_t(limit)) >> 32);
}

/// A block per sequence. One thread chooses: selection sampling (Knuth, The Art of Computer
/// Programming 3.4.2, algorithm S) goes from position to position.
__global__ void load_masked(TextPlace place, MaskedParams params, const RunPosition* position,
                            Masked what, std::int32_t* ids) {
  constexpr std::int64_t kSite = -1;  // no op of a Graph has it
  constexpr std::uint32_t kMasked = 3435973836u, kReplaced = 3865470566u;  // of 2^32: 0.8, 0.9
  const std::int64_t i = blockIdx.x, sequence = place.first(*position) + i;
  const std::uint8_t* text = place.at(position->step, sequence);
  std::int32_t* values = ids + i * (what == Masked::tokens ? place.sequence : params.predicted);
  if (what == Masked::tokens) {
    for (std::int64_t j = threadIdx.x; j < place.sequence; j += blockDim.x)
      values[j] = std::int32_t(text[j]);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const std::uint64_t key = device_philox_key(params.seed, position->step, kSite);
  std::int64_t missing = params.predicted;
  for (std::int64_t at = 0; at < place.sequence && missing > 0; ++at) {
    const auto index = std::uint64_t(sequence * place.sequence + at);
    const PhiloxWords drawn = device_philox(std::uint32_t(index), std::uint32_t(index >> 32), 0, 0,
                                            std::uint32_t(key), std::uint32_t(key >> 32));
    if (below(drawn.words[0], place.sequence - at) >= missing) continue;
    --missing;
    if (what == Masked::tokens) {
      if (drawn.words[1] < kMasked) {
        values[at] = std::int32_t(params.vocabulary - 1);
      } else if (drawn.words[1] < kReplaced) {
        values[at] = std::int32_t(below(drawn.words[2], params.vocabulary));
      }
    } else {
      *values++ =
          what == Masked::targets ? std::int32_t(text[at]) : std::int32_t(i * place.sequence + at);
    }
  }
}

/// The texts in device memory, and where the rank reads them.
struct DeviceText {
  DeviceMemory trained, held_out;
  TextPlace place;

  DeviceText(const CudaRequest& request, std::int64_t sequence)
      : DeviceText(request.context, SequenceReader(request.context.text, sequence), sequence) {}

 private:
  DeviceText(const RankContext& context, const SequenceReader& reader, std::int64_t sequence)
      : trained(upload(context.text.bytes)),
        held_out(upload(context.text.held_out)),
        place{{trained.as<const std::uint8_t>(), std::int64_t(context.text.bytes.size()),
               reader.starts()},
              {held_out.as<const std::uint8_t>(), std::int64_t(context.text.held_out.size()),
               reader.held_out_starts()},
              context.text.global_batch,
              sequence,
              BatchPlace(context)} {}
};

CudaKernelPointer prepare_load(const CudaRequest& request, std::int64_t ahead,
                               std::int64_t depths) {
  const CudaDevice& device = request.device;
  const auto& params = request.params<DataParams>();
  const SequencePart own = own_tokens(request.context, params.sequence);
  const auto text = std::make_shared<const DeviceText>(request, own.tokens * own.ranks);
  const TokenParts parts = token_parts(params, text->place.batch.micro_batch);
  const std::int64_t count = parts.tokens() * depths;
  INVARIANT(count == request.output_elements(0),
            "tokens are not a part of a micro-batch of sequences");
  return make_cuda_kernel([=, &device](DeviceAddresses, DeviceAddresses out) {
    launch(device.stream, blocks_for(device, count), kThreads, 0, load_text, text->place, parts,
           own, device.examples, device.position, ahead, depths, output_at<std::int32_t>(out, 0));
  });
}

}  // namespace

CudaKernelPointer prepare_load_tokens(const CudaRequest& request) {
  return prepare_load(request, 0, 1);
}

CudaKernelPointer prepare_load_targets(const CudaRequest& request) {
  const auto& params = request.params<DataParams>();
  return prepare_load(request, params.ahead, params.depths);
}

namespace {

CudaKernelPointer prepare_masked(const CudaRequest& request, Masked what) {
  const CudaDevice& device = request.device;
  const auto& data = request.params<DataParams>();
  const MaskedParams params{data.predicted, data.vocabulary, data.seed};
  const auto text = std::make_shared<const DeviceText>(request, data.sequence);
  return make_cuda_kernel([=, &device](DeviceAddresses, DeviceAddresses out) {
    launch(device.stream, unsigned(text->place.batch.micro_batch), kThreads, 0, load_masked,
           text->place, params, device.position, what, output_at<std::int32_t>(out, 0));
  });
}

}  // namespace

CudaKernelPointer prepare_load_masked_tokens(const CudaRequest& request) {
  return prepare_masked(request, Masked::tokens);
}

CudaKernelPointer prepare_load_masked_positions(const CudaRequest& request) {
  return prepare_masked(request, Masked::positions);
}

CudaKernelPointer prepare_load_masked_targets(const CudaRequest& request) {
  return prepare_masked(request, Masked::targets);
}

}  // namespace plimsoll

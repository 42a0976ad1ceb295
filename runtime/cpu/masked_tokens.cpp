// The masked language model chooses the positions of a sequence that are predicted, and the ids
// that stand there instead (Devlin et al. 2019, arXiv 1810.04805, appendix A.1). Of the predicted
// positions 80 % become the mask token, 10 % a random one, and 10 % stay. Philox draws them from
// seed, step, sequence and position.
#include <cstring>

#include "models/job/philox.h"
#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/sequence_reader.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kSite = -1;  // no op of a Graph has it
constexpr auto kMasked = std::uint32_t(0.8 * 0x1p32), kReplaced = std::uint32_t(0.9 * 0x1p32);

std::int64_t below(std::uint32_t word, std::int64_t limit) {
  return std::int64_t((std::uint64_t{word} * std::uint64_t(limit)) >> 32);
}

/// Calls visit(position, words) for each predicted position of a sequence, in ascending order.
/// Selection sampling (Knuth, The Art of Computer Programming 3.4.2, algorithm S) gives exactly
/// `predicted` positions.
template <class Visit>
void for_each_predicted(const DataParams& params, PhiloxKey key, std::int64_t sequence,
                        Visit visit) {
  std::int64_t missing = params.predicted;
  for (std::int64_t position = 0; position < params.sequence && missing > 0; ++position) {
    const std::int64_t index = sequence * params.sequence + position;
    const auto words =
        philox({std::uint32_t(index), std::uint32_t(std::uint64_t(index) >> 32), 0, 0}, key);
    if (below(words[0], params.sequence - position) >= missing) continue;
    --missing;
    visit(position, words);
  }
}

KernelPointer prepare_load_masked(const KernelRequest& request) {
  const BatchPlace place(request.context);
  const DataParams params = request.params<DataParams>();
  const OpKind kind = request.op.kind;
  const SequenceReader reader(request.context.text, params.sequence);
  return make_kernel([=](Addresses, Addresses out, const RunPosition& position) {
    auto* values = reinterpret_cast<std::int32_t*>(out[0]);
    const PhiloxKey key = philox_key(params.seed, position.step, kSite);
    const std::int64_t first = place.first_sequence(position.micro_batch);
    for (std::int64_t i = 0; i < place.micro_batch; ++i) {
      const std::byte* text = reader.sequence(position.step, first + i);
      const auto token = [&](std::int64_t at) { return std::to_integer<std::int32_t>(text[at]); };
      if (kind == OpKind::load_masked_tokens) {
        for (std::int64_t j = 0; j < params.sequence; ++j) values[j] = token(j);
        for_each_predicted(params, key, first + i, [&](std::int64_t at, const auto& words) {
          if (words[1] < kMasked) {
            values[at] = std::int32_t(params.vocabulary - 1);
          } else if (words[1] < kReplaced) {
            values[at] = std::int32_t(below(words[2], params.vocabulary));
          }
        });
        values += params.sequence;
        continue;
      }
      for_each_predicted(params, key, first + i, [&](std::int64_t at, const auto&) {
        *values++ = kind == OpKind::load_masked_targets ? token(at)
                                                        : std::int32_t(i * params.sequence + at);
      });
    }
  });
}

}  // namespace

KernelPointer prepare_load_masked_tokens(const KernelRequest& request) {
  return prepare_load_masked(request);
}

KernelPointer prepare_load_masked_positions(const KernelRequest& request) {
  return prepare_load_masked(request);
}

KernelPointer prepare_load_masked_targets(const KernelRequest& request) {
  return prepare_load_masked(request);
}

KernelPointer prepare_gather_rows(const KernelRequest& request) {
  const std::int64_t rows = request.output(0).shape[0];
  const auto bytes = request.output(0).shape[1] * element_bytes(request.output(0).dtype);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(out[0] + row * bytes, in[0] + ids(in, 1)[row] * bytes, std::size_t(bytes));
    }
  });
}

// Positions differ, so nothing is added up.
KernelPointer prepare_gather_rows_backward(const KernelRequest& request) {
  const std::int64_t rows = request.input(0).shape[0];
  const auto bytes = request.input(0).shape[1] * element_bytes(request.input(0).dtype);
  const Bytes all = bytes_of(request.output(0));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    std::memset(out[0], 0, std::size_t(all.count()));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(out[0] + ids(in, 1)[row] * bytes, in[0] + row * bytes, std::size_t(bytes));
    }
  });
}

}  // namespace plimsoll

#include "calibrate/comm_operands.h"

#include <algorithm>

#include "graph/tensor.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostSets = 64;

/// The op that produces an operand touches more than that: a linear layer reads an input of up to
/// four times its output (ffn_hidden = 4 x hidden), and a weight matrix of a few MiB. So most of
/// the operand has left the core's own cache when the communication begins.
constexpr std::int64_t kInputsPerOutput = 4;
constexpr Bytes kWeights{std::int64_t{2} << 20};

/// Small integers, so that sums of thousands are exact: of a member, plus that of the element.
constexpr std::int64_t kMembers = 16, kElements = 8;
std::int64_t of_member(std::int64_t index) { return index % kMembers + 1; }

float* floats(const Pool& pool) { return reinterpret_cast<float*>(pool.memory().data()); }
std::int64_t count(Bytes bytes) { return bytes.count() / std::int64_t(sizeof(float)); }

/// Element i is base + times * (i % kElements).
bool holds(std::span<const float> operand, std::int64_t begin, std::int64_t end, std::int64_t base,
           std::int64_t times) {
  float expected[kElements];
  for (std::int64_t i = 0; i < kElements; ++i) expected[i] = float(base + times * i);
  bool same = true;
  for (std::int64_t i = begin; i < end; ++i) {
    same = same && operand[std::size_t(i)] == expected[i % kElements];
  }
  return same;
}

}  // namespace

CommOperands::CommOperands(Bytes payload, Bytes footprint)
    : payload_(payload),
      sets_(std::clamp(footprint.count() / payload.count(), std::int64_t{1}, kMostSets)),
      beside_(std::min(payload * kInputsPerOutput + kWeights, footprint)),
      pool_(payload * sets_),
      other_(beside_) {
  std::fill_n(floats(other_), count(beside_), 0.25f);
}

std::span<float> CommOperands::produce(std::int64_t i, std::int64_t index) {
  float* const data = floats(pool_) + i % sets_ * count(payload_);
  const std::int64_t base = of_member(index);
  for (std::int64_t k = 0; k < count(payload_); ++k) data[k] = float(base + k % kElements);
  for (float* at = floats(other_); at < floats(other_) + count(beside_); ++at) *at = -*at;
  return {data, std::size_t(count(payload_))};
}

bool arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<const float> operand) {
  const auto whole = std::int64_t(operand.size());
  const std::int64_t part = whole / size;
  std::int64_t sum = 0;
  for (std::int64_t member = 0; member < size; ++member) sum += of_member(member);
  switch (kind) {
    case OpKind::all_reduce:
      return holds(operand, 0, whole, sum, size);
    case OpKind::reduce_scatter:
      return holds(operand, index * part, (index + 1) * part, sum, size);
    case OpKind::all_gather:
      for (std::int64_t member = 0; member < size; ++member) {
        if (!holds(operand, member * part, (member + 1) * part, of_member(member), 1)) return false;
      }
      return true;
    default:
      return index == 0 || holds(operand, 0, whole, of_member(0), 1);
  }
}

Communicator::Ticket post_bench(Communicator& communicator, OpKind kind, std::int64_t index,
                                std::span<float> operand) {
  const CommunicationLabel label{0, "calibrate", 0};
  auto* const data = reinterpret_cast<std::byte*>(operand.data());
  if (kind == OpKind::send) {
    const Bytes size{std::int64_t(operand.size_bytes())};
    return index == 0 ? communicator.post_send(1, size, data, label)
                      : communicator.post_recv(-1, size, data, label);
  }
  const CollectiveParams params{Group{{Axis::dp}, false}};
  return communicator.post_collective(kind, params,
                                      {DType::f32, std::int64_t(operand.size()), data}, label);
}

}  // namespace plimsoll

// Operands get a pattern of digits that shows, after a communication, whether every member's value
// arrived.
#include "calibrate/measure/comm_operands.h"

#include <algorithm>
#include <array>
#include <vector>

#include "graph/tensor.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostSets = 64;

/// The op that produces an operand touches more memory. A linear layer reads an input of up to four
/// times its output (ffn_hidden = 4 x hidden), and a weight matrix of a few MiB. So most of the
/// operand has left the core's own cache when the communication begins.
constexpr std::int64_t kInputsPerOutput = 4;
constexpr Bytes kWeights{std::int64_t{2} << 20};

/// The values are small integers, so that sums of hundreds of thousands are exact. Each is the
/// element's own number plus a digit, to base 16, of the member's number. The elements take the
/// digits in turn.
constexpr std::int64_t kElements = 8, kBase = 16;
constexpr std::size_t kDigits = 3;
constexpr std::int64_t kPattern = kElements * std::int64_t(kDigits);
using Digits = std::array<std::int64_t, kDigits>;

Digits digits_of(std::int64_t member) {
  Digits digits;
  for (std::int64_t& digit : digits) {
    digit = member % kBase + 1;
    member /= kBase;
  }
  return digits;
}

float* floats(const AlignedMemory& pool) { return reinterpret_cast<float*>(pool.memory().data()); }
std::int64_t count(Bytes bytes) { return bytes.count() / std::int64_t(sizeof(float)); }

/// Returns kPattern elements in a row; the pattern repeats.
std::array<float, std::size_t(kPattern)> pattern(const Digits& digits, std::int64_t times) {
  std::array<float, std::size_t(kPattern)> values;
  for (std::int64_t i = 0; i < kPattern; ++i) {
    values[std::size_t(i)] = float(digits[std::size_t(i / kElements)] + times * (i % kElements));
  }
  return values;
}

/// Returns whether elements from `begin` to `end` hold the pattern of the digits and `times` the
/// elements.
bool holds(std::span<const float> operand, std::int64_t begin, std::int64_t end,
           const Digits& digits, std::int64_t times) {
  const auto expected = pattern(digits, times);
  bool same = true;
  for (std::int64_t i = begin; i < end; ++i) {
    same = same && operand[std::size_t(i)] == expected[std::size_t(i % kPattern)];
  }
  return same;
}

/// Fills the operand as the member `index` produces it.
void fill(std::span<float> operand, std::int64_t index) {
  const auto values = pattern(digits_of(index), 1);
  for (std::size_t i = 0; i < operand.size(); ++i) operand[i] = values[i % std::size_t(kPattern)];
}

}  // namespace

DeviceBlock allocate_on(RankDevice& device, Bytes size) {
  return {device.allocate(size), [&device](std::byte* memory) { device.free(memory); }};
}

CommOperands::CommOperands(Bytes payload, Bytes footprint, RankDevice* device)
    : payload_(payload),
      sets_(std::clamp(footprint.count() / payload.count(), std::int64_t{1}, kMostSets)),
      beside_(device != nullptr ? footprint
                                : std::min(payload * kInputsPerOutput + kWeights, footprint)),
      device_(device) {
  if (device_ != nullptr) {
    device_pool_ = allocate_on(*device_, payload * sets_);
    device_other_ = allocate_on(*device_, beside_);
    return;
  }
  pool_ = AlignedMemory(payload * sets_);
  other_ = AlignedMemory(beside_);
  std::fill_n(floats(other_), count(beside_), 0.25f);
}

std::span<float> CommOperands::produce(std::int64_t i, std::int64_t index) {
  if (device_ != nullptr) return produce_on_device(i, index);
  float* const data = floats(pool_) + i % sets_ * count(payload_);
  fill({data, std::size_t(count(payload_))}, index);
  for (float* at = floats(other_); at < floats(other_) + count(beside_); ++at) *at = -*at;
  return {data, std::size_t(count(payload_))};
}

std::span<float> CommOperands::produce_on_device(std::int64_t i, std::int64_t index) {
  if (!pattern_) {
    std::vector<float> values(std::size_t(count(payload_)));
    fill(values, index);
    pattern_ = allocate_on(*device_, payload_);
    device_->write(pattern_.get(), std::as_bytes(std::span(values)));
  }
  std::byte* const data = device_pool_.get() + i % sets_ * payload_.count();
  device_->copy(data, pattern_.get(), payload_);
  const Bytes half(beside_.count() / 2);
  device_->copy(device_other_.get(), device_other_.get() + half.count(), half);
  return {reinterpret_cast<float*>(data), std::size_t(count(payload_))};
}

bool CommOperands::has_arrived(OpKind kind, std::int64_t index, std::int64_t size,
                               std::span<float> operand) {
  if (device_ == nullptr) return arrived(kind, index, size, operand);
  std::vector<float> values(operand.size());
  device_->read(reinterpret_cast<const std::byte*>(operand.data()),
                std::as_writable_bytes(std::span(values)));
  return arrived(kind, index, size, values);
}

bool arrived(OpKind kind, std::int64_t index, std::int64_t size, std::span<const float> operand) {
  const auto whole = std::int64_t(operand.size());
  const std::int64_t part = whole / size;
  Digits sum = {};
  for (std::int64_t member = 0; member < size; ++member) {
    const Digits digits = digits_of(member);
    for (std::size_t i = 0; i < kDigits; ++i) sum[i] += digits[i];
  }
  switch (kind) {
    case OpKind::all_reduce:
      return holds(operand, 0, whole, sum, size);
    case OpKind::reduce_scatter:
      return holds(operand, index * part, (index + 1) * part, sum, size);
    case OpKind::all_gather:
      for (std::int64_t member = 0; member < size; ++member) {
        if (!holds(operand, member * part, (member + 1) * part, digits_of(member), 1)) return false;
      }
      return true;
    default:
      return index == 0 || holds(operand, 0, whole, digits_of(0), 1);
  }
}

Communicator::Ticket post_bench(Communicator& communicator, OpKind kind, std::int64_t index,
                                std::span<float> operand, const CommunicationLabel& label) {
  auto* const data = reinterpret_cast<std::byte*>(operand.data());
  if (kind == OpKind::send) {
    const Bytes size{std::int64_t(operand.size_bytes())};
    return communicator.post_transfer(index == 0 ? OpKind::send : OpKind::recv, index == 0 ? 1 : -1,
                                      size, data, label);
  }
  const CollectiveParams params{Group{{Axis::dp}}};
  return communicator.post_collective(kind, params,
                                      {DType::f32, std::int64_t(operand.size()), data}, label);
}

}  // namespace plimsoll

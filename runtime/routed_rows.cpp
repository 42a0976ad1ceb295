// Rows of experts are counted behind the ops that limit choices and place them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/prepare.h"
#include "runtime/rank_device.h"

namespace plimsoll {

namespace {

/// An Operands reads what an op has read and written.
class Operands {
 public:
  Operands(const PreparedCall& call, const PreparedOp& op, RankDevice* device)
      : call_(call), op_(op), device_(device) {}

  const Shape& in_shape() const { return shape(op_.op->inputs[0]); }
  const Shape& out_shape(std::size_t i) const { return shape(op_.op->outputs[i]); }
  template <class Value>
  std::vector<Value> in() const {
    return read<Value>(op_.inputs[0], in_shape());
  }
  template <class Value>
  std::vector<Value> out(std::size_t i) const {
    return read<Value>(op_.outputs[i], out_shape(i));
  }

 private:
  const Shape& shape(TensorId id) const { return call_.routine->tensors[id.index()].shape; }
  template <class Value>
  std::vector<Value> read(const std::byte* from, const Shape& shape) const {
    std::vector<Value> values(std::size_t(elements(shape)));
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (device_ != nullptr) {
      device_->read(from, bytes);
    } else {
      std::memcpy(bytes.data(), from, bytes.size());
    }
    return values;
  }

  const PreparedCall& call_;
  const PreparedOp& op_;
  RankDevice* device_;
};

/// Choices behind a capacity.
std::int64_t dropped(const Operands& operands, std::int64_t capacity) {
  std::int64_t sum = 0;
  for (const float chosen : operands.out<float>(0))
    sum += std::max<std::int64_t>(0, std::int64_t(chosen) - capacity);
  return sum;
}

/// Rows that the choices [n,k] of many tokens give to experts [first, first + count).
std::int64_t chosen_rows(const Operands& operands, std::int64_t first, std::int64_t count) {
  const auto chosen = operands.in<std::int32_t>();
  return std::ranges::count_if(chosen,
                               [&](std::int32_t e) { return e >= first && e < first + count; });
}

/// Rows that ranks, with ends [g,e], give to experts [first, first + count).
std::int64_t given_rows(const Operands& operands, std::int64_t first, std::int64_t count) {
  const auto ends = operands.in<std::int32_t>();
  const std::int64_t experts = operands.in_shape()[1];
  std::int64_t sum = 0;
  for (std::int64_t at = 0; at < std::ssize(ends); at += experts) {
    const std::int64_t before = first > 0 ? ends[std::size_t(at + first - 1)] : 0;
    sum += ends[std::size_t(at + first + count - 1)] - before;
  }
  return sum;
}

}  // namespace

std::string to_text(const RowOverflow& overflow) {
  const RunPosition& at = overflow.position;
  return fmt::format(
      "experts {} to {} of layer {} get {} rows in {}, and there is memory for {}; raise "
      "expert_rows_percent, or give the job a capacity or drop_overflow",
      overflow.first, overflow.last, at.layer, overflow.rows, step_name(at.step), overflow.most);
}

bool routes_rows(const Op& op) {
  return op.phase == Phase::forward && (std::holds_alternative<LimitParams>(op.params) ||
                                        std::holds_alternative<PlaceParams>(op.params));
}

void add_routed(RoutedRows& routed, const PreparedCall& call, const PreparedOp& op,
                const Coordinates& at, RankDevice* device) {
  const Operands operands(call, op, device);
  if (const auto* limit = std::get_if<LimitParams>(&op.op->params)) {
    if (limit->capacity > 0) routed.dropped += dropped(operands, limit->capacity);
    return;
  }
  const auto& place = std::get<PlaceParams>(op.op->params);
  if (place.parts == 1) return;
  const bool places = op.op->kind == OpKind::place_choices;
  const std::int64_t count = elements(operands.out_shape(places ? 1 : 0)),
                     first = at[std::size_t(Axis::ep)] * count;
  routed.rows = places ? chosen_rows(operands, first, count) : given_rows(operands, first, count);
  const bool counts = !places || at[std::size_t(Axis::etp)] == 0;
  if (counts) routed.overflowed += std::max<std::int64_t>(0, routed.rows - place.rows);
}

}  // namespace plimsoll

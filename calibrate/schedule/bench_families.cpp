// The operands of ops that only some model families have.
#include <algorithm>

#include "calibrate/schedule/bench_operands.h"

namespace plimsoll {

namespace {

constexpr std::int64_t kPredicted = 19;  // of 128 positions, 15 %

void add_masked_load(BenchCase& into, std::int64_t n) {
  const std::int64_t sequence = std::min(n, kSequence), sequences = n / sequence;
  const std::int64_t predicted = std::min(kPredicted, sequence);
  into.op.params = DataParams{sequence, predicted, kVocabulary, 1};
  into.program.micro_batch = sequences;
  const bool tokens = into.op.kind == OpKind::load_masked_tokens;
  output(into, {sequences * (tokens ? sequence : predicted)}, DType::i32);
}

}  // namespace

bool add_family_operands(BenchCase& into, std::int64_t n, std::int64_t row) {
  const std::int64_t s = std::min(n, kSequence), heads = kHidden / kHeadWidth;
  const Shape tokens = {n, kHidden}, packed = {n, 3, heads, kHeadWidth};
  switch (into.op.kind) {
    case OpKind::load_masked_tokens:
    case OpKind::load_masked_positions:
    case OpKind::load_masked_targets:
      add_masked_load(into, n);
      return true;
    case OpKind::gather_rows:
      input(into, tokens), input(into, {n / s}, DType::i32), output(into, {n / s, kHidden});
      into.ids = s;
      return true;
    case OpKind::gather_rows_backward:
      input(into, {n / s, kHidden}), input(into, {n / s}, DType::i32), output(into, tokens);
      into.ids = s;
      return true;
    case OpKind::token_type_add:
      into.op.params = DataParams{s};
      input(into, tokens), input(into, {std::min<std::int64_t>(2, s), kHidden});
      output(into, tokens);
      return true;
    case OpKind::token_type_add_backward:
      into.op.params = DataParams{s};
      input(into, tokens), output(into, {std::min<std::int64_t>(2, s), kHidden});
      return true;
    case OpKind::rms_norm:
      into.op.params = NormParams{};
      input(into, {n, row}), input(into, {row}), output(into, {n, row}), output(into, {n});
      return true;
    case OpKind::rms_norm_backward:
      into.op.params = NormParams{};
      input(into, {n, row}), input(into, {n, row}), input(into, {row}), input(into, {n});
      output(into, {n, row}), output(into, {row});
      return true;
    case OpKind::swiglu:
      input(into, {n, 2, kHidden}), output(into, tokens);
      return true;
    case OpKind::swiglu_backward:
      input(into, tokens), input(into, {n, 2, kHidden}), output(into, {n, 2, kHidden});
      return true;
    case OpKind::dropout:
      into.op.params = DropoutParams{0.1, 1, 0};
      input(into, {n}), output(into, {n});
      return true;
    case OpKind::rotary:
    case OpKind::rotary_backward:
      into.op.params = RotaryParams{s, 2, 10000};
      input(into, packed), output(into, packed);
      return true;
    default:
      return false;
  }
}

}  // namespace plimsoll

// Runs references of ops, which each family of cases has for its own kinds.
#include "tests/runtime/op_reference.h"

#include <random>

#include "tests/runtime/op_families.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {

void add_row(const Operands& o) {
  each(o, [&](std::size_t i) { return o.in(0)[i] + o.in(1)[i % o.in(1).size()]; });
}

void sum_over_rows(const Operands& o) {
  for (std::size_t i = 0; i < o.in(0).size(); ++i) o.out(0)[i % o.out(0).size()] += o.in(0)[i];
}

Operand token_ids(std::string name, std::int64_t count, std::int64_t below, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t half = (below + 1) / 2;
  Operand operand{std::move(name), {count}, {}, DType::i32};
  for (std::int64_t border : {std::int64_t{0}, half - 1, half, below - 1}) {
    operand.values.push_back(double(border));
  }
  while (std::int64_t(operand.values.size()) < count) {
    operand.values.push_back(double(random() % std::uint64_t(below)));
  }
  return operand;
}

std::int64_t first_row(const Operands& o, std::int64_t rows) {
  return o.params<VocabularyParams>().split_degree == 1 ? 0 : o.c.at[std::size_t(Axis::mp)] * rows;
}

void place_in_batch(OpCase& c, const OpSizes& z) {
  c.program.grid.degree[std::size_t(Axis::dp)] = 2;
  c.program.micro_batch = z.batch;
  c.program.micro_batches = 3;
  c.at[std::size_t(Axis::dp)] = 1;
  c.position = {7, 1, 2};
  c.global_batch = z.batch * 3 * 2;
}

void give_examples(OpCase& c, std::int64_t batch, std::int64_t sequence) {
  OpSizes sizes = kTestSizes;
  sizes.batch = batch;
  place_in_batch(c, sizes);
  Job job;
  job.sequence = sequence;
  job.seed = 3;
  job.lengths = {{1, 1}, {sequence / 7 + 1, 3}, {sequence / 3 + 1, 2}, {2 * sequence, 1}};
  c.examples = std::make_shared<const ExampleRows>(job);
  if (auto* attention = std::get_if<AttentionParams>(&c.op.params)) attention->within_examples = 1;
}

std::pair<std::size_t, std::size_t> example_of(const OpCase& c, std::size_t of,
                                               std::size_t position) {
  if (!c.examples) return {0, SIZE_MAX};
  std::pair<std::size_t, std::size_t> found = {position, position + 1};
  c.examples->each(
      c.position.step, c.global_batch,
      [&](std::int64_t sequence, std::int64_t begin, std::int64_t tokens) {
        const auto first = std::size_t(begin), end = std::size_t(begin + tokens);
        if (sequence == first_sequence(c) + std::int64_t(of) && position >= first && position < end)
          found = {first, end};
      });
  return found;
}

std::int64_t first_sequence(const OpCase& c) {
  const std::int64_t sharding = c.program.grid.degree[std::size_t(Axis::sharding)];
  const std::int64_t replica =
      c.at[std::size_t(Axis::dp)] * sharding + c.at[std::size_t(Axis::sharding)];
  return (replica * c.program.micro_batches + c.position.micro_batch) * c.program.micro_batch;
}

void run_reference(const OpCase& c, Values& values) {
  if (run_optimizer_reference(c, values)) return;
  const Operands o{c, values};
  if (run_attention_reference(o)) return;
  for (const OpFamily* family : {&kElementwiseOps, &kNormOps, &kMatmulOps, &kHeadOps, &kContextOps,
                                 &kDataOps, &kLossOps, &kRouterOps, &kExpertOps}) {
    for (const OpReference& reference : family->references) {
      if (reference.kind == c.op.kind) return reference.run(o);
    }
  }
  INVARIANT(false, "no reference for " + std::string(to_text(c.op.kind)));
}

}  // namespace plimsoll

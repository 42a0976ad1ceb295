// Tests where routines are cut at exchanges of experts.
#include "passes/cut/exchange_parts.h"

#include <gtest/gtest.h>

#include <vector>

namespace plimsoll {
namespace {

Op op(Stream stream, std::vector<std::size_t> inputs, std::size_t output) {
  Op made;
  made.stream = stream;
  for (const std::size_t input : inputs) made.inputs.push_back(TensorId(input));
  made.outputs.push_back(TensorId(output));
  return made;
}

std::vector<std::size_t> sizes(const std::vector<std::vector<Op>>& parts) {
  std::vector<std::size_t> found;
  for (const std::vector<Op>& part : parts) found.push_back(part.size());
  return found;
}

TEST(ExchangeParts, BeginWhereComputationReadsWhatTravelled) {
  const std::vector<Op> ops = {
      op(Stream::compute, {0}, 1), op(Stream::experts, {1}, 2),
      op(Stream::experts, {2}, 3), op(Stream::compute, {1}, 4),  // reads nothing that travels
      op(Stream::compute, {3}, 5), op(Stream::compute, {2}, 6),  // one wait for both
      op(Stream::experts, {5}, 7), op(Stream::compute, {7, 4}, 8)};
  EXPECT_EQ(sizes(parts_at_exchanges(ops)), (std::vector<std::size_t>{4, 3, 1}));
}

TEST(ExchangeParts, AreOneWithoutExchangesOrWithoutAReader) {
  EXPECT_EQ(sizes(parts_at_exchanges({op(Stream::compute, {0}, 1), op(Stream::mp, {1}, 2),
                                      op(Stream::compute, {2}, 3)})),
            (std::vector<std::size_t>{3}));
  EXPECT_EQ(sizes(parts_at_exchanges({op(Stream::compute, {0}, 1), op(Stream::experts, {1}, 2)})),
            (std::vector<std::size_t>{2}));
}

}  // namespace
}  // namespace plimsoll

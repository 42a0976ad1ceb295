// Sequence parallelism: what its collectives move, what stages send, and the gradients that mp
// ranks compute in parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "graph/op_table.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kTokens = 2 * 32, kHidden = 64;  // two sequences of gpt-nano

std::vector<Program> sequence_programs(const std::string& strategy, const Framework& framework) {
  const Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  const Strategy parsed = parse_strategy("micro_batch=2," + strategy);
  return lower({job, parsed, framework});
}
std::vector<Program> sequence_programs(const std::string& strategy) {
  return sequence_programs(strategy, bundled_framework());
}

const Routine& routine(const Program& program, const std::string& name) {
  return *std::find_if(program.routines.begin(), program.routines.end(),
                       [&](const Routine& one) { return one.name == name; });
}

/// Collectives over mp by kind: how many, and what they move in all.
std::map<OpKind, std::pair<int, Bytes>> over_mp(const Routine& routine) {
  std::map<OpKind, std::pair<int, Bytes>> found;
  for (const Op& op : routine.ops) {
    if (op.stream != Stream::mp) continue;
    auto& [count, bytes] = found[op.kind];
    ++count;
    bytes += bytes_moved(op, routine.tensors);
  }
  return found;
}

// An all-reduce moves its payload twice, a gather or a scatter once (rings).
TEST(SequenceParallel, MovesTheBytesOfTheAllReducesAndTwoGathersMore) {
  const Bytes tokens(kTokens * kHidden * 4);
  using Found = std::map<OpKind, std::pair<int, Bytes>>;
  const Program whole = sequence_programs("mp=2")[0],
                split = sequence_programs("mp=2,sequence_parallel=true")[0];
  const Found reduced = {{OpKind::all_reduce, {2, 2 * tokens}}};
  EXPECT_EQ(over_mp(routine(whole, "layer.forward")), reduced);
  EXPECT_EQ(over_mp(routine(whole, "layer.backward")), reduced);
  EXPECT_EQ(
      over_mp(routine(split, "layer.forward")),
      (Found{{OpKind::reduce_scatter, {2, 2 * tokens}}, {OpKind::all_gather, {2, 2 * tokens}}}));
  EXPECT_EQ(
      over_mp(routine(split, "layer.backward")),
      (Found{{OpKind::reduce_scatter, {2, 2 * tokens}}, {OpKind::all_gather, {4, 4 * tokens}}}));
}

/// Bytes of all ops of a kind in the step.
Bytes bytes_of_kind(const Program& program, OpKind kind) {
  Bytes bytes;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == kind) bytes += bytes_moved(op, routine.tensors);
    }
  }
  return bytes;
}

TEST(SequenceParallel, StagesSendTheirPartOfTheBoundary) {
  const Bytes whole(8 * kTokens * kHidden * 4);  // 8 micro-batches
  for (std::size_t stage : {0u, 1u}) {
    EXPECT_EQ(bytes_of_kind(sequence_programs("mp=4,pp=2")[stage], OpKind::send), whole);
    for (const char* split : {"sequence_parallel=true", "split_boundary=true"}) {
      const Program program = sequence_programs(std::string("mp=4,pp=2,") + split)[stage];
      EXPECT_EQ(4 * bytes_of_kind(program, OpKind::send), whole) << split;
      EXPECT_EQ(4 * bytes_of_kind(program, OpKind::recv), whole) << split;
    }
  }
  // A tensor that was sent in parts is gathered on arrival.
  const Program apart = sequence_programs("mp=4,pp=2,split_boundary=true")[0];
  EXPECT_EQ(bytes_of_kind(apart, OpKind::all_gather), whole);
}

struct Sum {
  std::size_t call = 0;
  std::int64_t elements = 0;
};

std::vector<Sum> partial_sums(const Program& program) {
  std::vector<Sum> sums;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Routine& routine = program.at(program.calls[i].routine);
    if (routine.name == "all_reduce.mp") sums.push_back({i, elements(routine.tensors[0].shape)});
  }
  return sums;
}

TEST(SequenceParallel, GradientsOfWhatSeesPartOfTheTokensAreSummedOncePerLayerAndStep) {
  const Program program = sequence_programs("mp=2,sequence_parallel=true")[0];
  std::vector<std::int64_t> sizes;
  for (const Sum& sum : partial_sums(program)) sizes.push_back(sum.elements);
  // The head's norm; per layer two norms and the biases behind attention and MLP. The embedding's
  // positions saw all tokens.
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2 * kHidden, 6 * kHidden, 6 * kHidden, 6 * kHidden,
                                              6 * kHidden}));
  std::int64_t once = 0;
  for (const Segment& segment : program.segments) {
    if (segment.split) continue;
    EXPECT_EQ(segment.norm_weight, 0.5) << segment.parameter;
    once += segment.elements;
  }
  EXPECT_EQ(once, (2 + 4 * 6) * kHidden + 32 * kHidden);  // and the positions
  EXPECT_TRUE(partial_sums(sequence_programs("mp=2")[0]).empty());
}

TEST(SequenceParallel, BucketsWaitForThePartialSumsInThem) {
  for (const bool overlap : {false, true}) {
    Framework framework = bundled_framework();
    framework.parallelism.overlap.grad_reduce = overlap;
    const Program program =
        sequence_programs("mp=2,dp=2,sequence_parallel=true,grad_bucket_bytes=64KiB", framework)[0];
    std::size_t waited = 0;
    const std::vector<Sum> sums = partial_sums(program);
    for (const Call& call : program.calls) {
      if (program.at(call.routine).name != "all_reduce.dp") continue;
      for (const Wait& wait : call.waits) {
        waited += std::size_t(std::count_if(sums.begin(), sums.end(),
                                            [&](const Sum& s) { return s.call == wait.call; }));
      }
    }
    EXPECT_GE(waited, sums.size()) << overlap;
  }
}

}  // namespace
}  // namespace plimsoll

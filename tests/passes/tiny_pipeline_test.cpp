// Section 7.A of the reference on its tiny pipeline: owners, what the optimizer phase issues,
// casts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/op_table.h"
#include "passes/strategy/strategy.h"
#include "tests/passes/tiny_net.h"

namespace plimsoll {
namespace {

// Broadcasts follow the update, as in Paddle.
const std::string kOwners = "sharding_degree=2,sharding_owner=prefix,overlap_param_gather=false,";
const std::string kLimits = "grad_bucket_bytes=32MiB,param_bucket_bytes=32MiB";

std::vector<Program> tiny_stage(const std::string& fields) {
  const Job job = tiny_job();
  return last_stage(job, tiny_net(job), kOwners + fields);
}

/// AMP with dynamic loss scaling, global clipping.
Job amp_job() {
  Job job = tiny_job();
  job.precision = DType::f16;
  job.loss_scale = LossScale{};
  job.clip_norm = 1;
  return job;
}

/// Ops of a step by kind, in the order of the calls, of the kinds that A2 and A3 list.
std::vector<OpKind> optimizer_ops(const Program& program) {
  std::vector<OpKind> kinds;
  for (const Call& call : program.calls) {
    for (const Op& op : program.at(call.routine).ops) {
      const bool listed = op.kind == OpKind::reduce || op.kind == OpKind::broadcast ||
                          op.kind == OpKind::coalesce || op.kind == OpKind::sgd;
      if (listed) kinds.push_back(op.kind);
    }
  }
  return kinds;
}

/// Calls that wait for a reduction.
std::size_t waits_for_reductions(const Program& program) {
  std::size_t count = 0;
  for (const Call& call : program.calls) {
    const bool waits = std::any_of(call.waits.begin(), call.waits.end(), [&](const Wait& wait) {
      const Routine& awaited = program.at(program.calls[wait.call].routine);
      return awaited.ops[0].kind == OpKind::reduce;
    });
    count += waits;
  }
  return count;
}

std::vector<OpKind> repeated(std::initializer_list<std::pair<std::int64_t, OpKind>> runs) {
  std::vector<OpKind> kinds;
  for (const auto& [count, kind] : runs) kinds.insert(kinds.end(), std::size_t(count), kind);
  return kinds;
}

TEST(TinyPipeline, A1OwnersOfTheLastStage) {
  const Program program = tiny_stage("flatten=none")[1];
  std::map<std::string, std::int64_t> owners;
  std::int64_t loads[2] = {0, 0};
  for (const Segment& segment : program.segments) {
    owners[segment.parameter] = *segment.owner;
    loads[*segment.owner] += segment.elements;
  }
  EXPECT_EQ(
      owners,
      (std::map<std::string, std::int64_t>{
          {"w3", 0}, {"b3", 0}, {"w4", 0}, {"b4", 1}, {"w5", 1}, {"b5", 1}, {"w6", 1}, {"b6", 1}}));
  EXPECT_EQ(loads[0], 8256);
  EXPECT_EQ(loads[1], 4354);
}

TEST(TinyPipeline, A2WithoutFusion) {
  const auto programs = tiny_stage("flatten=none,collective_fusion=none");
  using enum OpKind;
  EXPECT_EQ(optimizer_ops(programs[1]), repeated({{8, reduce}, {5, sgd}, {8, broadcast}}));
  EXPECT_EQ(optimizer_ops(programs[0]), repeated({{8, reduce}, {3, sgd}, {8, broadcast}}));
  EXPECT_EQ(waits_for_reductions(programs[1]), 1u);  // the one synchronisation before the update
}

TEST(TinyPipeline, A3FusedBelow32MiB) {
  const auto coalesced = tiny_stage("flatten=none,collective_fusion=coalesced," + kLimits);
  using enum OpKind;
  EXPECT_EQ(optimizer_ops(coalesced[1]), repeated({{1, coalesce},
                                                   {1, reduce},
                                                   {1, coalesce},
                                                   {1, reduce},
                                                   {5, sgd},
                                                   {1, coalesce},
                                                   {1, broadcast},
                                                   {1, coalesce},
                                                   {1, broadcast}}));
  EXPECT_EQ(waits_for_reductions(coalesced[1]), 1u);
  // Persistent arenas: the same without copies.
  const auto arena = tiny_stage("flatten=none," + kLimits);
  EXPECT_EQ(optimizer_ops(arena[1]), repeated({{2, reduce}, {5, sgd}, {2, broadcast}}));
}

/// Moved by finite checks in a step.
Bytes bytes_checked(const Program& program) {
  Bytes bytes;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::check_finite) bytes += bytes_moved(op, routine.tensors);
    }
  }
  return bytes;
}

// The reference's lists are of a rank that checks, norms and updates 5 tensors. Our names: the
// constant is `fill`, maximum and divide make the clip factor from it.
TEST(TinyPipeline, A4LossScalingAndGlobalClipping) {
  const Job job = amp_job();
  const auto programs = last_stage(job, tiny_net(job),
                                   kOwners + "flatten=none,collective_fusion=coalesced," + kLimits);
  const auto list = [](const std::string& n) {
    return std::vector<std::string>{"coalesce",
                                    "reduce.sharding",
                                    "coalesce",
                                    "reduce.sharding",
                                    "check_finite",
                                    "cast",
                                    "all_reduce.pp.max",
                                    "all_reduce.sharding.max",
                                    "cast",
                                    "update_loss_scale",
                                    "squared_norm" + n,
                                    "reduce_sum",
                                    "all_reduce.pp",
                                    "all_reduce.sharding",
                                    "square_root",
                                    "fill",
                                    "maximum",
                                    "divide",
                                    "scale" + n,
                                    "sgd" + n,
                                    "coalesce",
                                    "broadcast.sharding",
                                    "coalesce",
                                    "broadcast.sharding"};
  };
  EXPECT_EQ(op_list(programs[1], {Phase::optimizer}), list(" x5"));
  EXPECT_EQ(op_list(programs[0], {Phase::optimizer}), list(" x3"));
  // Only an owner's gradients are checked and unscaled, and they are read and written.
  EXPECT_EQ(bytes_checked(programs[0]), Bytes(2 * 4 * 8256));
  EXPECT_EQ(bytes_checked(programs[1]), Bytes(2 * 4 * 4354));
  EXPECT_EQ(waits_for_reductions(programs[1]), 1u);
}

/// Per micro-batch: what backward does beside the blocks' routines, on the compute stream.
std::vector<std::string> merge_list(const Program& program, std::int64_t micro_batch) {
  Program merges = program;
  std::erase_if(merges.calls, [&](const Call& call) {
    const Op& op = program.at(call.routine).ops[0];
    return call.layer || call.micro_batch != micro_batch || op.stream != Stream::compute;
  });
  return op_list(merges, {Phase::backward});
}

/// Casts of parameters in a step's calls.
std::int64_t parameter_casts(const Program& program) {
  std::int64_t count = 0;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      const bool in_use = op.kind == OpKind::cast &&
                          routine.tensors[op.inputs[0].index()].role == TensorRole::parameter;
      count += in_use || op.kind == OpKind::cast_parameters;
    }
  }
  return count;
}

// The update as in A4, without its copies before the reductions: merged gradients lie together
// already. In every micro-batch two copies of either owner's group, and a cast and an add for each;
// biases are added to what is there, so these are zeroed, with the small weights between them.
TEST(TinyPipeline, A5FusedGradientMerge) {
  Job job = amp_job();
  job.global_batch = 8;
  const std::string fields = kOwners + "flatten=none,collective_fusion=coalesced," + kLimits;
  const auto merged = last_stage(job, tiny_net(job), fields + ",gradient_merge=fused");
  const auto direct = last_stage(job, tiny_net(job), fields);
  for (const std::size_t owner : {0, 1}) {
    const Program& program = merged[owner];
    EXPECT_EQ(program.micro_batches, 4);
    for (std::int64_t micro_batch = 0; micro_batch < 4; ++micro_batch) {
      EXPECT_EQ(merge_list(program, micro_batch),
                (std::vector<std::string>{"coalesce x4", "fill x2", "cast", "add", "cast", "add"}));
      EXPECT_TRUE(merge_list(direct[owner], micro_batch).empty());
    }
    std::vector<std::string> update = op_list(direct[owner], {Phase::optimizer});
    EXPECT_EQ(update[0], "coalesce");
    EXPECT_EQ(update[2], "coalesce");
    update[0] = "reduce.sharding x2";
    update.erase(update.begin() + 1, update.begin() + 4);
    EXPECT_EQ(op_list(program, {Phase::optimizer}), update);
    EXPECT_EQ(waits_for_reductions(program), 1u);
  }
  // Arenas that persist: the same without copies.
  const auto arena =
      last_stage(job, tiny_net(job), kOwners + "flatten=none,gradient_merge=fused," + kLimits);
  EXPECT_EQ(merge_list(arena[1], 0),
            (std::vector<std::string>{"fill x2", "cast", "add", "cast", "add"}));
}

// Products overwrite: weights are zeroed only where they are small and lie between biases, and
// nothing is where there are no biases.
TEST(TinyPipeline, FusedGradientMergeZeroesWhatIsAddedTo) {
  const Job job = amp_job();
  const std::string fields = "flatten=none,grad_bucket_bytes=1GiB,gradient_merge=fused";
  const auto weights = last_stage(job, equal_weights(job, 3), fields);
  EXPECT_EQ(merge_list(weights[0], 0), (std::vector<std::string>{"cast", "add"}));
  // Three weights of 8 MiB: b3, b4, and b5 with w6 and b6, which has room for 32 elements.
  const std::int64_t width = 2048;
  const Program wide = last_stage(job, tiny_net(job, width), fields)[0];
  EXPECT_EQ(merge_list(wide, 0), (std::vector<std::string>{"fill x3", "cast", "add"}));
  std::int64_t zeroed = 0;
  for (const Call& call : wide.calls) {
    const Routine& routine = wide.at(call.routine);
    if (routine.name != "zero_gradients" || call.micro_batch != 0) continue;
    zeroed += elements(routine.tensors[0].shape);
  }
  EXPECT_EQ(zeroed, 3 * width + 2 * width + 32);
}

// Tensor by tensor, 1.2c: a cast and an add for each of the 8; products overwrite, biases are
// added to zeros.
TEST(TinyPipeline, A5MergedTensorByTensor) {
  const Job job = amp_job();
  const auto count = [&](const std::string& fields) {
    const Program program = last_stage(job, tiny_net(job), kOwners + "flatten=none" + fields)[1];
    std::map<OpKind, std::int64_t> kinds;
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      if (routine.name != "last.backward" || call.micro_batch != 0) continue;
      for (const Op& op : routine.ops) ++kinds[op.kind];
    }
    return kinds;
  };
  auto merged = count(",gradient_merge=tensor"), direct = count("");
  EXPECT_EQ(merged[OpKind::cast] - direct[OpKind::cast], 8);
  EXPECT_EQ(merged[OpKind::add] - direct[OpKind::add], 8);
  EXPECT_EQ(merged[OpKind::fill] - direct[OpKind::fill], 4);
  EXPECT_EQ(merged[OpKind::matmul], direct[OpKind::matmul]);
}

/// The list from its first op of the kind on.
std::vector<std::string> from(const std::vector<std::string>& list, const std::string& kind) {
  const auto begins = [&](const std::string& op) { return op.starts_with(kind); };
  return {std::find_if(list.begin(), list.end(), begins), list.end()};
}

// b6 is on AMP's black list: no master, no cast, a group of its own. Updates are in the order of
// the arenas, where the reference sorts names. At start-up the reference broadcasts 8 parameters
// and casts 7; here every rank draws their initial values itself, by counters.
TEST(TinyPipeline, A6MixedParameterTypes) {
  Job job = amp_job();
  job.global_batch = 8;
  job.fp32_parameters = {"b6"};
  Framework framework = bundled_framework();
  framework.parallelism.recompute_repeats_all = true;
  const auto programs =
      last_stage(job, tiny_net(job),
                 kOwners + "flatten=none,collective_fusion=coalesced,gradient_merge=fused," +
                     "recompute=full,cast_placement=after_update," + kLimits,
                 framework);
  using List = std::vector<std::string>;
  for (const Program& program : programs) {
    EXPECT_EQ(program.buckets.size(), 3u);
    for (std::int64_t micro_batch = 0; micro_batch < 4; ++micro_batch) {
      EXPECT_EQ(merge_list(program, micro_batch),
                (List{"coalesce x6", "fill x3", "cast", "add x2", "cast", "add"}));
    }
    const List list = op_list(program, {Phase::optimizer});
    EXPECT_EQ(list[0], "reduce.sharding x3");
    EXPECT_EQ(from(list, "coalesce"),
              (List{"coalesce", "broadcast.sharding x2", "coalesce", "broadcast.sharding"}));
    // The broadcasts, by their bytes, are: owner 1's but b6; b6; owner 0's.
    List broadcasts;
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      if (routine.ops[0].kind != OpKind::broadcast) continue;
      broadcasts.push_back(std::string(to_text(routine.tensors[0].dtype)));
    }
    EXPECT_EQ(broadcasts, (List{"f16", "f32", "f16"}));
  }
  const List two = {"sgd", "cast_parameters", "sgd", "cast_parameters"};
  List owner1 = two, owner0 = two;
  owner1.insert(owner1.end(), two.begin(), two.end());
  owner1.push_back("sgd");
  owner0.insert(owner0.end(), two.begin(), two.begin() + 2);
  const auto updates = [&](const Program& program) {
    List list = from(op_list(program, {Phase::optimizer}), "sgd");
    list.erase(std::find(list.begin(), list.end(), "coalesce"), list.end());
    return list;
  };
  EXPECT_EQ(updates(programs[0]), owner0);
  EXPECT_EQ(updates(programs[1]), owner1);
  // 7 casts after updates, none elsewhere.
  EXPECT_EQ(parameter_casts(programs[0]), 3);
  EXPECT_EQ(parameter_casts(programs[1]), 4);
  for (const Segment& segment : programs[1].segments) {
    EXPECT_EQ(segment.dtype == DType::f32, segment.parameter == "b6");
  }
}

// 100 tensors of one size in a checkpointed segment, 8 micro-batches, 4 owners: 2 n m casts, or
// n / d. (Bytes per element are in runtime.owner_mode.)
TEST(TinyPipeline, A8CastsTensorByTensor) {
  Job job = amp_job();
  job.global_batch = 32;
  Framework framework = bundled_framework();
  framework.parallelism.recompute_repeats_all = true;
  const std::string fields =
      "sharding_degree=4,sharding_owner=greedy,recompute=full,flatten=none,cast_placement=";
  const Graph graph = equal_weights(job, 100);
  for (const Program& program : last_stage(job, graph, fields + "every_use", framework)) {
    EXPECT_EQ(program.micro_batches, 8);
    EXPECT_EQ(program.segments.size(), 100u);
    EXPECT_EQ(parameter_casts(program), 1600);
  }
  for (const Program& program : last_stage(job, graph, fields + "after_update", framework)) {
    EXPECT_EQ(parameter_casts(program), 25);
  }
}

// One parameter on the last stage, two owners: the rank without any takes part in the reduction and
// the broadcast, checks nothing (the flag is the first constant), counts 0 in the norm (the second)
// and updates nothing. (That such ranks train the same model is in runtime.train.)
TEST(TinyPipeline, A7RankThatOwnsNothing) {
  const Job job = amp_job();
  const Program program =
      last_stage(job, equal_weights(job, 1), kOwners + "flatten=none," + kLimits)[1];
  EXPECT_EQ(owned_elements(program), 0);
  EXPECT_EQ(op_list(program, {Phase::optimizer}),
            (std::vector<std::string>{"reduce.sharding", "fill", "cast", "all_reduce.pp.max",
                                      "all_reduce.sharding.max", "cast", "update_loss_scale",
                                      "fill", "all_reduce.pp", "all_reduce.sharding", "square_root",
                                      "fill", "maximum", "divide", "broadcast.sharding"}));
}

}  // namespace
}  // namespace plimsoll

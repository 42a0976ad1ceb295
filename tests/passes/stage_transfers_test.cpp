// How long sent tensors live: the counts of Paddle PRs 34086 and 34230 (cases C1 and C3 to C5), and
// the same whatever the number of micro-batches in the default form.
#include "passes/schedule/stage_transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/verify/verify.h"
#include "passes/cut/cut_blocks.h"
#include "passes/layout/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"

namespace plimsoll {
namespace {

Job job_of(std::int64_t layers, std::int64_t micro_batches) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json");
  job.layers = layers;
  job.global_batch = micro_batches;
  return job;
}

std::vector<Program> lowered(const Job& job, const std::string& strategy,
                             Proof proof = Proof::order) {
  const Strategy parsed = parse_strategy(strategy);
  const Verdict verdict = legal(job, parsed, parsed.mp * parsed.pp);
  EXPECT_TRUE(verdict) << verdict.reason();
  return lower({job, parsed, bundled_framework()}, {}, proof);
}

bool alive(const Buffer& buffer, std::size_t call) {
  return buffer.begin <= call && call < buffer.end;
}

std::int64_t copies(const Program& program, const std::string& name, std::size_t call) {
  return std::count_if(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) {
    return buffer.name == name && alive(buffer, call);
  });
}

std::int64_t most_copies(const Program& program, const std::string& name) {
  std::vector<std::int64_t> change(program.calls.size() + 1);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name != name) continue;
    ++change[buffer.begin];
    --change[buffer.end];
  }
  std::int64_t now = 0, most = 0;
  for (std::int64_t step : change) most = std::max(most, now += step);
  return most;
}

/// Copies of sent gradients when the last backward that follows a forward has written its own.
std::int64_t steady_copies(const Program& program) {
  std::int64_t steady = 0;
  bool after_forward = false;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    const Routine& routine = program.at(program.calls[call].routine);
    const bool computes = routine.name.ends_with(".forward") || routine.name.ends_with(".backward");
    if (!computes) continue;
    const bool forward = routine.phase == Phase::forward;
    // Every call of the backwards after a forward: the last one has written the copy.
    if (!forward && after_forward) {
      const auto micro_batch = program.calls[call].micro_batch;
      for (std::size_t own = call; own < program.calls.size(); ++own) {
        if (program.calls[own].micro_batch != micro_batch) break;
        if (program.at(program.calls[own].routine).name.ends_with(".backward")) {
          steady = copies(program, "sent_gradient", own);
        }
      }
    }
    after_forward = forward;
  }
  return steady;
}

/// Most micro-batches whose saved tensors are alive at once.
std::int64_t most_in_flight(const Program& program) {
  std::int64_t most = 0;
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    std::set<std::int64_t> alive_here;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.name != "saved" || !alive(buffer, call)) continue;
      alive_here.insert(*program.calls[buffer.begin].micro_batch);
    }
    most = std::max(most, std::int64_t(alive_here.size()));
  }
  return most;
}

struct Counts {
  std::int64_t steady, most, forward, in_flight;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << "(" << counts.steady << ", " << counts.most << "), " << counts.forward << ", "
             << counts.in_flight;
}

std::vector<Counts> counts_of(const std::vector<Program>& programs) {
  std::vector<Counts> counts;
  for (const Program& program : programs) {
    counts.push_back({steady_copies(program), most_copies(program, "sent_gradient"),
                      most_copies(program, "sent_activation"), most_in_flight(program)});
  }
  return counts;
}

TEST(SendLifetimes, C1FourStagesAndEightMicroBatches) {
  const Job job = job_of(4, 8);
  EXPECT_EQ(counts_of(lowered(job, "pp=4,send_lifetime=held")),
            (std::vector<Counts>{{0, 0, 4, 4}, {6, 8, 3, 3}, {7, 8, 2, 2}, {8, 8, 0, 1}}));
  EXPECT_EQ(counts_of(lowered(job, "pp=4,send_lifetime=published")),
            (std::vector<Counts>{{0, 0, 4, 4}, {2, 4, 3, 3}, {2, 3, 2, 2}, {2, 2, 0, 1}}));
  for (const Counts& counts : counts_of(lowered(job, "pp=4,send_slots=2"))) {
    EXPECT_LE(counts.most, 2);
    EXPECT_LE(counts.forward, 2);
  }
}

TEST(SendLifetimes, C1EightStagesAndSixtyFourMicroBatches) {
  const Job job = job_of(8, 64);
  const std::int64_t published[] = {0, 8, 7, 6, 5, 4, 3, 2};
  const auto before = counts_of(lowered(job, "pp=8,send_lifetime=held"));
  const auto after = counts_of(lowered(job, "pp=8,send_lifetime=published"));
  for (std::int64_t stage = 0; stage < 8; ++stage) {
    const Counts &held = before[std::size_t(stage)], &freed = after[std::size_t(stage)];
    EXPECT_EQ(freed.most, published[stage]);
    EXPECT_EQ(held.most, stage == 0 ? 0 : 64);
    EXPECT_EQ(held.steady, stage == 0 ? 0 : 64 - (8 - 1 - stage));
    EXPECT_EQ(freed.steady, stage == 0 ? 0 : 2);
    for (const Counts& counts : {held, freed}) {
      EXPECT_EQ(counts.forward, stage == 7 ? 0 : 8 - stage);
      EXPECT_EQ(counts.in_flight, 8 - stage);
    }
  }
}

Bytes most_bytes(const Program& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name == name) return most_copies(program, name) * buffer.bytes;
  }
  return {};
}

TEST(SendLifetimes, FlatInTheNumberOfMicroBatchesUnlessHeld) {
  for (const std::string strategy :
       {"pp=4", "pp=4,schedule=gpipe", "pp=2,virtual_stages=2", "pp=4,send_lifetime=published"}) {
    SCOPED_TRACE(strategy);
    const auto few = lowered(job_of(4, 8), strategy);
    for (std::int64_t m : {16, 64, 512}) {
      const auto many = lowered(job_of(4, m), strategy, Proof::structure);
      for (std::size_t stage = 0; stage < few.size(); ++stage) {
        for (const char* name : {"sent_activation", "sent_gradient"}) {
          EXPECT_EQ(most_bytes(many[stage], name), most_bytes(few[stage], name)) << m;
        }
      }
    }
  }
  const Bytes boundary(32 * 64 * 4);  // sequence x hidden x f32
  const auto few = lowered(job_of(4, 8), "pp=4,send_lifetime=held");
  for (std::int64_t m : {16, 64, 512}) {
    const auto many = lowered(job_of(4, m), "pp=4,send_lifetime=held", Proof::structure);
    for (std::size_t stage = 1; stage < few.size(); ++stage) {
      EXPECT_EQ(most_bytes(many[stage], "sent_gradient") - most_bytes(few[stage], "sent_gradient"),
                (m - 8) * boundary);
    }
  }
}

TEST(SendLifetimes, C3ThePublishedFormNeedsMoreMicroBatchesThanStagesBehind) {
  const auto verdict = [](const std::string& fields, std::int64_t micro_batches) {
    return legal(job_of(4, micro_batches), parse_strategy("pp=4" + fields), 4);
  };
  // m = P - s - 1 of the first stage.
  const Verdict refused = verdict(",send_lifetime=published", 3);
  EXPECT_FALSE(refused);
  EXPECT_NE(refused.reason().find("micro-batches"), std::string::npos) << refused.reason();
  EXPECT_TRUE(verdict(",send_lifetime=published", 4));
  for (std::int64_t micro_batches : {1, 2, 3}) {
    EXPECT_TRUE(verdict("", micro_batches));
    EXPECT_TRUE(verdict(",send_lifetime=held", micro_batches));
  }
}

TEST(SendLifetimes, C4WhatBackwardReadsOfASentTensorStays) {
  const Job job = job_of(2, 4);
  for (const char* fields : {"pp=2,recompute=full,send_lifetime=published",
                             "pp=2,recompute=full,send_lifetime=held", "pp=2,send_slots=1"}) {
    SCOPED_TRACE(fields);
    const Strategy strategy = parse_strategy(fields);
    const Framework framework = bundled_framework();
    const PassContext context{job, strategy, framework};
    Graph graph = lower_graph(context);
    // A part of backward that reads what the layer's forward sent on.
    const auto layer =
        std::find_if(graph.blocks.begin(), graph.blocks.end(),
                     [](const Block& block) { return block.kind == BlockKind::layer; });
    const auto first = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
      return op.phase != Phase::forward && op.block && &graph.at(*op.block) == &*layer;
    });
    Op reads = *first;
    reads.kind = OpKind::add;
    reads.params = {};
    reads.waits.clear();
    reads.phase = Phase::recompute;
    reads.inputs = {*layer->output, *layer->output};
    Tensor sum = graph.at(*layer->output);
    sum.name = "sum";
    reads.outputs = {graph.add(sum)};
    graph.ops.insert(first, reads);

    const std::int64_t alignment = arena_alignment(job, strategy);
    const StageLayout stages = stage_layout(job, strategy, block_shapes(graph));
    Program program =
        schedule_stage(graph, cut_blocks(graph, alignment), context, stages, 0).front();
    std::int64_t sent = 0;
    for (std::size_t call = 0; call < program.calls.size(); ++call) {
      if (program.at(program.calls[call].routine).name != "layer.backward") continue;
      const Routine& routine = program.at(program.calls[call].routine);
      for (std::size_t slot = 0; slot < routine.slots.size(); ++slot) {
        if (routine.slots[slot].kind != SlotKind::output) continue;
        const Buffer& buffer = program.at(program.calls[call].bindings[slot].buffer);
        EXPECT_EQ(buffer.name, "sent_activation");
        EXPECT_TRUE(alive(buffer, call));
        EXPECT_EQ(program.calls[buffer.begin].micro_batch, program.calls[call].micro_batch);
        ++sent;
      }
    }
    EXPECT_EQ(sent, 4) << "one backward for each micro-batch";
    plan_memory(program);
    EXPECT_TRUE(verify(program)) << verify(program).reason();
    EXPECT_TRUE(verify_memory_order(program)) << verify_memory_order(program).reason();
  }
}

TEST(SendLifetimes, C5StagesThatDoNotFollowEachOtherAreRefusedByThePublishedForm) {
  // Interleaved, the model runs over stages 0..P-1, 0..P-1: not monotone.
  const Job job = job_of(8, 8);
  const Verdict refused =
      legal(job, parse_strategy("pp=4,virtual_stages=2,send_lifetime=published"), 4);
  EXPECT_FALSE(refused);
  EXPECT_NE(refused.reason().find("monotone"), std::string::npos) << refused.reason();
  EXPECT_TRUE(legal(job, parse_strategy("pp=4,virtual_stages=2"), 4));
  // Nor are forwards and backwards in turn there, or backwards whole.
  for (const char* schedule : {"gpipe", "zb_h1"}) {
    const std::string fields = std::string("pp=4,send_lifetime=published,schedule=") + schedule;
    EXPECT_FALSE(legal(job, parse_strategy(fields), 4));
  }
}

TEST(SendLifetimes, EveryFormIsOrderedUnderEverySchedule) {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    for (const char* rest : {"", ",send_slots=1", ",send_lifetime=held"}) {
      for (std::int64_t stages : {1, 2, 4}) {
        for (std::int64_t micro_batches : {1, 2, 5}) {
          const std::string strategy =
              "pp=" + std::to_string(stages) + ",schedule=" + schedule + rest;
          SCOPED_TRACE(strategy);
          lowered(job_of(4, micro_batches), strategy);  // which proves order and memory
        }
      }
    }
  }
  for (const char* rest : {"", ",send_slots=1", ",send_lifetime=held", ",recompute=full"}) {
    for (std::int64_t stages : {2, 3, 4}) {
      for (std::int64_t chunks : {2, 3}) {
        for (std::int64_t groups : {1, 2, 3}) {
          const std::string strategy =
              "pp=" + std::to_string(stages) + ",virtual_stages=" + std::to_string(chunks) + rest;
          SCOPED_TRACE(strategy);
          lowered(job_of(stages * chunks + 1, stages * groups), strategy);
        }
      }
    }
  }
}

/// Receives whose reader is the next computation that is issued, and all receives.
std::pair<int, int> received_when_needed(const Program& program) {
  int needed = 0, all = 0;
  for (std::size_t r = 0; r < program.calls.size(); ++r) {
    if (program.at(program.calls[r].routine).ops.front().kind != OpKind::recv) continue;
    ++all;
    for (std::size_t c = r + 1; c < program.calls.size(); ++c) {
      const Call& call = program.calls[c];
      if (program.at(call.routine).ops.front().stream != Stream::compute) continue;
      needed += std::any_of(call.waits.begin(), call.waits.end(),
                            [&](const Wait& wait) { return wait.call == r; });
      break;
    }
  }
  return {needed, all};
}

TEST(ReceivesAhead, InterleavedStagesPostThemOneComputationEarlier) {
  const Job job = job_of(8, 8);
  Framework framework = bundled_framework();
  for (const bool ahead : {false, true}) {
    framework.parallelism.overlap.receives_ahead = ahead;
    const auto programs =
        lower({job, parse_strategy("pp=4,virtual_stages=2"), framework}, {}, Proof::order);
    for (const Program& program : programs) {
      const auto [needed, all] = received_when_needed(program);
      EXPECT_GE(all, 8);
      // Before the first one there is no computation.
      if (ahead) {
        EXPECT_LE(needed, 1);
      } else {
        EXPECT_EQ(needed, all);
      }
    }
    const auto plain = lower({job, parse_strategy("pp=4"), framework}, {}, Proof::order);
    for (const Program& program : plain) {
      const auto [needed, all] = received_when_needed(program);
      EXPECT_EQ(needed, all);
    }
  }
}

}  // namespace
}  // namespace plimsoll

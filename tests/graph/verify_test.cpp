// The verifier: each rule refuses a value that breaks it, and names what is wrong.
#include "graph/verify/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "graph/text.h"
#include "passes/pipeline.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job nano() { return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/gpt-nano.json"); }

std::vector<Program> lowered(const std::string& strategy) {
  const Job job = nano();
  const Strategy parsed = parse_strategy(strategy);
  const Framework framework = bundled_framework();
  return lower({job, parsed, framework});
}

const std::string kSmall =
    "graph g\n"
    "grid mp=1 cp=1 sharding=1 dp=1 pp=1 order=mp,cp,sharding,dp,pp\n"
    "block 0 layer layer x2 input=%0 output=%1\n"
    "tensor %0 x f32[4,2] activation block=0\n"
    "tensor %1 y f32[4,2] activation block=0\n"
    "tensor %2 z f32[4,2] activation block=0\n";

std::string reason(const std::string& ops) {
  return verify(parse_graph(kSmall + ops, "case")).reason();
}

TEST(VerifyGraph, AcceptsALegalOrder) {
  EXPECT_EQ(
      reason("op gelu forward (%0) -> (%2) block=0\nop add forward (%0, %2) -> (%1) block=0\n"),
      "");
}

TEST(VerifyGraph, RefusesWhatBreaksARule) {
  EXPECT_EQ(reason("op add forward (%0, %2) -> (%1) block=0\n"),
            "op 0 (add forward): reads z before it is written");
  EXPECT_EQ(reason("op gelu forward (%0) -> (%1) block=0\nop gelu forward (%0) -> (%1) block=0\n"),
            "op 1 (gelu forward): writes y again");
  EXPECT_EQ(reason("op gelu forward (%0, %0) -> (%1) block=0\n"),
            "op 0 (gelu forward): has 2 inputs and 1 outputs");
  EXPECT_EQ(reason("op gelu forward (%7) -> (%1) block=0\n"),
            "op 0 (gelu forward): names tensor %7");
  EXPECT_EQ(reason("op all_reduce forward (%0) -> (%2) block=0 group=mp\nop add forward (%0, %2) "
                   "-> (%1) block=0\n"),
            "op 1 (add forward): reads x after it was overwritten");
  EXPECT_EQ(reason("op all_reduce forward (%0) -> (%1) block=0 group=none\n"),
            "op 0 (all_reduce forward): group has no axes");
}

TEST(VerifyGraph, RepeatedBlocksChainOntoThemselves) {
  Graph graph = parse_graph(kSmall + "op gelu forward (%0) -> (%1) block=0\n", "case");
  graph.tensors[1].shape = {2, 4};
  EXPECT_TRUE(states(verify(graph).reason(), {"block layer", "shape"}));
  graph.blocks[0].output.reset();
  EXPECT_TRUE(states(verify(graph).reason(), {"block layer", "borders"}));
}

struct Tampering {
  std::string name;
  std::function<void(Program&)> tamper;
  std::string says;  ///< part of the reason
};

TEST(VerifyProgram, RefusesEveryTampering) {
  const std::vector<Tampering> cases = {
      {"early end",
       [](Program& p) {
         for (Buffer& buffer : p.buffers) {
           if (buffer.role == TensorRole::workspace) buffer.end = buffer.begin;
         }
       },
       "is alive in no call"},
      {"dead binding",
       [](Program& p) {
         for (Buffer& buffer : p.buffers) {
           if (buffer.name == "saved") {
             buffer.end = buffer.begin + 1;
             return;
           }
         }
       },
       "to a buffer that is not alive"},
      {"slot outside",
       [](Program& p) { p.calls[0].bindings[0].offset += Bytes(std::int64_t{1} << 30); },
       "reaches outside buffer"},
      {"future wait",
       [](Program& p) {
         p.calls[0].waits.push_back({5, {}});
       },
       "waits for a call that does not come before"},
      {"overlap", [](Program& p) { p.buffers[1].offset = p.buffers[0].offset; }, "overlap"},
      {"outside arena", [](Program& p) { p.buffers[0].offset = p.arena_bytes; },
       "lies outside the arena"},
      {"gap", [](Program& p) { p.buckets[0].begin += 16; }, "leave a gap"},
      {"misplaced tensor",
       [](Program& p) { p.routines[0].places[0].offset += Bytes(std::int64_t{1} << 40); },
       "does not fit"},
      {"segments overlap", [](Program& p) { p.segments[1].offset = 0; }, "overlaps the one before"},
      {"frame missing",
       [](Program& p) {
         for (Routine& routine : p.routines) routine.frame_bytes = routine.frame_bytes + Bytes(64);
       },
       "frame"},
  };
  const Program valid = lowered("pp=2")[0];
  EXPECT_TRUE(verify(valid)) << verify(valid).reason();
  for (const Tampering& tampering : cases) {
    Program program = valid;
    tampering.tamper(program);
    EXPECT_NE(verify(program).reason().find(tampering.says), std::string::npos)
        << tampering.name << ": " << verify(program).reason();
  }
}

TEST(VerifyMemoryOrder, AcceptsWhatTheScheduleEmits) {
  for (const char* strategy : {"mp=1", "mp=2,pp=2", "pp=4,send_slots=1", "pp=2,recompute=full",
                               "dp=2,sharding_degree=2"}) {
    for (const Program& program : lowered(strategy)) {
      EXPECT_TRUE(verify_memory_order(program))
          << strategy << ": " << verify_memory_order(program).reason();
    }
  }
}

/// Removes the waits of the calls whose routine has this name.
Program without_waits(Program program, const std::string& routine) {
  for (Call& call : program.calls) {
    if (program.at(call.routine).name == routine) call.waits.clear();
  }
  return program;
}

TEST(VerifyMemoryOrder, RefusesEveryMissingWait) {
  const Program stage = lowered("mp=2,pp=2")[0], last = lowered("mp=2,pp=2")[1];
  const auto says = [](const Program& program, const std::string& text) {
    const std::string reason = verify_memory_order(program).reason();
    EXPECT_NE(reason.find(text), std::string::npos) << "expected " << text << ", found: " << reason;
  };
  // A receive into memory that computation, or a send it has waited for, still uses.
  says(without_waits(stage, "recv.recv_next"), "recv writes payload before stream ");
  // A send of what is not written yet.
  says(without_waits(stage, "send.send_next"), "send reads payload before stream compute");
  // A layer that reads what has not arrived, or writes a slot that is still being sent.
  says(without_waits(last, "layer.forward"), "before stream recv_previous");
  says(without_waits(stage, "layer.forward"), "before stream send_next");
  // The update of gradients that are still being reduced.
  says(without_waits(lowered("dp=2")[0], "optimizer"), "before stream data");
  // Inside a routine: the op after a tensor-parallel all-reduce.
  Program program = stage;
  for (Routine& routine : program.routines) {
    for (Op& op : routine.ops) op.waits.clear();
  }
  says(program, "stream ");
}

TEST(VerifyTogether, AcceptsWhatTheScheduleEmits) {
  for (const char* strategy :
       {"mp=2", "pp=4", "mp=2,pp=2", "dp=2,pp=2", "dp=2,sharding_degree=2,sharding_stage=1",
        "pp=4,micro_batch=16", "mp=2,pp=2,sharding_degree=2,recompute=full"}) {
    const auto programs = lowered(strategy);
    EXPECT_TRUE(verify_together(programs))
        << strategy << ": " << verify_together(programs).reason();
  }
}

std::size_t find_call(const Program& program, OpKind kind, std::size_t from = 0) {
  for (std::size_t i = from; i < program.calls.size(); ++i) {
    if (program.at(program.calls[i].routine).ops[0].kind == kind) return i;
  }
  ADD_FAILURE() << "no such call";
  return 0;
}

TEST(VerifyTogether, RefusesALostSend) {
  auto programs = lowered("pp=2");
  programs[0].calls.erase(programs[0].calls.begin() +
                          std::ptrdiff_t(find_call(programs[0], OpKind::send)));
  for (Call& call : programs[0].calls) call.waits.clear();  // indices have moved
  EXPECT_NE(verify_together(programs).reason().find("is issued by 1 of 2 sides"), std::string::npos)
      << verify_together(programs).reason();
}

TEST(VerifyTogether, RefusesADeadlock) {
  // Stage 0 waits for the first gradient before it sends the first activation.
  auto programs = lowered("pp=2,micro_batch=16");  // one micro-batch: F0 send, recv B0
  Program& first = programs[0];
  const std::size_t send = find_call(first, OpKind::send), receive = find_call(first, OpKind::recv);
  ASSERT_LT(send, receive);
  first.calls[send].waits.clear();
  for (std::size_t i = receive + 1; i < first.calls.size(); ++i) first.calls[i].waits.clear();
  std::swap(first.calls[send], first.calls[receive]);
  first.calls[receive].waits = {{send, {}}};
  EXPECT_NE(verify_together(programs).reason().find("deadlock"), std::string::npos)
      << verify_together(programs).reason();
}

TEST(VerifyTogether, RefusesDifferentPayloads) {
  auto programs = lowered("mp=2,pp=2");
  for (Routine& routine : programs[1].routines) {
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::recv) routine.tensors[0].shape[0] /= 2;
    }
  }
  EXPECT_NE(verify_together(programs).reason().find("disagree"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll

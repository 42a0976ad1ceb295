// Context parallelism: what ranks that share sequences keep, send and compute, by formulas from the
// sizes; n tokens of a micro-batch, h hidden, f of the feed-forward layer, a heads of d, kv of them
// of keys and values, c = cp. Values of latent attention have e columns in each head.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/step_flops.h"
#include "graph/traffic.h"
#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSequence = 64, kMicroBatch = 2, kMicroBatches = 3, kLayers = 2;
constexpr std::int64_t n = kSequence * kMicroBatch, h = 128, f = 192, a = 4, d = h / a;
const Group kContext{{Axis::cp}};

Job llama(std::int64_t kv_heads = a) {
  Job job;
  job.name = "layers";
  job.family = Family::llama;
  job.layers = kLayers;
  job.hidden = h;
  job.heads = a;
  job.kv_heads = kv_heads;
  job.ffn_hidden = f;
  job.vocab = 256;
  job.sequence = kSequence;
  job.global_batch = 4 * kMicroBatch * kMicroBatches;
  job.precision = DType::bf16;
  job.tied_embeddings = false;
  return job;
}

constexpr std::int64_t kRope = 8, e = 16;
constexpr const char* kExchanges[] = {"ring", "all_gather", "all_to_all"};

Job latent() {
  Job job = llama();
  job.latent = Latent{48, 32, d - kRope, kRope, e};
  return job;
}

std::string shared(std::int64_t ranks, const std::string& exchange) {
  return "cp=" + std::to_string(ranks) + ",context_exchange=" + exchange;
}

Strategy fields(const std::string& text) {
  Strategy strategy = parse_strategy(text);
  strategy.micro_batch = kMicroBatch;
  return strategy;
}

std::vector<Program> programs(const std::string& text, Job job = llama(),
                              const char* framework = "megatron-lm") {
  const Strategy strategy = fields(text);
  job.global_batch = kMicroBatch * kMicroBatches * strategy.dp * strategy.sharding_degree;
  return lower({job, strategy, framework_by_name(framework)});
}
Program program(const std::string& text, Job job = llama(), const char* framework = "megatron-lm") {
  return programs(text, std::move(job), framework).front();
}

/// Bytes of one layer between its forward and its backward: its bundle and its input.
std::int64_t kept(const std::string& text, const Job& job = llama(),
                  const char* framework = "megatron-lm") {
  const Strategy strategy = fields(text);
  const Graph graph = lower_graph({job, strategy, framework_by_name(framework)});
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, strategy));
  std::int64_t total = 0;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].kind != BlockKind::layer) continue;
    for (const Slot& slot : cut.blocks[b].backward.slots) {
      if (slot.kind == SlotKind::saved || slot.kind == SlotKind::input) total += slot.bytes.count();
    }
  }
  return total;
}

TEST(ContextParallel, ARankKeepsItsShare) {
  const std::int64_t whole = kept("mp=1");
  for (const std::int64_t c : {2, 4}) {
    const std::string cp = "cp=" + std::to_string(c);
    EXPECT_EQ(kept(cp), whole / c);
    EXPECT_EQ(kept(cp + ",context_exchange=all_gather"), whole / c);
    // Attention's output before and after its exchange.
    EXPECT_EQ(kept(cp + ",context_exchange=all_to_all"), whole / c + 2 * n * h / c);
    EXPECT_EQ(kept(cp + ",mp=2,sequence_parallel=true"), whole / c / 2);
  }
}

std::int64_t sent(const Program& of, OpKind kind, const Group& group) {
  std::int64_t total = 0;
  for (const Traffic& traffic : step_traffic(of, 0)) {
    if (traffic.kind == kind && traffic.group == group) total += traffic.sent.count();
  }
  return total;
}

TEST(ContextParallel, KeysAndValuesGoRound) {
  for (const std::int64_t kv : {std::int64_t{2}, a}) {
    for (const std::int64_t c : {2, 4, 8}) {
      const Program of = program("cp=" + std::to_string(c), llama(kv));
      const std::int64_t keys = n / c * 2 * kv * d * 2;  // of a rank, in bytes
      // Forward keys and values, backward these and their gradients, c - 1 times each.
      EXPECT_EQ(sent(of, OpKind::ring_shift, kContext),
                kLayers * kMicroBatches * 3 * (c - 1) * keys);
    }
  }
}

TEST(ContextParallel, GatheringMovesAsMuchAsTheRing) {
  for (const std::int64_t c : {2, 4}) {
    const std::string cp = "cp=" + std::to_string(c);
    const Program of = program(cp + ",context_exchange=all_gather", llama(2));
    EXPECT_EQ(sent(of, OpKind::all_gather, kContext) + sent(of, OpKind::reduce_scatter, kContext),
              sent(program(cp, llama(2)), OpKind::ring_shift, kContext));
  }
}

/// Keys have a head for each query before they travel. Sums of their gradients travel in f32, once
/// more than the keys.
TEST(ContextParallel, PyTorchSendsRepeatedKeysAndWideSums) {
  for (const std::int64_t kv : {std::int64_t{1}, std::int64_t{2}, a}) {
    for (const std::int64_t c : {2, 4, 8}) {
      const std::int64_t elements = n / c * 2 * a * d;
      for (const char* exchange : {"ring", "all_gather"}) {
        const Program of = program(shared(c, exchange), llama(kv), "torchtitan");
        EXPECT_EQ(sent(of, OpKind::ring_shift, kContext),
                  kLayers * kMicroBatches * elements * (2 * (c - 1) * 2 + c * 4))
            << exchange << " of " << kv;
        EXPECT_EQ(sent(of, OpKind::all_gather, kContext), 0);
      }
    }
  }
}

TEST(ContextParallel, RepeatedKeysTravelOnceForAGroupUnlessSumsAreInF32) {
  Framework framework = framework_by_name("torchtitan");
  framework.parallelism.sums_parts_in_f32 = false;
  const Job job = llama(2);
  for (const char* exchange : {"ring", "all_gather", "all_to_all"}) {
    const Strategy strategy = fields(shared(2, exchange));
    const Graph graph = lower_graph({job, strategy, framework});
    EXPECT_TRUE(std::ranges::none_of(graph.ops, [](const Op& op) {
      return op.kind == OpKind::repeat_heads;
    })) << exchange;
  }
}

TEST(ContextParallel, SumsInF32DoNotChangeTheWork) {
  for (const char* more : {"", ",recompute=full"}) {
    const PhaseFlops whole =
        step_flops(program(std::string("pp=1") + more, llama(2), "torchtitan"));
    const PhaseFlops part = step_flops(program(std::string("cp=4") + more, llama(2), "torchtitan"));
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      EXPECT_EQ(4 * part[phase].value(), whole[phase].value()) << more << phase;
  }
}

/// The number of exchanges during which a kernel runs: it is issued after the exchange and before
/// the first op that waits for it.
std::int64_t overlapped(const Program& of) {
  std::int64_t count = 0;
  for (const Routine& routine : of.routines) {
    for (std::size_t i = 0; i < routine.ops.size(); ++i) {
      if (routine.ops[i].kind != OpKind::ring_shift) continue;
      std::size_t next = i + 1;
      while (next < routine.ops.size() && routine.ops[next].stream != Stream::compute) ++next;
      const bool waits =
          next < routine.ops.size() && std::ranges::any_of(routine.ops[next].waits, [&](auto wait) {
            return wait >= i && routine.ops[wait].stream == Stream::context;
          });
      count += !waits;
    }
  }
  return count;
}

TEST(ContextParallel, CompiledLayersWaitForEveryExchange) {
  for (const char* exchange : {"ring", "all_gather"}) {
    const std::string text = shared(4, exchange);
    EXPECT_GT(overlapped(program(text, llama(2), "torchtitan")), 0);
    EXPECT_EQ(overlapped(program(text, llama(2), "torchtitan-compiled")), 0);
  }
}

TEST(ContextParallel, HeadsAreExchangedForTokens) {
  for (const std::int64_t c : {2, 4}) {
    const Program of = program("context_exchange=all_to_all,cp=" + std::to_string(c));
    // q, k, v and the output forward, their gradients backward, all of h columns.
    const std::int64_t payload = 8 * (n / c) * h * 2;
    EXPECT_EQ(sent(of, OpKind::all_to_all, kContext),
              kLayers * kMicroBatches * payload * (c - 1) / c);
  }
}

TEST(ContextParallel, KeysAndValuesOfUnequalWidthsTravelTogether) {
  const std::int64_t steps = kLayers * kMicroBatches;
  for (const std::int64_t c : {2, 4}) {
    const auto sends = [&](const char* exchange, OpKind kind) {
      return sent(program(shared(c, exchange), latent()), kind, kContext);
    };
    const std::int64_t column = n / c * a * 2;  // bytes of one of each head
    EXPECT_EQ(sends("ring", OpKind::ring_shift), steps * 3 * (c - 1) * column * (d + e));
    EXPECT_EQ(sends("all_gather", OpKind::all_gather) + sends("all_gather", OpKind::reduce_scatter),
              sends("ring", OpKind::ring_shift));
    // q, k, v and the output forward, their gradients backward.
    EXPECT_EQ(sends("all_to_all", OpKind::all_to_all),
              steps * 2 * column * (d + d + e + e) * (c - 1) / c);
  }
}

TEST(ContextParallel, ARankOfLatentAttentionKeepsAndComputesItsShare) {
  const std::int64_t whole = kept("mp=1", latent());
  for (const std::int64_t c : {2, 4}) {
    EXPECT_EQ(kept(shared(c, "ring"), latent()), whole / c);
    EXPECT_EQ(kept(shared(c, "all_gather"), latent()), whole / c);
    EXPECT_EQ(kept(shared(c, "all_to_all"), latent()), whole / c + 2 * n * a * e / c);
  }
  const PhaseFlops flops = step_flops(program("mp=1", latent()));
  for (const char* exchange : kExchanges) {
    const PhaseFlops part = step_flops(program(shared(2, exchange), latent()));
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      EXPECT_EQ(2 * part[phase].value(), flops[phase].value()) << exchange << phase;
  }
}

const std::string kRepeats = ",recompute=modules,recompute_modules=latent_up_projection";

/// A ring's backward begins with the keys and values that came last, and those of all tokens are
/// what an exchange gave. Neither is what the up-projections of a rank give.
TEST(ContextParallel, UpProjectionsDropWhatBackwardReadsOfThem) {
  const auto dropped = [](const char* exchange, const char* framework) {
    const std::string text = shared(2, exchange);
    return kept(text, latent(), framework) - kept(text + kRepeats, latent(), framework);
  };
  EXPECT_EQ(dropped("ring", "bundled"), n / 2 * 2 * a * d);
  EXPECT_EQ(dropped("all_gather", "bundled"), n / 2 * 2 * (a * (2 * d + e) - kRope));
  EXPECT_EQ(dropped("all_to_all", "bundled"), 0);
  // The whole function is repeated, so the turned part of keys is kept.
  EXPECT_EQ(dropped("ring", "megatron-lm"), n / 2 * 2 * (a * d - kRope));
}

TEST(ContextParallel, UpProjectionsAreRepeatedAsFrameworksDo) {
  const auto products = [](const char* exchange, const char* framework) {
    const Program of = program(shared(2, exchange) + kRepeats, latent(), framework);
    const auto found = std::ranges::find(of.routines, "layer.backward", &Routine::name);
    INVARIANT(found != of.routines.end(), "the program has layers");
    return std::ranges::count_if(found->ops, [](const Op& op) {
      return op.kind == OpKind::matmul && op.phase == Phase::recompute;
    });
  };
  EXPECT_EQ(products("ring", "bundled"), 1);
  EXPECT_EQ(products("ring", "megatron-lm"), 2);
  EXPECT_EQ(products("all_gather", "bundled"), 2);
  EXPECT_EQ(products("all_to_all", "bundled"), 0);
}

TEST(ContextParallel, FrameworksHaveSomeExchangesForLatentAttention) {
  const auto reason = [](const char* framework, const char* exchange) {
    return legal(framework_by_name(framework), latent(), fields(shared(2, exchange))).reason();
  };
  EXPECT_EQ(reason("megatron-lm", "ring"), "");
  EXPECT_TRUE(reason("megatron-lm", "all_to_all")
                  .starts_with("context_exchange is all_to_all; megatron-lm shares sequences of "
                               "latent attention otherwise (Transformer Engine"));
  EXPECT_TRUE(reason("deepspeed", "all_to_all")
                  .starts_with("cp is 2; deepspeed has whole sequences of latent attention on each "
                               "rank (DeepSpeed"));
  for (const char* exchange : kExchanges) EXPECT_EQ(reason("bundled", exchange), "");
}

TEST(ContextParallel, FrameworksHaveSomeExchangesForSinksAndAlibi) {
  const auto reason = [](const char* framework, const char* key, const char* exchange) {
    Job job = llama(2);
    (std::string_view(key) == "sinks" ? job.sinks : job.alibi) = true;
    return legal(framework_by_name(framework), job, fields(shared(2, exchange))).reason();
  };
  EXPECT_EQ(reason("megatron-lm", "sinks", "all_to_all"), "");
  EXPECT_TRUE(reason("megatron-lm", "sinks", "ring")
                  .starts_with("context_exchange is ring; megatron-lm shares sequences of sinks "
                               "otherwise (Transformer Engine"));
  EXPECT_TRUE(reason("megatron-lm", "alibi", "ring")
                  .starts_with("cp is 2; megatron-lm has whole sequences of alibi on each rank "
                               "(Transformer Engine"));
  EXPECT_EQ(reason("deepspeed", "alibi", "all_to_all"),
            "cp is 2; deepspeed has whole sequences of alibi on each rank");
  EXPECT_EQ(reason("bundled", "sinks", "ring"), "");
  EXPECT_TRUE(reason("bundled", "sinks", "all_to_all")
                  .starts_with("context_exchange is all_to_all; bundled shares"));
  for (const char* exchange : kExchanges) EXPECT_EQ(reason("bundled", "alibi", exchange), "");
}

/// Normed queries and keys have linear layers of their own. Keys and values travel together still.
TEST(ContextParallel, NormedHeadsAreExchangedAsOthers) {
  Job normed = llama(2);
  normed.qk_norm = true;
  for (const char* exchange : {"ring", "all_gather", "all_to_all"}) {
    const std::string text = std::string("cp=2,context_exchange=") + exchange;
    const Program of = program(text, normed), other = program(text, llama(2));
    for (const OpKind kind :
         {OpKind::ring_shift, OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all}) {
      EXPECT_EQ(sent(of, kind, kContext), sent(other, kind, kContext)) << text;
    }
    EXPECT_EQ(step_flops(of), step_flops(other)) << text;
  }
}

/// A ring has ranks without work then.
TEST(ContextParallel, WindowsGoWithWholeKeys) {
  Job job = llama(2);
  job.window = 16;
  job.global_batch = kMicroBatch;
  EXPECT_NE(legal(job, fields("cp=2"), 2).reason().find("no window of 16 tokens"),
            std::string::npos);
  const PhaseFlops whole = step_flops(program("mp=1", job));
  EXPECT_LT(whole[0].value(), step_flops(program("mp=1", llama(2)))[0].value());
  for (const char* exchange : {"all_gather", "all_to_all"}) {
    const PhaseFlops part =
        step_flops(program(std::string("cp=2,context_exchange=") + exchange, job));
    EXPECT_EQ(2 * part[0].value(), whole[0].value()) << exchange;
  }
}

TEST(ContextParallel, RanksShareTheWork) {
  for (const char* more : {"", ",recompute=full", ",mp=2,sequence_parallel=true", ",fp8=delayed"}) {
    const bool split = std::string(more).find("mp=2") != std::string::npos;
    const PhaseFlops whole = step_flops(program(std::string("pp=1") + (split ? "" : more)));
    for (const char* exchange : {"ring", "all_gather", "all_to_all"}) {
      const PhaseFlops part =
          step_flops(program(std::string("cp=2,context_exchange=") + exchange + more));
      const double ranks = split ? 4 : 2;
      for (std::size_t phase = 0; phase < kPhases; ++phase) {
        EXPECT_EQ(ranks * part[phase].value(), whole[phase].value()) << exchange << more << phase;
      }
    }
  }
}

std::int64_t bytes_of_role(const Program& of, TensorRole role) {
  std::int64_t total = 0;
  for (const Buffer& buffer : of.buffers) {
    if (buffer.persistent && buffer.role == role) total += buffer.bytes.count();
  }
  return total;
}

TEST(ContextParallel, GradientsAreSummedOverReplicasAndContext) {
  const Program plain = program("dp=2,cp=2"), shards = program("sharding_degree=2,cp=2"),
                by_context = program("cp=2,sharding_stage=1");
  const std::int64_t gradients = bytes_of_role(plain, TensorRole::gradient);
  EXPECT_EQ(sent(plain, OpKind::all_reduce, Group{{Axis::cp, Axis::dp}}), 2 * gradients * 3 / 4);
  // Each of four ranks scatters three quarters of 4 bytes and gathers three quarters of 2.
  const Group both{{Axis::cp, Axis::sharding}};
  const std::int64_t padded = bytes_of_role(shards, TensorRole::gradient);
  EXPECT_EQ(sent(shards, OpKind::reduce_scatter, both), padded * 3 / 4);
  EXPECT_EQ(sent(shards, OpKind::all_gather, both), padded / 2 * 3 / 4);
  EXPECT_EQ(bytes_of_role(shards, TensorRole::optimizer_state), 2 * padded / 4);
  EXPECT_EQ(shards.sharding_degree, 4);
  EXPECT_EQ(bytes_of_role(by_context, TensorRole::optimizer_state),
            2 * bytes_of_role(by_context, TensorRole::gradient) / 2);
}

TEST(ContextParallel, EveryRankOwnsAPartOfEachBucket) {
  const Program of = program("sharding_degree=2,cp=2");
  for (const Bucket& bucket : of.buckets) {
    std::set<std::int64_t> begins;
    for (std::int64_t rank = 0; rank < of.grid.world_size(); ++rank) {
      const Bucket part = owned_part(of, bucket, of.grid.coordinates(rank));
      EXPECT_EQ(part.elements * 4, bucket.elements);
      begins.insert(part.begin);
    }
    EXPECT_EQ(begins.size(), 4u);
  }
}

TEST(ContextParallel, ProvenWithOtherChoices) {
  for (const char* text :
       {"cp=2,pp=2", "cp=2,pp=2,schedule=zb_h1", "cp=4,recompute=full", "cp=2,fp8=delayed",
        "cp=2,recompute=full,recompute_layers=1", "cp=2,dp=2,grad_reduction=per_micro_batch",
        "cp=2,sharding_degree=2,sharding_stage=2", "cp=2,sharding_degree=2,sharding_stage=3",
        "cp=2,mp=2,sequence_parallel=true,pp=2,sharding_degree=2",
        "cp=2,context_exchange=all_gather,fp8=tensorwise,mp=2,sequence_parallel=true",
        "cp=2,context_exchange=all_to_all,recompute=full"}) {
    EXPECT_FALSE(programs(text, llama(), "pytorch-fsdp").empty()) << text;
  }
}

TEST(ContextParallel, PositionsAndPackedHeadsSplitToo) {
  Job gpt = llama();
  gpt.family = Family::gpt;
  for (const char* exchange : {"ring", "all_gather", "all_to_all"}) {
    const Program of = program(std::string("cp=2,context_exchange=") + exchange, gpt);
    const PhaseFlops part = step_flops(of), whole = step_flops(program("mp=1", gpt));
    EXPECT_EQ(2 * part[0].value(), whole[0].value()) << exchange;
  }
}

TEST(ContextParallel, Refusals) {
  Job job = llama(2);
  job.global_batch = kMicroBatch;
  const auto reason = [&](const std::string& text, std::int64_t devices) {
    return legal(job, fields(text), devices).reason();
  };
  EXPECT_TRUE(legal(bundled_framework(), fields("cp=2")));
  EXPECT_EQ(legal(bundled_framework(), fields("cp=2,recompute=selective")).reason(),
            "recompute is selective; bundled has flash attention, which keeps no scores to drop");
  EXPECT_TRUE(legal(framework_by_name("megatron-lm"), fields("cp=2")));
  Framework unfused = framework_by_name("megatron-lm");
  unfused.kernels.attention.flash = false;
  EXPECT_EQ(legal(unfused, fields("cp=2")).reason(),
            "cp is 2; megatron-lm keeps attention scores, of whole sequences");
  EXPECT_EQ(reason("cp=2", 4),
            "mp 1 x pp 1 x dp 1 x sharding_degree 1 x cp 2 is not the number of devices, 4");
  EXPECT_EQ(reason("context_exchange=all_to_all", 1),
            "context_exchange is how cp ranks share sequences; cp is 1");
  EXPECT_EQ(reason("cp=4,context_exchange=all_to_all", 4),
            "context_exchange is all_to_all; cp 4 does not divide the 2 key and value heads of a "
            "rank");
  EXPECT_EQ(reason("cp=64", 64), "cp 64: the sequence of 64 is not 128 equal parts");
  EXPECT_EQ(reason("cp=2,sharding_stage=1,sharding_owner=prefix", 2),
            "cp goes with sharding_owner elements");
  job.family = Family::bert;
  EXPECT_EQ(reason("cp=2", 2), "cp: only decoders share sequences between ranks");
}

}  // namespace
}  // namespace plimsoll

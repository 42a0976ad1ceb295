// Composed routines against the same Programs op by op: every op of every simulated rank begins and
// ends at the same picosecond, folded or not, on regular and irregular nodes, from any starts.
#include "simulator/ranks/build_stream_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <optional>

#include "hand_programs.h"
#include "passes/pipeline.h"
#include "simulator/ranks/kernel_delays.h"
#include "simulator/ranks/stream_op_times.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

TEST(AwaitedPorts, EventsOfACallStandInTheOrderOfItsPorts) {
  AwaitedPorts ports;
  for (const std::size_t port : {70, 2, 5}) ports.add(port);
  EXPECT_TRUE(ports.has(2) && ports.has(5) && !ports.has(3));
  // The event of its end comes first.
  EXPECT_EQ(ports.event(2), 1u);
  EXPECT_EQ(ports.event(5), 2u);
  // From port 63 on all are awaited where one is.
  EXPECT_TRUE(ports.has(63) && ports.has(100));
  EXPECT_EQ(ports.event(63), 3u);
  EXPECT_EQ(ports.event(70), 10u);
}

Job eight_layers(DType precision) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.layers = 8;
  job.precision = precision;
  return job;
}

/// Adds the ops of a rank one by one; `delays` says by op how long it is delayed.
std::vector<StreamEngine::Event> add_timed_ops(const std::vector<TimedOp>& timed_ops,
                                               const std::vector<Picoseconds>& delays,
                                               StreamEngine& engine) {
  std::vector<std::uint32_t> queues(kStreams);
  std::iota(queues.begin(), queues.end(), 0);
  engine.add_rank(queues);
  std::vector<StreamEngine::Event> events;
  const auto events_of = [&](const std::vector<std::uint32_t>& awaited) {
    std::vector<StreamEngine::Event> result;
    for (const std::uint32_t timed : awaited) result.push_back(events[timed]);
    return result;
  };
  for (std::size_t i = 0; i < timed_ops.size(); ++i) {
    const TimedOp& timed = timed_ops[i];
    if (!timed.host_waits.empty())
      engine.add_host_wait(timed.host_wait, events_of(timed.host_waits));
    engine.add_delay(timed.stream, delays[i],
                     timed.stream == std::uint32_t(Stream::compute)
                         ? StreamEngine::Delay::in_op
                         : StreamEngine::Delay::before_op);
    events.push_back(engine.add_op(
        {timed.stream, timed.dispatch, timed.duration, timed.rendezvous, timed.link_use},
        events_of(timed.waits)));
  }
  return events;
}

/// The chosen ranks op by op; nothing is composed, every communication is a rendezvous.
EngineResult op_by_op(std::span<const Expansion> expansions, const RankTopology& topology,
                      const RankChoice& choice, std::span<const Picoseconds> starts) {
  ChannelNumbers numbers;
  StreamEngine engine;
  std::vector<std::vector<StreamEngine::Event>> events;
  for (std::int64_t rank : choice.representatives) {
    const Expansion& expansion = expansions[topology.expansion[std::size_t(rank)]];
    const std::vector<RankChannel>& channels = topology.channels[std::size_t(rank)];
    const NumberedChannels own = number_channels(expansion, topology, choice, rank, numbers);
    std::vector<std::uint64_t> issued(channels.size());
    const std::vector<LinkUse> uses = shared_link_uses(expansion, topology, rank);
    std::vector<TimedOp> timed_ops = unroll(expansion);
    std::vector<Picoseconds> delays(timed_ops.size());
    KernelDelays kernel_delays;
    std::vector<std::size_t> call_of;  // by op
    std::vector<bool> communicating;   // by op: a call that is one communication
    const auto wait_for = [&](const std::vector<std::uint32_t>& awaited) {
      for (const std::uint32_t timed : awaited) {
        if (communicating[timed])
          kernel_delays.wait_for(Stream(timed_ops[timed].stream), call_of[timed]);
      }
    };
    std::size_t i = 0;
    for (std::size_t c = 0; c < expansion.program->calls.size(); ++c) {
      const Call& call = expansion.program->calls[c];
      const auto& channel_ops = expansion.routines[call.routine.index()].channel_op;
      const bool alone = channel_ops.size() == 1 && channel_ops[0] != RoutineFacts::kLocal;
      const std::size_t begin = i;
      call_of.resize(begin + channel_ops.size(), c);
      communicating.resize(begin + channel_ops.size(), alone);
      if (!channel_ops.empty()) wait_for(timed_ops[begin].host_waits);
      Picoseconds computes;
      std::optional<std::size_t> first;
      for (const std::uint32_t index : channel_ops) {
        TimedOp& timed = timed_ops[i++];
        if (index == RoutineFacts::kLocal) {
          if (timed.stream != std::uint32_t(Stream::compute)) continue;
          if (!first) first = i - 1;
          computes += timed.duration;
          continue;
        }
        const ChannelOp& op = expansion.channel_ops[index];
        timed.rendezvous = own.number[op.channel] << 32 | issued[op.channel]++;
        const std::uint32_t cost = channels[op.channel].cost;
        timed.duration = to_picoseconds(topology.costs[cost][op.position].time);
        timed.link_use = uses[index];
        if (!alone) continue;
        delays[i - 1] = kernel_delays.communicate(Stream(timed.stream), c, timed.duration,
                                                  topology.slowdowns[cost][op.position]);
      }
      if (!first) continue;
      wait_for(timed_ops[begin].waits);
      delays[*first] = kernel_delays.compute(computes);
      for (std::size_t later = begin + 1; later < i; ++later) wait_for(timed_ops[later].host_waits);
    }
    events.push_back(add_timed_ops(timed_ops, delays, engine));
  }
  const StreamEngine::Result& run = engine.run(starts);
  EngineResult result{{}, run.host_end, run.rank_end};
  for (const std::vector<StreamEngine::Event>& own : events) {
    std::vector<OpTimes>& times = result.times.emplace_back();
    for (const StreamEngine::Event event : own)
      times.push_back({run.posted[event], run.begin[event], run.fired[event]});
  }
  return result;
}

std::vector<Picoseconds> ends_of(const std::vector<OpTimes>& times, bool begins) {
  std::vector<Picoseconds> result;
  for (const OpTimes& timed : times) result.push_back(begins ? timed.begin : timed.end);
  return result;
}

void expect_same_times(const Framework& framework, const char* text, std::int64_t per_node,
                       const std::optional<Calibration>& calibration = std::nullopt) {
  const Job job = eight_layers(DType::bf16);
  const Strategy strategy = parse_strategy(text);
  ASSERT_TRUE(legal(job, strategy, grid_of(strategy).world_size())) << text;
  const std::vector<Program> programs = lower({job, strategy, framework}, {}, Proof::none);
  Cluster cluster = hand_cluster(DeviceKind::gpu, per_node);
  cluster.device.peak_bf16 = cluster.device.peak_fp32;
  const CostModel costs(cluster, calibration, framework);
  const std::vector<Expansion> expansions = expand(programs, costs);
  const RankTopology topology = resolve_channels(expansions, costs);
  for (Folding folding : {Folding::folded, Folding::unfolded}) {
    const RankChoice choice = choose_ranks(topology, folding);
    StreamRanks ranks = build_stream_ranks(expansions, topology, choice);
    std::vector<Picoseconds> starts;
    for (std::size_t c = 0; c < choice.representatives.size(); ++c) {
      starts.push_back(Picoseconds(std::int64_t(c * c * 7'777'777 % 100'000'000)));
    }
    const StreamEngine::Result composed = ranks.engine.run(starts);
    const EngineResult single = op_by_op(expansions, topology, choice, starts);
    EXPECT_EQ(composed.rank_end, single.rank_end);
    EXPECT_EQ(composed.host_end, single.host_end);
    for (std::size_t c = 0; c < starts.size(); ++c) {
      const std::vector<OpTimes> times = stream_op_times(ranks.ranks[c], composed, starts[c]);
      EXPECT_EQ(ends_of(times, true), ends_of(single.times[c], true)) << "begins of rank " << c;
      EXPECT_EQ(ends_of(times, false), ends_of(single.times[c], false)) << "ends of rank " << c;
    }
  }
}

/// The presets, and some whose hosts and compute streams wait for more.
std::vector<Framework> frameworks() {
  std::vector<Framework> result = all_frameworks();
  Framework waiting = framework_by_name("pytorch-fsdp");
  waiting.name = "waiting";
  waiting.host.waits.for_gathers = true;
  waiting.host.waits.for_norm = true;
  waiting.host.waits.time = Seconds(3e-6);
  waiting.host.waits.transfers_hold = TransfersHold::compute;
  result.push_back(waiting);
  waiting.name = "waiting for transfers";
  waiting.host.waits.transfers_hold = TransfersHold::host;
  result.push_back(waiting);
  waiting.name = "launches that wait";
  waiting.host.waits.for_launches = true;
  result.push_back(waiting);
  return result;
}

constexpr std::array<const char*, 9> kStrategies = {
    "mp=1",
    "pp=2,virtual_stages=2",
    "mp=2,dp=2",
    "mp=4,sharding_degree=2,micro_batch=2",
    "pp=4,layer_split=3+1+2+2",
    "mp=2,pp=2,dp=2,recompute=full,grad_bucket_bytes=64KiB",
    "mp=2,pp=4,sharding_degree=2,grad_bucket_bytes=32KiB",
    "dp=2,sharding_degree=2,pp=2",
    "mp=2,pp=2,recompute=selective,send_slots=1"};
constexpr const char* kSharded = "sharding_degree=4,sharding_stage=3,micro_batch=2";

TEST(StreamRanks, EveryOpRunsWhenItWouldOpByOp) {
  for (const Framework& framework : frameworks()) {
    for (const char* text : kStrategies) {
      if (!legal(framework, parse_strategy(text))) continue;
      for (const std::int64_t per_node : {3, 4, 16}) {
        SCOPED_TRACE(fmt::format("{}: {} on nodes of {}", framework.name, text, per_node));
        expect_same_times(framework, text, per_node);
      }
    }
  }
}

TEST(StreamRanks, SoDoesWhatIsSlowedBesideOthers) {
  for (const char* name :
       {"megatron-lm", "megatron-lm-2021", "megatron-deepspeed", "pytorch-fsdp", "torchtitan"}) {
    const Framework framework = framework_by_name(name);
    for (const char* text : kStrategies) {
      if (!legal(framework, parse_strategy(text))) continue;
      for (const std::int64_t per_node : {4, 16}) {
        SCOPED_TRACE(fmt::format("{}: {} on nodes of {}", framework.name, text, per_node));
        expect_same_times(framework, text, per_node, hand_overlaps());
      }
    }
    if (legal(framework, parse_strategy(kSharded)))
      expect_same_times(framework, kSharded, 4, hand_overlaps());
  }
}

Seconds step_of(const Framework& framework, const char* text,
                const std::optional<Calibration>& calibration) {
  const std::vector<Program> programs =
      lower({eight_layers(DType::f32), parse_strategy(text), framework}, {}, Proof::none);
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), calibration, framework);
  return simulate(programs, costs, Folding::folded, Detail::none).step_time;
}

TEST(StreamRanks, NoStepIsSlowerThanIfAllWasSlowed) {
  Calibration slowed = hand_overlaps();
  for (OverlapPoint& point : slowed.overlaps) {
    point.compute_slowdown = 1.5;
    point.communication_slowdown = 1;
  }
  int slower = 0;
  for (const char* name : {"megatron-lm", "pytorch-fsdp"}) {
    const Framework framework = framework_by_name(name);
    for (const char* text : {"pp=4,dp=4,grad_bucket_bytes=16KiB", "pp=8,dp=2,micro_batch=1",
                             "mp=2,pp=2,dp=2", kSharded}) {
      if (!legal(framework, parse_strategy(text))) continue;
      const Seconds alone = step_of(framework, text, std::nullopt);
      const Seconds beside = step_of(framework, text, slowed);
      EXPECT_GE(beside, alone) << name << " " << text;
      EXPECT_LE(beside.value(), 1.5 * alone.value()) << name << " " << text;
      slower += beside > alone ? 1 : 0;
    }
  }
  EXPECT_GT(slower, 2);
}

TEST(StreamRanks, RanksThatShareTheirLinksFoldAlike) {
  // Both neighbours are sent to over one link, and gradients are reduced beside that.
  const Framework framework = framework_by_name("megatron-lm");
  const Strategy strategy = parse_strategy("pp=4,dp=4,grad_bucket_bytes=16KiB");
  const std::vector<Program> programs =
      lower({eight_layers(DType::f32), strategy, framework}, {}, Proof::none);
  for (const std::int64_t per_node : {1, 3, 4, 16}) {
    const CostModel costs(hand_cluster(DeviceKind::gpu, per_node), std::nullopt, framework);
    const std::vector<Expansion> expansions = expand(programs, costs);
    const RankTopology topology = resolve_channels(expansions, costs);
    std::size_t shared = 0;
    for (std::int64_t rank = 0; rank < 16; ++rank) {
      for (const LinkUse& use :
           shared_link_uses(expansions[topology.expansion[std::size_t(rank)]], topology, rank)) {
        shared += use.links != 0;
      }
    }
    EXPECT_GT(shared, 0u);
    const RankChoice folded = choose_ranks(topology, Folding::folded);
    const RankChoice all = choose_ranks(topology, Folding::unfolded);
    StreamRanks few = build_stream_ranks(expansions, topology, folded);
    StreamRanks many = build_stream_ranks(expansions, topology, all);
    const auto& few_run = few.engine.run(std::vector<Picoseconds>(folded.representatives.size()));
    const auto& many_run = many.engine.run(std::vector<Picoseconds>(16));
    for (std::size_t rank = 0; rank < 16; ++rank) {
      EXPECT_EQ(many_run.rank_end[rank], few_run.rank_end[folded.class_of[rank]])
          << "rank " << rank << " on nodes of " << per_node;
    }
  }
}

}  // namespace
}  // namespace plimsoll

// Small jobs and clusters are drawn for searches that try everything.
#include "tests/planner/random_problems.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "passes/strategy/recompute_rules.h"
#include "planner/space/space.h"

namespace plimsoll {
namespace {

template <class Value>
Value one_of(std::mt19937_64& random, std::initializer_list<Value> values) {
  return values.begin()[random() % values.size()];
}

/// Between `low` and `low` x 10^decades, evenly in its logarithm.
double spread(std::mt19937_64& random, double low, double decades) {
  return low * std::pow(10, decades * double(random() % 1000) / 1000);
}

/// A mixture of experts, small enough that some ranks get no rows.
void draw_experts(std::mt19937_64& random, Job& job) {
  const auto coin = [&] { return random() % 2 == 0; };
  job.activation = one_of(random, {Activation::swiglu, Activation::geglu});
  job.mlp_bias = false;
  Experts experts;
  experts.count = one_of<std::int64_t>(random, {4, 6, 8, 16});
  experts.chosen = one_of<std::int64_t>(random, {1, 2, 3});
  experts.ffn_hidden = one_of<std::int64_t>(random, {4, 12, 24});
  experts.shared_ffn_hidden = one_of<std::int64_t>(random, {0, 8, 24});
  if (job.layers > 2 && coin()) experts.dense_layers = 1;
  experts.score = coin() ? RouterScore::softmax : RouterScore::sigmoid;
  experts.capacity = one_of(random, {0.0, 0.0, 1.3});
  experts.load = one_of(random, {1.0, 1.1, 1.7});
  experts.balance_loss = one_of(random, {0.0, 0.01});
  // Drawn from another generator, so that the problems of before stay as they are.
  std::mt19937_64 more(std::uint64_t(job.vocab * job.hidden));
  if (more() % 4 == 0) experts.dense_ffn_hidden = job.heads * 4;
  if (more() % 4 == 0) experts.latent_hidden = one_of<std::int64_t>(more, {4, 10});
  if (experts.balance_loss > 0 && more() % 3 == 0) experts.balance_sequences = 2;
  experts.balance_layers = experts.balance_sequences == 2 && more() % 3 == 0;
  experts.drop_overflow = more() % 2 == 0;
  job.experts = experts;
}

/// The choices in which descendants of LLaMA differ.
void draw_llama(std::mt19937_64& random, Job& job) {
  const auto coin = [&] { return random() % 2 == 0; };
  job.family = Family::llama;
  if (job.heads % 2 == 0 && coin()) job.kv_heads = job.heads / 2;
  if (coin()) job.head_size = one_of<std::int64_t>(random, {4, 12});
  job.qkv_bias = coin();
  job.out_bias = coin();
  job.mlp_bias = coin();
  job.qk_norm = coin();
  job.activation = one_of(random, {Activation::swiglu, Activation::geglu, Activation::gelu});
  job.norm_place = one_of(random, {NormPlace::before, NormPlace::around, NormPlace::after});
  job.window = one_of<std::int64_t>(random, {0, 0, 5});
  if (job.window > 0 && coin()) job.window_pattern = {true, true, false};
  job.mlp_input = one_of(random, {MlpInput::attended, MlpInput::own_norm});
  if (job.norm_place == NormPlace::after) job.mlp_input = MlpInput::attended;
  job.score_cap = one_of(random, {0.0, 2.0});
  job.head_bias = coin();
  if (random() % 3 == 0) draw_experts(random, job);
  if (random() % 4 != 0) return;
  job.kv_heads = job.heads;
  job.head_size = 0;
  job.qkv_bias = job.out_bias = job.qk_norm = false;
  job.latent = Latent{one_of<std::int64_t>(random, {0, 12}), 8, 4, 2, 6};
}

Job random_job(std::mt19937_64& random) {
  Job job;
  job.layers = std::int64_t(1 + random() % 6);
  job.heads = job.kv_heads = one_of<std::int64_t>(random, {1, 2, 4, 6, 8});
  job.hidden = job.heads * one_of<std::int64_t>(random, {4, 8, 16});
  job.ffn_hidden = job.hidden * one_of<std::int64_t>(random, {2, 4});
  job.vocab = std::int64_t(30 + random() % 200);
  job.sequence = one_of<std::int64_t>(random, {8, 16, 24});
  job.tied_embeddings = random() % 2 == 0;
  job.global_batch = one_of<std::int64_t>(random, {4, 6, 8, 12, 16, 24, 32});
  job.clip_norm = one_of(random, {0.0, 1.0});
  job.precision = one_of(random, {DType::f32, DType::bf16, DType::f16});
  job.name = "random";
  check_job(job, "random job");
  return job;
}

Efficiency random_efficiency(std::mt19937_64& random, std::size_t levels) {
  Efficiency efficiency;
  const auto fraction = [&] { return spread(random, 0.1, 1); };
  const auto fixed = [&] { return Seconds(random() % 2 == 0 ? 0 : spread(random, 1e-8, 3)); };
  efficiency.matmul = {fraction(),
                       std::int64_t(1 + random() % 100),
                       double(random() % 200),
                       double(random() % 100),
                       fixed(),
                       fraction(),
                       1,
                       1,
                       1,
                       {}};
  efficiency.attention_forward = {fraction(), fixed(), {}};
  efficiency.attention_backward = {fraction(), fixed(), {}};
  efficiency.memory = {fraction(), fixed(), {}};
  const auto slowdown = [&] { return random() % 2 == 0 ? 1 : 1 + double(random() % 1000) / 500; };
  efficiency.overlap = {slowdown(), slowdown()};
  for (std::size_t i = 0; i < levels; ++i) efficiency.levels.push_back({fraction(), fixed(), {}});
  return efficiency;
}

/// Some slow nothing, some sevenfold.
void add_overlaps(std::mt19937_64& random, Calibration& calibration) {
  const auto slowdown = [&] { return 0.5 + double(random() % 1000) / 150; };
  for (OpKind communication :
       {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather, OpKind::send}) {
    for (OpKind compute : {OpKind::matmul, OpKind::add}) {
      for (std::int64_t bytes : {256, 4096}) {
        OverlapPoint point;
        point.compute = compute;
        point.communication = communication;
        point.nodes = 1 + std::int64_t(random() % 2);
        point.payload = Bytes(bytes);
        point.compute_slowdown = slowdown();
        point.communication_slowdown = slowdown();
        calibration.overlaps.push_back(point);
      }
    }
  }
}

/// Times that no machine has: larger is not slower, more ranks are not either.
Calibration random_calibration(std::mt19937_64& random) {
  Calibration calibration;
  const auto time = [&] { return Sample{Seconds(spread(random, 1e-8, 4)), Seconds(0), 7, false}; };
  calibration.dispatch_op = time();
  calibration.dispatch_call = time();
  calibration.wake_up = time();
  calibration.sleeps_after = Seconds(spread(random, 1e-8, 4));
  for (OpKind kind : {OpKind::gelu, OpKind::add, OpKind::layer_norm, OpKind::adamw}) {
    for (std::int64_t bytes = 64; bytes < 1 << 20; bytes *= 8) {
      calibration.ops.push_back({kind, DType::f32, Bytes(bytes), 0, time()});
    }
  }
  const auto add = [&](OpKind kind, std::int64_t ranks, std::int64_t nodes, std::int64_t at_once) {
    for (std::int64_t bytes = 64; bytes < 1 << 20; bytes *= 8) {
      calibration.collectives.push_back(
          {kind, ranks, Bytes(bytes), time(), nodes, at_once, calibration.communicator});
    }
  };
  if (random() % 2 == 0) calibration.communicator = CommunicatorKind::mpi;
  const bool processes = calibration.communicator == CommunicatorKind::mpi;
  for (OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather}) {
    for (std::int64_t ranks : {2, 4}) {
      add(kind, ranks, 1, 1);
      if (processes) add(kind, ranks, 1, 2), add(kind, 2 * ranks, ranks, 1);
      if (processes && random() % 2 == 0) add(kind, ranks, ranks, 4);
    }
  }
  add(OpKind::send, 2, 1, 1);
  if (processes) add(OpKind::send, 2, 2, 1), add(OpKind::send, 2, 2, 3);
  if (processes && random() % 2 == 0) add_overlaps(random, calibration);
  return calibration;
}

Cluster random_cluster(std::mt19937_64& random) {
  Cluster cluster;
  cluster.name = "random";
  cluster.devices_per_node = one_of<std::int64_t>(random, {1, 2, 3, 4, 8});
  cluster.device.kind = random() % 3 == 0 ? DeviceKind::cpu_core : DeviceKind::gpu;
  cluster.device.name = "device";
  cluster.device.memory = Bytes(std::int64_t{1} << 40);
  cluster.device.memory_bandwidth = BytesPerSecond(spread(random, 1e9, 3));
  cluster.device.peak_fp32 = FlopsPerSecond(spread(random, 1e9, 4));
  cluster.device.peak_bf16 = cluster.device.peak_fp16 = cluster.device.peak_fp32;
  const std::size_t levels = 1 + random() % 3;
  for (std::size_t i = 0; i < levels; ++i) {
    Level level;
    level.name = "level" + std::to_string(i);
    level.devices =
        i + 1 == levels ? std::int64_t{1} << 22 : cluster.devices_per_node * (i == 0 ? 1 : 2);
    level.bandwidth = BytesPerSecond(spread(random, 1e7, 4));
    level.latency = Seconds(spread(random, 1e-8, 3));
    cluster.levels.push_back(level);
  }
  cluster.levels.front().reduces_in_switch = random() % 3 == 0;
  if (random() % 4 == 0) {
    Level& wired = cluster.levels[random() % levels];
    wired.peer_bandwidth = BytesPerSecond(wired.bandwidth.value() / double(1 + random() % 8));
  }
  if (random() % 2 == 0) cluster.efficiency = random_efficiency(random, levels);
  if (levels > 1) {  // drawn with them
    const BytesPerSecond outer = cluster.levels.back().bandwidth;
    cluster.host = Host{outer, 2 * outer, 0.1 * cluster.device.memory_bandwidth};
    cluster.host->core_speed = levels == 2 ? 2 : 0.5;
  }
  cluster.source = "drawn at random";
  return cluster;
}

/// Nodes with faster or slower devices.
void draw_other_devices(std::mt19937_64& random, Cluster& cluster) {
  OtherDevices others;
  others.first_node = std::int64_t(random() % 3);
  others.nodes = std::int64_t(1 + random() % 3);
  others.device = cluster.device;
  others.device.memory_bandwidth = BytesPerSecond(spread(random, 1e9, 3));
  others.device.peak_fp32 = FlopsPerSecond(spread(random, 1e9, 4));
  others.device.peak_bf16 = others.device.peak_fp16 = others.device.peak_fp32;
  if (random() % 2 == 0) others.efficiency = random_efficiency(random, 0);
  cluster.other_devices.push_back(others);
}

/// Switches that the space does not hold, each where it is legal.
void draw_beside_the_space(const Problem& problem, std::mt19937_64& random, Strategy& strategy) {
  const auto keep_if_legal = [&](const auto& change) {
    Strategy changed = strategy;
    change(changed);
    if (random() % 3 == 0 && legal(problem.job, changed, problem.devices) &&
        legal(problem.framework, changed)) {
      strategy = changed;
    }
  };
  for (int order = 0; order < int(std::size(kRankOrders)); ++order)
    keep_if_legal([&](Strategy& s) { s.rank_order = RankOrder(order); });
  keep_if_legal([](Strategy& s) { s.schedule = Schedule::gpipe; });
  keep_if_legal([](Strategy& s) { s.gradients.reduction = GradReduction::per_micro_batch; });
  keep_if_legal([&](Strategy& s) {
    s.optimizer.flatten = one_of(random, {Flatten::coalesced, Flatten::none});
  });
  keep_if_legal([&](Strategy& s) {
    s.owners.sharding_owner = one_of(random, {ShardingOwner::prefix, ShardingOwner::greedy});
  });
  keep_if_legal([&](Strategy& s) {
    s.experts.rows_percent = one_of<std::int64_t>(random, {100, 133, 1000});
  });
  keep_if_legal([&](Strategy& s) {
    s.optimizer.offload_percent = one_of<std::int64_t>(random, {1, 50, 100});
    s.optimizer.overlap_offload = random() % 2 == 0;
  });
  keep_if_legal([](Strategy& s) { s.optimizer.paged = true; });
  keep_if_legal([&](Strategy& s) {
    if (random() % 2 == 0) return;
    s.sharding_stage = 3;
    s.optimizer = {.offload_percent = 100};
    s.gathers.offload = true;
  });
  keep_if_legal([&](Strategy& s) {
    s.offloaded = {one_of<std::int64_t>(random, {20, 60, 100}), std::int64_t(random() % 3)};
  });
  keep_if_legal([&](Strategy& s) { s.sharding_stage = std::int64_t(1 + random() % 3); });
  keep_if_legal([&](Strategy& s) {
    drop_recompute(s);
    s.recompute = Recompute::modules;
    for (std::size_t i = 0; i < std::size(kRecomputedModules); ++i) {
      if (random() % 2 == 0 && has_module(problem.job, RecomputedModule(i)))
        s.recomputed.modules.add(RecomputedModule(i));
    }
    s.recomputed.modules = without_parts(s.recomputed.modules);
  });
  keep_if_legal([&](Strategy& s) { s.recomputed.layers = std::int64_t(1 + random() % 2); });
  keep_if_legal([&](Strategy& s) {
    s.recomputed.list = {std::int64_t(random() % std::uint64_t(problem.job.layers))};
  });
}

}  // namespace

Problem random_problem(std::mt19937_64& random) {
  Problem problem;
  problem.job = random_job(random);
  problem.cluster = random_cluster(random);
  if (random() % 3 == 0) {
    problem.calibration = random_calibration(random);
  } else if (random() % 3 == 0) {
    draw_other_devices(random, problem.cluster);
  }
  std::vector<Framework> frameworks = all_frameworks();
  // Bundled with flash attention, for GPUs only: nothing that the others do not search.
  std::erase(frameworks, bundled_cuda_framework());
  problem.framework = frameworks[random() % frameworks.size()];
  problem.framework.host.dispatch.op = Seconds(spread(random, 1e-9, 4));
  problem.devices = one_of<std::int64_t>(random, {1, 2, 3, 4, 6, 8, 12, 16});
  return problem;
}

Problem random_llama_problem(std::mt19937_64& random) {
  Problem problem = random_problem(random);
  draw_llama(random, problem.job);
  check_job(problem.job, "random llama");
  return problem;
}

std::vector<Strategy> random_strategies(const Problem& problem, std::mt19937_64& random,
                                        std::size_t count) {
  const Space space =
      enumerate(problem.job, problem.framework, problem.devices, {}, units_of(problem.cluster));
  std::vector<Strategy> strategies;
  for (std::size_t i = 0; i < count && !space.legal.empty(); ++i) {
    Strategy strategy = space.legal[random() % space.legal.size()];
    strategy.pipeline.send_slots = one_of<std::int64_t>(random, {1, 2, 2, 3});
    if (random() % 2 == 0)
      strategy.gradients.bucket_bytes = Bytes(std::int64_t{4096} << random() % 6);
    if (random() % 4 == 0 && strategy.pp > 1 &&
        strategy.pp * strategy.pipeline.virtual_stages <= total_layers(problem.job)) {
      const Strategy even = strategy;
      strategy.pipeline.embedding_as_layers = strategy.pipeline.loss_as_layers = 0;
      std::int64_t left = total_layers(problem.job);
      const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t others = parts - part - 1;
        const std::int64_t layers =
            others == 0 ? left : 1 + std::int64_t(random() % std::uint64_t(left - others));
        strategy.pipeline.layer_split.push_back(layers);
        left -= layers;
      }
      if (!legal(problem.job, strategy, problem.devices)) strategy = even;  // MTP modules apart
    }
    draw_beside_the_space(problem, random, strategy);
    strategies.push_back(strategy);
  }
  return strategies;
}

std::string describe(const Problem& problem) {
  return fmt::format("{}\n{}\n{} dispatch {} x {}\n", job_text(problem.job),
                     cluster_text(problem.cluster), problem.framework.name,
                     problem.framework.host.dispatch.op.value(), problem.devices);
}

int problems_to_draw(int usual) {
  if (const char* problems = std::getenv("PLIMSOLL_PROBLEMS")) return std::stoi(problems);
#ifdef PLIMSOLL_SANITIZED
  return usual / 5;
#else
  return usual;
#endif
}

}  // namespace plimsoll

// Reads systems as calculon/processor.py, memory.py and network.py of February 2024 have them.
#include "interop/imports/system_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "interop/imports/flag_import.h"

namespace plimsoll {
namespace {

constexpr double kMostSpeed = 1e9;    // in TFLOP/s, GB/s and GiB
constexpr double kMostStep = 1e12;    // in GFLOP and MB
constexpr double kLeastShare = 1e-3;  // as cluster files have it
constexpr double kMostUsage = 0.9;    // of a processor: a slowdown of 10
constexpr double kMostLatency = 1;    // in seconds
constexpr std::int64_t kMostNode = 4096;
constexpr std::int64_t kMostJoined = std::int64_t{1} << 22;
constexpr double kInSwitch = 1.5;  // below this an all-reduce moves its payload once

/// A share of a rate that ops of at least so many FLOP or bytes reach.
struct Step {
  double size = 0, share = 1;
};

/// Reads [[SIZE, SHARE], ...], from large sizes to small ones. Sizes are in `unit`.
std::vector<Step> steps_from(JsonObject& object, const char* key, double unit) {
  std::vector<Step> steps;
  const Json& list = object.raw(key);
  const auto fail = [&] {
    object.fail(key,
                "a list of [size, share] is required, whose sizes get smaller down to 0 and whose "
                "shares are from 0.001 to 1");
  };
  if (!list.is_array() || list.empty()) fail();
  for (const Json& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number())
      fail();
    const Step step{pair[0].get<double>() * unit, pair[1].get<double>()};
    const bool smaller = steps.empty() || step.size < steps.back().size;
    if (!smaller || !(step.size >= 0 && step.size <= kMostStep * unit) ||
        !(step.share >= kLeastShare && step.share <= 1))
      fail();
    steps.push_back(step);
  }
  if (steps.back().size != 0) fail();
  return steps;
}

/// Returns the time that ops take beside what the share of large ones gives: the most that some
/// step loses at the size where it begins. The rate is in FLOP or bytes per second.
Seconds fixed_time(const std::vector<Step>& steps, double rate) {
  double most = 0;
  for (const Step& step : steps)
    most = std::max(most, step.size / rate * (1 / step.share - 1 / steps.front().share));
  return Seconds(std::min(most, 1.0));
}

struct Engine {
  FlopsPerSecond peak;
  std::vector<Step> steps;
};

/// Engines by type of their operands.
struct Engines {
  std::optional<Engine> float32, bfloat16, float16, float8;
};

std::optional<Engine>& engine_of(Engines& engines, JsonObject& object, const std::string& type) {
  if (type == "float32") return engines.float32;
  if (type == "bfloat16") return engines.bfloat16;
  if (type == "float16") return engines.float16;
  if (type != "float8") object.fail(type, "float8, float16, bfloat16 or float32 is required");
  return engines.float8;
}

FlopsPerSecond peak_from(JsonObject& object) {
  return FlopsPerSecond(object.number("tflops", 1e-6, kMostSpeed) * 1e12);
}

/// Earlier files have one peak, and steps for each type; later ones an engine for each type.
Engines engines_from(JsonObject object) {
  Engines engines;
  if (object.has("tflops")) {
    const FlopsPerSecond peak = peak_from(object);
    JsonObject steps = object.object("gflops_efficiency");
    for (const std::string& type : steps.keys())
      engine_of(engines, steps, type) = {peak, steps_from(steps, type.c_str(), 1e9)};
    object.finish();
    return engines;
  }
  for (const std::string& type : object.keys()) {
    JsonObject engine = object.object(type);
    const FlopsPerSecond peak = peak_from(engine);
    engine_of(engines, object, type) = {peak, steps_from(engine, "gflops_efficiency", 1e9)};
    engine.finish();
  }
  return engines;
}

/// Sets peaks, and what products and attention reach of them.
void set_products(const Engines& engines, Cluster& cluster, std::vector<std::string>& notes) {
  Device& device = cluster.device;
  const auto peak_of = [](const std::optional<Engine>& engine) {
    return engine ? std::optional(engine->peak) : std::nullopt;
  };
  device.peak_fp32 = peak_of(engines.float32);
  device.peak_fp16 = peak_of(engines.float16);
  device.peak_bf16 = peak_of(engines.bfloat16);
  device.peak_fp8 = peak_of(engines.float8);
  if (engines.float16 && !engines.bfloat16) {
    device.peak_bf16 = device.peak_fp16;
    notes.emplace_back("float16 is read as the rate of bf16, too");
  }
  const std::optional<Engine>& usual = engines.float16    ? engines.float16
                                       : engines.bfloat16 ? engines.bfloat16
                                       : engines.float32  ? engines.float32
                                                          : engines.float8;
  MatmulEfficiency& matmul = cluster.efficiency->matmul;
  matmul.peak_fraction = usual->steps.front().share;
  matmul.fixed_time = fixed_time(usual->steps, usual->peak.value());
  if (engines.float8)
    matmul.fp8_rate =
        std::clamp(engines.float8->steps.front().share / matmul.peak_fraction, kLeastShare, 1.0);
  for (AttentionEfficiency* attention :
       {&cluster.efficiency->attention_forward, &cluster.efficiency->attention_backward}) {
    attention->peak_fraction = matmul.peak_fraction;
    attention->fixed_time = matmul.fixed_time;
  }
  notes.emplace_back("attention in one kernel is taken to reach what products reach");
}

void set_memory(JsonObject object, Cluster& cluster) {
  const double rate = object.number("GBps", 1e-6, kMostSpeed) * 1e9;
  cluster.device.memory = Bytes(std::int64_t(object.number("GiB", 1e-6, 1e6) * (1 << 30)));
  cluster.device.memory_bandwidth = BytesPerSecond(rate);
  const std::vector<Step> steps = steps_from(object, "MB_efficiency", 1e6);
  object.finish();
  cluster.efficiency->memory.bandwidth_fraction = steps.front().share;
  cluster.efficiency->memory.fixed_time = fixed_time(steps, rate);
}

/// Returns the payloads that an all-reduce moves: a number, or the first of two.
double moved_by_all_reduce(JsonObject ops) {
  for (const char* op : {"p2p", "reduce_scatter", "all_gather"}) ops.raw(op);
  const Json& all_reduce = ops.raw("all_reduce");
  const Json& moved = all_reduce.is_array() && !all_reduce.empty() ? all_reduce[0] : all_reduce;
  if (!moved.is_number()) ops.fail("all_reduce", "a number of payloads is required");
  ops.finish();
  return moved.get<double>();
}

void add_network(JsonObject& object, Cluster& cluster) {
  const std::size_t index = cluster.levels.size();
  Level level;
  level.name = fmt::format("network {}", index);
  level.bandwidth = BytesPerSecond(object.number("bandwidth", 1e-6, kMostSpeed) * 1e9);
  level.latency = Seconds(object.number("latency", 0, kMostLatency));
  level.devices = object.integer("size", 1, kMostJoined);
  if (index > 0 && level.devices % cluster.levels.back().devices != 0) {
    object.fail("size", fmt::format("a multiple of the {} devices of the network before it is "
                                    "required",
                                    cluster.levels.back().devices));
  }
  level.reduces_in_switch = moved_by_all_reduce(object.object("ops")) < kInSwitch && index == 0;
  const double usage = object.number("processor_usage", 0, kMostUsage);
  double& slowdown = cluster.efficiency->overlap.compute_slowdown;
  slowdown = std::max(slowdown, 1 / (1 - usage));
  LevelEfficiency reached;
  reached.bandwidth_fraction = object.number("efficiency", kLeastShare, 1);
  for (const char* key : {"must_be_filled", "collective_minus1_scalar"}) {
    if (object.has(key)) object.boolean(key);
  }
  object.finish();
  cluster.levels.push_back(level);
  cluster.efficiency->levels.push_back(reached);
}

}  // namespace

void read_system_file(Imported& imported, std::string_view text, const std::string& file,
                      const ImportGiven& given) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  Cluster& cluster = imported.cluster.emplace();
  cluster.name = given.name.empty() ? job_name_of(file) : given.name;
  cluster.device.name = cluster.name;
  cluster.efficiency.emplace();
  const Engines engines = engines_from(object.object("matrix"));
  if (!engines.float32 && !engines.bfloat16 && !engines.float16 && !engines.float8)
    object.fail("matrix", "a rate for at least one type is required");
  set_products(engines, cluster, imported.notes);
  set_memory(object.object("mem1"), cluster);
  for (JsonObject& network : object.objects("networks")) add_network(network, cluster);
  if (cluster.levels.empty() || cluster.levels.size() > kMostLevels)
    object.fail("networks", fmt::format("from 1 to {} networks are required", kMostLevels));
  // The outermost network joins all nodes.
  const std::int64_t innermost = cluster.levels.front().devices;
  cluster.devices_per_node = cluster.levels.size() > 1 ? std::min(innermost, kMostNode) : 1;
  imported.notes.push_back(fmt::format("the network of {} devices is read as one of any number",
                                       cluster.levels.back().devices));
  cluster.levels.back().devices = 0;
  for (const char* key : {"vector", "mem2", "processing_mode"}) {
    if (object.has(key)) imported.unread.emplace_back(key);
  }
  object.finish();
  cluster.source = fmt::format("{}, a {}", job_name_of(file), imported.kind);
}

}  // namespace plimsoll

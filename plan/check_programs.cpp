// Rules: the Programs are the ones the strategy lowers to, and memory is theirs.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "graph/text.h"
#include "models/framework/step_memory.h"
#include "plan/check_rules.h"
#include "plan/filling.h"

namespace plimsoll {
namespace {

/// The stages that both the plan states and the passes rebuilt; stage-count reports a difference.
std::size_t common_stages(const CheckContext& context) {
  return std::min(context.programs.size(), context.plan.prediction.stages.size());
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Finding input_digests(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (!is_digest(plan.cluster_digest)) {
    return fmt::format("cluster_digest \"{}\" is not a SHA-256", plan.cluster_digest);
  }
  if (!plan.calibration_digest.empty() && !is_digest(plan.calibration_digest)) {
    return fmt::format("calibration_digest \"{}\" is not a SHA-256", plan.calibration_digest);
  }
  if (!plan.calibration_rest_digest.empty() && !is_digest(plan.calibration_rest_digest)) {
    return fmt::format("calibration_rest_digest \"{}\" is not a SHA-256",
                       plan.calibration_rest_digest);
  }
  if (!plan.calibration_rest_digest.empty() && plan.calibration_digest.empty()) {
    return "calibration_rest_digest is there without calibration_digest";
  }
  return std::nullopt;
}

Finding framework_known(const CheckContext& context) {
  const Framework& stated = context.plan.framework;
  const Framework* preset = find_framework(stated.name);
  if (preset == nullptr) return std::nullopt;  // a file's, which the plan holds whole
  // Devices decide whether flash attention exists, and how 8-bit operands are read.
  Framework known = *preset;
  if (!stated.kernels.attention.flash && preset->kernels.attention.flash)
    known.kernels.attention.flash = known.kernels.attention.by_parts = false;
  known.kernels.products.untransposed_fp8 = stated.kernels.products.untransposed_fp8;
  const bool calibrated = !context.plan.calibration_digest.empty();
  if (stated == known || (calibrated && lowers_alike(stated, known))) return std::nullopt;
  return fmt::format("framework {} differs from the preset of that name in a field or a source",
                     stated.name);
}

Finding framework_on_device(const CheckContext& context) {
  const Plan& plan = context.plan;
  const bool gpu = plan.device_kind != DeviceKind::cpu_core;
  const RunsOn runs_on = plan.framework.facts.runs_on;
  if (runs_on == RunsOn::cpu_cores && gpu) {
    return "the bundled runtime's framework for CPU cores, the devices are GPUs";
  }
  if (runs_on == RunsOn::gpus && !gpu) {
    return "the bundled runtime's framework for GPUs, the devices are CPU cores";
  }
  return std::nullopt;
}

Finding stage_count(const CheckContext& context) {
  const Plan& plan = context.plan;
  const auto& stages = plan.prediction.stages;
  if (std::int64_t(stages.size()) != rank_classes(plan.strategy)) {
    return fmt::format("{} stages are predicted, the strategy has {} classes of ranks",
                       stages.size(), rank_classes(plan.strategy));
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (!is_class(stages[i], plan.strategy, i)) {
      return fmt::format("{} stands at place {}", name_of(stages[i]), i);
    }
  }
  if (plan.program_digests.size() != stages.size()) {
    return fmt::format("{} programs for {} stages", plan.program_digests.size(), stages.size());
  }
  return std::nullopt;
}

Finding program_digests(const CheckContext& context) {
  const auto& stated = context.plan.program_digests;
  for (std::size_t i = 0; i < std::min(stated.size(), context.programs.size()); ++i) {
    const std::string rebuilt = digest(print(context.programs[i]));
    if (rebuilt != stated[i]) {
      return fmt::format("{}: the rebuilt program has digest {}, the plan states {}",
                         class_name(context.programs[i]), rebuilt, stated[i]);
    }
  }
  return std::nullopt;
}

Finding peak_bytes(const CheckContext& context) {
  for (std::size_t i = 0; i < common_stages(context); ++i) {
    const Bytes stated = context.plan.prediction.stages[i].peak;
    if (stated != context.memory[i].peak) {
      return fmt::format("{}: peak of {} bytes stated, its program peaks at {}",
                         class_name(context.programs[i]), stated.count(),
                         context.memory[i].peak.count());
    }
  }
  return std::nullopt;
}

Finding peak_by_class(const CheckContext& context) {
  for (std::size_t i = 0; i < common_stages(context); ++i) {
    const BytesByRole& stated = context.plan.prediction.stages[i].by_role;
    const BytesByRole& rebuilt = context.memory[i].by_role;
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      if (stated[role] == rebuilt[role]) continue;
      return fmt::format("{}: {} bytes of class {} stated at the peak, its program has {}",
                         class_name(context.programs[i]), stated[role].count(),
                         to_text(TensorRole(role)), rebuilt[role].count());
    }
  }
  return std::nullopt;
}

Finding arena_bytes(const CheckContext& context) {
  for (std::size_t i = 0; i < common_stages(context); ++i) {
    const StagePrediction& stage = context.plan.prediction.stages[i];
    if (stage.arena != context.programs[i].arena_bytes) {
      return fmt::format("{}: arena of {} bytes stated, its program lays out {}",
                         class_name(context.programs[i]), stage.arena.count(),
                         context.programs[i].arena_bytes.count());
    }
  }
  return std::nullopt;
}

Finding fits_capacity(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (context.programs.empty()) return std::nullopt;  // the strategy is not legal
  const std::vector<Filling> fillings = fillings_of(plan);
  for (std::size_t i = 0; i < fillings.size(); ++i) {
    const Filling& filling = fillings[i];
    if (filling.fits()) continue;
    return fmt::format(
        "{}: {} bytes of tensors, {} of context and communicators and {} of reserve do not fit the "
        "device's {}",
        name_of(plan.prediction.stages[i]), filling.reserved.count(), filling.outside.count(),
        filling.reserve.count(), filling.capacity.count());
  }
  return std::nullopt;
}

Finding reserved_bytes(const CheckContext& context) {
  const bool arena = context.plan.framework.memory.allocator.kind == AllocatorKind::arena;
  for (const StagePrediction& stage : context.plan.prediction.stages) {
    if (arena && (stage.allocated != stage.peak || stage.reserved != stage.arena)) {
      return fmt::format(
          "{}: {} bytes handed out and {} taken of the device, but {} and {} in an "
          "arena",
          name_of(stage), stage.allocated.count(), stage.reserved.count(), stage.peak.count(),
          stage.arena.count());
    }
    if (stage.allocated > stage.reserved) {
      return fmt::format("{}: {} bytes handed out of {}", name_of(stage), stage.allocated.count(),
                         stage.reserved.count());
    }
  }
  return std::nullopt;
}

/// The bytes that any allocator holds at once at the end of a step: all that lives between steps,
/// but for what a framework makes anew in each.
Bytes least_allocated(const Program& program, const Framework& framework) {
  const bool sharded = program.sharding_degree > 1;
  Bytes sum;
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent || buffer.on_host || made_in_steps(framework, buffer.role, sharded))
      continue;
    sum += buffer.bytes;
  }
  return sum;
}

Finding allocated_bytes(const CheckContext& context) {
  for (std::size_t i = 0; i < common_stages(context); ++i) {
    const StagePrediction& stage = context.plan.prediction.stages[i];
    const Bytes least = least_allocated(context.programs[i], context.plan.framework);
    if (stage.allocated < least) {
      return fmt::format("{}: {} bytes handed out, {} of its program live between steps",
                         name_of(stage), stage.allocated.count(), least.count());
    }
  }
  return std::nullopt;
}

Finding one_capacity(const CheckContext& context) {
  const auto& stages = context.plan.prediction.stages;
  if (context.plan.mixed_devices) return std::nullopt;
  for (const StagePrediction& stage : stages) {
    if (stage.capacity != stages.front().capacity) {
      return fmt::format(
          "stage {} has {} bytes of memory, stage {} has {}: a cluster has one kind "
          "of device",
          stage.stage, stage.capacity.count(), stages.front().stage,
          stages.front().capacity.count());
    }
  }
  return std::nullopt;
}

constexpr CheckRule kProgramRules[] = {
    {{"input-digests", "Cluster and, if given, calibration are named by their SHA-256."},
     input_digests},
    {{"framework-known",
      "The framework is the preset of its name, but for what devices decide, and for "
      "host time and memory outside tensors that a calibration measured."},
     framework_known},
    {{"framework-on-device", "The bundled runtime is planned for CPU cores only."},
     framework_on_device},
    {{"stage-count", "One prediction and one program for every class of ranks, in order."},
     stage_count},
    {{"program-digests", "The passes rebuild the very programs the plan was predicted for."},
     program_digests},
    {{"peak-bytes", "The stated peak of a stage is the peak of its program."}, peak_bytes},
    {{"peak-by-class", "The stated bytes of every class are those at the program's first peak."},
     peak_by_class},
    {{"arena-bytes", "The stated arena of a stage is the one its program lays out."}, arena_bytes},
    {{"reserved-bytes",
      "What is taken of the device holds what is handed out; with an arena they are that and the "
      "peak."},
     reserved_bytes},
    {{"allocated-bytes", "What is handed out holds at least what its program keeps between steps."},
     allocated_bytes},
    {{"fits-capacity",
      "The tensors of every stage, and what the framework holds in addition, fit its "
      "device."},
     fits_capacity},
    {{"one-capacity",
      "All stages state the same device memory, unless devices are of several kinds."},
     one_capacity},
};

}  // namespace

std::span<const CheckRule> program_rules() { return kProgramRules; }

}  // namespace plimsoll

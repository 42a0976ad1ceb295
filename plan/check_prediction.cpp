// Rules: the step time and the numbers made from it agree with each other and with the job.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/op_table.h"
#include "plan/check_rules.h"
#include "plan/memory_interval.h"

namespace plimsoll {
namespace {

/// Rules that divide by the step are silent where it takes no time: step-time-positive says so.
bool takes_time(const Plan& plan) {
  const double time = plan.prediction.step_time.value();
  return std::isfinite(time) && time > 0;
}

/// FLOPs all devices could do in a step at the stated peak; 0 when the plan states nonsense.
double available_flops(const Plan& plan) {
  const double flops = plan.prediction.step_time.value() * static_cast<double>(plan.devices) *
                       plan.prediction.peak_flops.value();
  return std::isfinite(flops) && flops > 0 ? flops : 0;
}

double model_flops(const Job& job) {
  return training_matmul_flops_per_sequence(job).value() * static_cast<double>(job.global_batch);
}

/// Matmul work that the Programs repeat in one step, over all ranks.
double recomputed_flops(const CheckContext& context) {
  double total = 0;
  for (const Program& program : context.programs) {
    double per_rank = 0;
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      for (const Op& op : routine.ops) {
        if (op.phase == Phase::recompute) per_rank += flops(op, routine.tensors).value();
      }
    }
    total += per_rank * static_cast<double>(ranks_per_class(context.programs));
  }
  return total;
}

Finding step_time_positive(const CheckContext& context) {
  if (takes_time(context.plan)) return std::nullopt;
  return fmt::format("a step of {} s; a step takes time",
                     context.plan.prediction.step_time.value());
}

/// The step time may lie outside: published runs may have taken longer than predicted.
Finding interval_ends(const CheckContext& context) {
  const Prediction& prediction = context.plan.prediction;
  const double low = prediction.step_time_low.value(), high = prediction.step_time_high.value();
  if (low >= 0 && low <= high && std::isfinite(high)) return std::nullopt;
  return fmt::format("the interval of the step time goes from {} s to {} s", low, high);
}

/// The Programs' memory has rules of its own.
Finding memory_interval_stated(const CheckContext& context) {
  const MemoryInterval& said = context.plan.prediction.memory;
  const MemoryInterval right = memory_interval(context.plan);
  if (said == right) return std::nullopt;
  return fmt::format("{} bytes taken ({} to {}), {}; the stages say {} ({} to {}), {}",
                     said.taken.count(), said.low.count(), said.high.count(),
                     kMemoryVerdicts[std::size_t(said.verdict)], right.taken.count(),
                     right.low.count(), right.high.count(),
                     kMemoryVerdicts[std::size_t(right.verdict)]);
}

Finding tokens_per_second(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (!takes_time(plan)) return std::nullopt;
  const auto tokens = static_cast<double>(tokens_per_step(plan.job));
  const double rate = tokens / plan.prediction.step_time.value();
  if (nearly_equal(plan.prediction.tokens_per_second, rate)) return std::nullopt;
  return fmt::format("{} tokens/s stated; {} tokens in {} s are {}",
                     plan.prediction.tokens_per_second, tokens, plan.prediction.step_time.value(),
                     rate);
}

Finding mfu_range(const CheckContext& context) {
  const double mfu = context.plan.prediction.mfu;
  if (mfu > 0 && mfu <= 1) return std::nullopt;
  return fmt::format("MFU {}; it is above 0 and at most 1", mfu);
}

Finding mfu_formula(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (!takes_time(plan)) return std::nullopt;
  const double available = available_flops(plan);
  if (available == 0) return "peak_flops_per_s must be finite and positive";
  const double mfu = model_flops(plan.job) / available;
  if (nearly_equal(mfu, plan.prediction.mfu)) return std::nullopt;
  return fmt::format("MFU {} stated; {} FLOPs of the model in {} available ones are {}",
                     plan.prediction.mfu, model_flops(plan.job), available, mfu);
}

Finding hfu_formula(const CheckContext& context) {
  const Plan& plan = context.plan;
  const double available = available_flops(plan);
  if (available == 0 || context.programs.empty()) return std::nullopt;
  const double hfu = (model_flops(plan.job) + recomputed_flops(context)) / available;
  if (nearly_equal(hfu, plan.prediction.hfu)) return std::nullopt;
  return fmt::format("HFU {} stated; with the {} FLOPs that the programs recompute it is {}",
                     plan.prediction.hfu, recomputed_flops(context), hfu);
}

Finding peak_source(const CheckContext& context) {
  if (!context.plan.prediction.peak_source.empty()) return std::nullopt;
  return "MFU is relative to a peak without a stated source";
}

struct Term {
  std::string_view name;
  double seconds;
};

std::array<Term, 7> terms(const Breakdown& breakdown) {
  return {{{"forward", breakdown.forward.value()},
           {"recompute", breakdown.recompute.value()},
           {"backward", breakdown.backward.value()},
           {"optimizer", breakdown.optimizer.value()},
           {"exposed communication", breakdown.exposed_communication.value()},
           {"bubble", breakdown.bubble.value()},
           {"dispatch", breakdown.dispatch.value()}}};
}

/// Each term is rounded to picoseconds on its own.
double breakdown_slack(const Plan& plan) {
  return 1e-11 + 1e-9 * std::abs(plan.prediction.step_time.value());
}

Finding breakdown_not_negative(const CheckContext& context) {
  for (const Term& term : terms(context.plan.prediction.breakdown)) {
    if (!(term.seconds >= -breakdown_slack(context.plan))) {
      return fmt::format("{} takes {} s; no part of a step is negative", term.name, term.seconds);
    }
  }
  return std::nullopt;
}

Finding breakdown_sums(const CheckContext& context) {
  double sum = 0;
  for (const Term& term : terms(context.plan.prediction.breakdown)) sum += term.seconds;
  const double step = context.plan.prediction.step_time.value();
  if (std::abs(sum - step) <= breakdown_slack(context.plan)) return std::nullopt;
  return fmt::format("the parts of the step sum to {} s, the step takes {} s", sum, step);
}

Finding recompute_as_chosen(const CheckContext& context) {
  const double time = context.plan.prediction.breakdown.recompute.value();
  if (context.plan.strategy.recompute != Recompute::none || time == 0) return std::nullopt;
  return fmt::format("{} s of recompute in a strategy that recomputes nothing", time);
}

Finding provenance_shares(const CheckContext& context) {
  const Prediction& prediction = context.plan.prediction;
  double sum = 0;
  for (std::size_t i = 0; i < prediction.share_by_provenance.size(); ++i) {
    const double share = prediction.share_by_provenance[i];
    const std::string_view name = to_text(Provenance(i));
    if (!(share >= 0)) return fmt::format("a share of {} is {}", share, name);
    if (share > 0 && i > std::size_t(prediction.worst)) {
      return fmt::format("{} of the time is {}, yet the worst provenance stated is {}", share, name,
                         to_text(prediction.worst));
    }
    sum += share;
  }
  if (std::abs(sum - 1) <= 1e-9) return std::nullopt;
  return fmt::format("the shares by provenance sum to {}, not 1", sum);
}

Finding extrapolated_named(const CheckContext& context) {
  const Prediction& prediction = context.plan.prediction;
  const double share = prediction.share_by_provenance[std::size_t(Provenance::extrapolated)];
  if ((share > 0) != !prediction.extrapolated.empty()) {
    return fmt::format("{} of the time is extrapolated, and {} of its ops are named", share,
                       prediction.extrapolated.size());
  }
  double before = std::numeric_limits<double>::infinity();
  for (const OutsideRange& ops : prediction.extrapolated) {
    if (ops.what.empty()) return "extrapolated ops without a name";
    if (!(ops.share > 0)) return fmt::format("{} has a share of {}", ops.what, ops.share);
    if (ops.share > before) return fmt::format("{} comes after a smaller share", ops.what);
    before = ops.share;
  }
  return std::nullopt;
}

Finding provenance_has_calibration(const CheckContext& context) {
  const Plan& plan = context.plan;
  if (!plan.calibration_digest.empty()) return std::nullopt;
  for (const Provenance label : {Provenance::measured, Provenance::fitted, Provenance::typical}) {
    const double share = plan.prediction.share_by_provenance[std::size_t(label)];
    if (share == 0) continue;
    return fmt::format("{} of the time is {}, yet no calibration is named", share, to_text(label));
  }
  return std::nullopt;
}

Finding timing_claim(const CheckContext& context) {
  if (!context.plan.oversubscribed || context.plan.device_kind == DeviceKind::cpu_core) {
    return std::nullopt;
  }
  return "oversubscribed, yet the devices are no CPU cores: only cores can be shared by ranks";
}

constexpr CheckRule kPredictionRules[] = {
    {{"step-time-positive", "A step takes a finite time above zero."}, step_time_positive},
    {{"interval-ends", "The interval of the step time does not end before it begins."},
     interval_ends},
    {{"memory-interval", "The memory's interval and verdict are those of the fullest stage."},
     memory_interval_stated},
    {{"tokens-per-second", "Tokens per second are the batch's tokens over the step time."},
     tokens_per_second},
    {{"mfu-range", "MFU is above 0 and at most 1."}, mfu_range},
    {{"mfu-formula", "MFU is three forward passes over what the devices could do in a step."},
     mfu_formula},
    {{"hfu-formula", "HFU adds exactly the matmul work that the programs recompute."}, hfu_formula},
    {{"peak-source", "The peak that MFU is relative to has a source."}, peak_source},
    {{"breakdown-not-negative", "No part of the step is negative."}, breakdown_not_negative},
    {{"breakdown-sums", "The parts of the step sum to the step time."}, breakdown_sums},
    {{"recompute-as-chosen", "Time goes into recompute only if the strategy recomputes."},
     recompute_as_chosen},
    {{"provenance-shares", "Shares by provenance sum to 1 and none is worse than the worst."},
     provenance_shares},
    {{"extrapolated-named", "Extrapolated ops are named, those with the largest share first."},
     extrapolated_named},
    {{"provenance-has-calibration",
      "Only a calibration makes times measured, fitted or typical ones."},
     provenance_has_calibration},
    {{"timing-claim", "Only CPU cores can be oversubscribed."}, timing_claim},
};

}  // namespace

std::span<const CheckRule> prediction_rules() { return kPredictionRules; }

}  // namespace plimsoll

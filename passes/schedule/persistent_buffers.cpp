// Persistent buffers get the sizes that follow from a layout.
#include "passes/schedule/persistent_buffers.h"

#include <algorithm>

#include "passes/graph/step_ops.h"
#include "passes/strategy/offload_rules.h"
#include "passes/strategy/precision_rules.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

namespace {

class PersistentBuffers {
 public:
  PersistentBuffers(const Graph& graph, const PassContext& context, const ArenaLayout& layout,
                    ProgramBuilder& build)
      : graph_(graph),
        context_(context),
        layout_(layout),
        build_(build),
        scattered_(mixes_types(graph)),
        owned_(owned_elements(build.program)) {}

  StageArenas add(std::int64_t resident) {
    StageArenas arenas;
    arenas.parameters = add("parameters", TensorRole::parameter, parameter_bytes());
    build_.buffer(arenas.parameters).on_host = keeps_trained_on_host(context_.strategy);
    if (resident > 0) {
      arenas.resident = add("resident_parameters", TensorRole::parameter,
                            resident * bytes_of(layout_.parameter_type()));
    }
    if (const Bytes frozen = frozen_bytes(); frozen > Bytes()) {
      arenas.frozen = add("frozen_parameters", TensorRole::frozen_parameter, frozen);
      build_.buffer(arenas.frozen).on_host = context_.strategy.gathers.offload;
    }
    const bool has_masters = context_.strategy.precision.main_parameters != MasterType::none;
    const auto is_low = [&](std::int64_t at) {
      return has_masters && layout_.parameters.at(at) != kGradientType;
    };
    on_host_ = host_elements(context_.strategy, updated_by_rank());
    if (const std::int64_t masters = updated(is_low); masters > on_host_) {
      arenas.masters = add("master_parameters", TensorRole::master_parameter,
                           (masters - on_host_) * bytes_of(master_dtype(context_.strategy)));
    }
    if (!context_.strategy.gradients.release) add_gradients(arenas);
    if (const auto& types = layout_.micro_batch_gradients) {
      arenas.micro_batch_gradients =
          add("micro_batch_gradients", TensorRole::gradient, types->offset(layout_.elements));
    }
    add_state(arenas);
    arenas.scalars = add("scalars", TensorRole::scalar, kScalars * kElement);
    if (context_.framework.memory.process.workspace > Bytes(0)) {
      add("workspace", TensorRole::workspace, context_.framework.memory.process.workspace);
    }
    return arenas;
  }

 private:
  static constexpr Bytes kElement{4};  ///< of kGradientType

  BufferId add(const char* name, TensorRole role, Bytes bytes) {
    return build_.add_persistent(name, role, bytes);
  }

  void add_gradients(StageArenas& arenas) {
    const bool part = shards_gradients(context_.strategy);
    arenas.gradients = add("gradients", TensorRole::gradient,
                           (part ? owned_ : layout_.elements) * bytes_of(layout_.gradient_type()));
    const bool all = on_host_ > 0 && on_host_ == updated_by_rank();
    build_.buffer(arenas.gradients).on_host =
        context_.framework.memory.host_gradients && part && all;
  }

  void add_state(StageArenas& arenas) {
    if (owned_ == 0) return;
    const bool two = context_.job.optimizer.kind != OptimizerKind::sgd;
    if (on_host_ > 0) add_host_state(arenas, two);
    const std::int64_t updated = updated_by_rank() - on_host_;
    const Bytes scales = moment_scale_bytes(context_.strategy, updated);
    if (updated == 0) return;
    const auto add_moment = [&](const char* name, const char* paged, std::size_t moment) {
      const std::int64_t count = updates_matrices(context_.job) ? one_by_one(moment) : updated;
      const Bytes bytes = count * bytes_of(moment_dtype(context_.strategy));
      const bool on_host = context_.strategy.optimizer.paged;
      BufferId& of_host = moment == 0 ? arenas.host_first_moment : arenas.host_second_moment;
      BufferId& of_device = moment == 0 ? arenas.first_moment : arenas.second_moment;
      if (count == 0) return;
      if (on_host)
        of_host = build_.add_on_host(paged, TensorRole::optimizer_state, bytes);
      else
        of_device = add(name, TensorRole::optimizer_state, bytes);
    };
    add_moment("first_moment", "host_first_moment", 0);
    if (two) add_moment("second_moment", "host_second_moment", 1);
    if (scales > Bytes())
      arenas.moment_scales =
          add("moment_scales", TensorRole::optimizer_state, two ? 2 * scales : scales);
  }

  void add_host_state(StageArenas& arenas, bool two_moments) {
    const auto add = [&](const char* name, TensorRole role) {
      return build_.add_on_host(name, role, on_host_ * kElement);
    };
    // Parameters in f32 that are there already are the ones that the host updates.
    if (!keeps_trained_on_host(context_.strategy) || layout_.parameter_type() != kGradientType)
      arenas.host_parameters = add("host_parameters", TensorRole::master_parameter);
    arenas.host_gradients = add("host_gradients", TensorRole::communication);
    arenas.host_first_moment = add("host_first_moment", TensorRole::optimizer_state);
    if (two_moments)
      arenas.host_second_moment = add("host_second_moment", TensorRole::optimizer_state);
  }

  /// Returns the elements of a moment of tensors that are updated one by one.
  std::int64_t one_by_one(std::size_t moment) const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < layout_.segments.size(); ++i) {
      const Segment& segment = layout_.segments[i];
      if (!segment.owner || segment.owner == build_.program.owner)
        count += moment_elements(graph_, context_.job, layout_.parameter[i], moment);
    }
    return count;
  }

  std::int64_t updated_by_rank() const {
    return updated([](std::int64_t) { return true; });
  }

  /// Only gathers reach behind the last frozen parameter.
  Bytes frozen_bytes() const {
    if (layout_.frozen.empty()) return {};
    Bytes all;
    for (const FrozenRange& range : layout_.frozen_ranges) all += range.bytes;
    const Segment& last = layout_.frozen.back();
    return shards_parameters(context_.strategy)
               ? Bytes(all.count() / build_.program.sharding_degree)
               : Bytes(last.offset) + last.elements * bytes_of(last.dtype);
  }

  Bytes parameter_bytes() const {
    if (layout_.segments.empty()) return {};
    if (shards_parameters(context_.strategy)) return owned_ * bytes_of(layout_.parameter_type());
    // Where updates run tensor by tensor and without a collective, no op reads behind the last
    // tensor.
    const bool one_by_one = scattered_ && context_.strategy.optimizer.flatten == Flatten::none &&
                            optimizer_shards(context_.strategy) == 1;
    const Segment& last = layout_.segments.back();
    return layout_.parameters.offset(one_by_one ? last.offset + last.elements : layout_.elements);
  }

  /// Returns the elements that this rank updates, of those for which `counts` returns true.
  template <class Counts>
  std::int64_t updated(Counts counts) const {
    const auto is_own = [&](const auto& one) { return one.owner == build_.program.owner; };
    std::int64_t elements = 0, end = 0;
    for (const Bucket& bucket : layout_.buckets) {
      if (!is_own(bucket) || !counts(bucket.begin)) continue;
      elements += bucket.elements / shards(build_.program, bucket);
      end = bucket.begin + bucket.elements;
    }
    if (context_.strategy.optimizer.flatten != Flatten::none || elements == 0) return elements;
    const auto last = std::find_if(
        layout_.segments.rbegin(), layout_.segments.rend(),
        [&](const Segment& segment) { return is_own(segment) && counts(segment.offset); });
    return elements - (end - last->offset - last->elements);
  }

  const Graph& graph_;
  const PassContext& context_;
  const ArenaLayout& layout_;
  ProgramBuilder& build_;
  const bool scattered_;  ///< routines have a slot for each tensor
  const std::int64_t owned_;
  std::int64_t on_host_ = 0;  ///< elements that the host updates
};

}  // namespace

StageArenas add_persistent_buffers(const Graph& graph, const PassContext& context,
                                   const ArenaLayout& layout, std::int64_t resident,
                                   ProgramBuilder& build) {
  return PersistentBuffers(graph, context, layout, build).add(resident);
}

}  // namespace plimsoll

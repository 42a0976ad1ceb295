// Parameters in the type of the computation are written from f32 masters, by an op of its own or at
// the end of an update.
#include "runtime/arena.h"
#include "runtime/cpu/kernels.h"
#include "runtime/half.h"

namespace plimsoll {

namespace {

/// Writes the parameters that this rank, or an update of a range, updates, or a whole tensor where
/// masters are no arena.
class MasterCast {
 public:
  MasterCast(const KernelRequest& request, const Tensor& masters, const Tensor& state,
             const Tensor& parameters)
      : type_(parameters.dtype), part_(keeps_part(parameters, request.context)) {
    AdamParams range;
    if (const auto* adam = std::get_if<AdamParams>(&request.op.params))
      range.begin = adam->begin, range.end = adam->end;
    ranges_ = updated_ranges(masters, state, request.context, range);
    begin_ = state_begin(state, range);
  }

  void run(const std::byte* masters, std::byte* parameters) const {
    const auto* values = reinterpret_cast<const float*>(masters);
    for (const OwnedRange& range : ranges_) {
      const std::int64_t from = begin_ + range.state_offset;
      const std::int64_t at = part_ ? from : range.arena_offset;
      from_f32(type_, values + from, parameters + at * element_bytes(type_), range.elements);
    }
  }

 private:
  DType type_;
  bool part_;               ///< only what this rank updates is there (sharding stage 3)
  std::int64_t begin_ = 0;  ///< of the moments, in the rank's state
  std::vector<OwnedRange> ranges_;
};

}  // namespace

KernelPointer prepare_cast_parameters(const KernelRequest& request) {
  const MasterCast cast(request, request.input(0), request.input(0), request.output(0));
  return make_kernel(
      [cast](Addresses in, Addresses out, const RunPosition&) { cast.run(in[0], out[0]); });
}

KernelPointer prepare_casting_update(const KernelRequest& request, KernelPointer update) {
  class CastingUpdate final : public Kernel {
   public:
    CastingUpdate(const MasterCast& cast, KernelPointer update)
        : cast_(cast), update_(std::move(update)) {}
    void run(Addresses in, Addresses out, const RunPosition& position) override {
      update_->run(in, out.first(out.size() - 1), position);
      cast_.run(out[0], out.back());  // of a skipped step: what is there already
    }

   private:
    MasterCast cast_;
    KernelPointer update_;
  };
  const std::size_t last = request.op.outputs.size() - 1;
  return std::make_unique<CastingUpdate>(
      MasterCast(request, request.output(0), request.input(2), request.output(last)),
      std::move(update));
}

}  // namespace plimsoll

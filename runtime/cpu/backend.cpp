// The CPU backend lists its ops and the functions that prepare them.
#include "runtime/cpu/backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <dnnl.hpp>

#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/kernel_table.h"
#include "runtime/operand_types.h"

namespace plimsoll {

namespace {

using Prepare = KernelPointer (*)(const KernelRequest&);

constexpr std::array<OpKind, 0> kLacking = {};

constexpr std::array<Prepare, kOpKinds> kPrepare = {{
#define PLIMSOLL_OP(op, ...) has_kernel(OpKind::op, kLacking) ? prepare_##op : nullptr,
#include "graph/ops.def"
}};
#ifndef PLIMSOLL_SANITIZED  // with sanitizers gcc compares no addresses of functions at compile
                            // time
static_assert(covers_ops(kPrepare, kLacking));
#endif

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    if (kPrepare[std::size_t(op.kind)] == nullptr) {
      return Verdict::no(fmt::format("the cpu backend has no kernel for {}", to_text(op.kind)));
    }
    if (Verdict verdict = check_operand_types(op, tensors, name()); !verdict) return verdict;
    return check_operands(op, tensors);
  }

  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    const Verdict verdict = supports(op, tensors);
    INVARIANT(bool(verdict), verdict.reason());
    const OneThread one_thread;
    const KernelRequest request{op, tensors, context, library_};
    auto kernel = kPrepare[std::size_t(op.kind)](request);
    return updates_parameters(op) ? prepare_casting_update(request, std::move(kernel))
                                  : std::move(kernel);
  }

  void enter_thread() override { omp_set_num_threads(1); }

 private:
  OneDnn library_;
};

}  // namespace

std::byte* Scratch::take(Bytes size) {
  const Bytes begin = used_;
  used_ += round_up(size, kBlockAlignment);
  const Bytes available{std::int64_t(workspace_.size())};
  if (used_ > available) {
    throw EnvironmentError(
        fmt::format("{} needs at least {} bytes of workspace; the framework states {}",
                    to_text(kind_), used_.count(), available.count()));
  }
  return workspace_.data() + begin.count();
}

float* Scratch::take_floats(std::int64_t count) {
  return reinterpret_cast<float*>(take(Bytes(count * std::int64_t(sizeof(float)))));
}

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll

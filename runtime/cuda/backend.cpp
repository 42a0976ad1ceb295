// The CUDA backend of one rank has its queue and its library, and lists the functions that prepare
// kernels.
#include "runtime/cuda/backend.h"

#include <fmt/format.h>

#include <array>

#include "graph/op_table.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/queue.h"
#include "runtime/operand_types.h"

namespace plimsoll {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index) : queue_(index) {}

  std::string_view name() const override { return "cuda"; }

  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    if (cuda_prepare_function(op.kind) == nullptr) {
      return Verdict::no(fmt::format("the cuda backend has no kernel for {}", to_text(op.kind)));
    }
    if (Verdict verdict = check_operand_types(op, tensors, name()); !verdict) return verdict;
    if (Verdict verdict = check_operands(op, tensors); !verdict) return verdict;
    return cuda_kernel_limits(op, tensors);
  }

  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    const Verdict verdict = supports(op, tensors);
    if (!verdict) throw EnvironmentError(verdict.reason());
    queue_.set_workspace(context.workspace);
    queue_.set_examples(context);
    return cuda_prepare_function(op.kind)({op, tensors, context, queue_.device()});
  }

  void enter_thread() override { queue_.use(); }
  RankDevice* device() override { return &queue_; }

 private:
  CudaQueue queue_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::int64_t local_rank) {
  return std::make_unique<CudaBackend>(int(local_rank % device_count()));
}

void add_cuda_backend() { add_backend("cuda", make_cuda_backend); }

DeviceFacts cuda_device_facts(std::int64_t local_rank) {
  const CudaDevice device = open_device(int(local_rank % device_count()));
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "memory of the GPU");
  std::array<char, 32> bus = {};
  check(cudaDeviceGetPCIBusId(bus.data(), int(bus.size()), device.index), "where the GPU is");
  return {device_name(device.index), bus.data(), Bytes(std::int64_t(total)), device.multiprocessors,
          device.compute_capability};
}

}  // namespace plimsoll

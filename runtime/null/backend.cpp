// Kernels that do nothing.
#include "runtime/null/backend.h"

namespace plimsoll {

namespace {

class NullKernel final : public Kernel {
 public:
  void run(std::span<std::byte* const>, std::span<std::byte* const>, const RunPosition&) override {}
};

class NullBackend final : public Backend {
 public:
  std::string_view name() const override { return "null"; }
  Verdict supports(const Op&, std::span<const Tensor>) const override { return Verdict::yes(); }
  std::unique_ptr<Kernel> prepare(const Op&, std::span<const Tensor>, const RankContext&) override {
    return std::make_unique<NullKernel>();
  }
};

}  // namespace

std::unique_ptr<Backend> make_null_backend() { return std::make_unique<NullBackend>(); }

}  // namespace plimsoll

// Speed of every op case: GFLOP/s for matmuls, GB/s for the rest. On the CPU backend, or with
// --backend=cuda on a GPU, where runs are timed by events on its stream.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/backend.h"
#include "runtime/cpu/backend.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_runner.h"
#ifdef PLIMSOLL_CUDA
#include "runtime/cuda/backend.h"
#endif

namespace plimsoll {
namespace {

constexpr std::int64_t kRunsAtOnce = 16;  ///< of a device, between two events

void run_case_benchmark(benchmark::State& state, const OpCase& c, Backend& backend) {
  if (const Verdict verdict = backend.supports(c.op, c.tensors); !verdict) {
    state.SkipWithError(verdict.reason().c_str());
    return;
  }
  PreparedCase prepared(backend, c);
  const bool on_device = backend.device() != nullptr;
  for (auto _ : state) {
    if (on_device) {
      state.SetIterationTime(prepared.time_on_device(kRunsAtOnce).value());
    } else {
      prepared.run();
    }
  }
  using benchmark::Counter;
  const double work = flops(c.op, c.tensors).value();
  if (work > 0) {
    state.counters["FLOP/s"] = Counter(work, Counter::kIsIterationInvariantRate);
    if (!on_device) {
      state.SetLabel(cpu_matmul_implementation(c.op, c.tensors) + ", workspace " +
                     to_text(cpu_matmul_workspace(c.op, c.tensors)));
    }
  } else {
    const auto moved = double(bytes_moved(c.op, c.tensors).count());
    state.counters["bytes/s"] = Counter(moved, Counter::kIsIterationInvariantRate);
  }
}

/// Returns the cases. A device also has them in bf16, in which it trains.
std::vector<OpCase> cases_for(bool on_device) {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases(kBenchSizes)) {
    auto half = on_device ? in_type(c, DType::bf16) : std::nullopt;
    cases.push_back(std::move(c));
    if (half) cases.push_back(*std::move(half));
  }
  return cases;
}

/// Takes --backend=NAME out of the command line.
std::string backend_from(int& argc, char** argv) {
  constexpr std::string_view kFlag = "--backend=";
  std::string backend = "cpu";
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* word) {
    if (!std::string_view(word).starts_with(kFlag)) return false;
    backend = word + kFlag.size();
    return true;
  });
  argc = int(end - argv);
  return backend;
}

int bench(int argc, char** argv) {
#ifdef PLIMSOLL_CUDA
  add_cuda_backend();
#endif
  const std::string name = backend_from(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return int(ExitCode::usage);
  std::unique_ptr<Backend> backend;
  try {
    backend = make_backend(name);
  } catch (const EnvironmentError& error) {
    std::printf("skipped: %s\n", error.what());
    return int(ExitCode::ok);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "ops_bench: %s\n", error.what());
    return int(ExitCode::usage);
  }
  const bool on_device = backend->device() != nullptr;
  const std::vector<OpCase> cases = cases_for(on_device);
  for (const OpCase& c : cases) {
    auto* const benchmark = benchmark::RegisterBenchmark(
        c.name.c_str(), [&](benchmark::State& state) { run_case_benchmark(state, c, *backend); });
    if (on_device) benchmark->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return int(ExitCode::ok);
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) { return plimsoll::bench(argc, argv); }

// Speed of every op case on the CPU backend: GFLOP/s for matmuls, GB/s for the rest.
#include <benchmark/benchmark.h>

#include "graph/op_table.h"
#include "runtime/backend.h"
#include "runtime/cpu/backend.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

void run_case_benchmark(benchmark::State& state, const OpCase& c) {
  const auto backend = make_backend("cpu");
  PreparedCase prepared(*backend, c);
  for (auto _ : state) prepared.run();
  using benchmark::Counter;
  const double work = flops(c.op, c.tensors).value();
  if (work > 0) {
    state.counters["FLOP/s"] = Counter(work, Counter::kIsIterationInvariantRate);
    state.SetLabel(cpu_matmul_implementation(c.op, c.tensors) + ", workspace " +
                   to_text(cpu_matmul_workspace(c.op, c.tensors)));
  } else {
    const auto moved = double(bytes_moved(c.op, c.tensors).count());
    state.counters["bytes/s"] = Counter(moved, Counter::kIsIterationInvariantRate);
  }
}

/// Registered before main, which is the library's.
const bool registered = [] {
  static const std::vector<OpCase> cases = op_cases(kBenchSizes);
  for (const OpCase& c : cases) {
    benchmark::RegisterBenchmark(c.name.c_str(),
                                 [&c](benchmark::State& state) { run_case_benchmark(state, c); });
  }
  return true;
}();

}  // namespace
}  // namespace plimsoll

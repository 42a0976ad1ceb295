// Matmuls by tiles and waves, and memory-bound ops: times a reader can compute by hand.
#include "simulator/costs/efficiency_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "models/cluster/cluster.h"

namespace plimsoll {
namespace {

constexpr FlopsPerSecond kPeak(1e12);

/// 4 units of 250 GFLOP/s each, half of it reached; memory so fast that it does not count.
Device device(double memory_bandwidth = 1e18) {
  Device device;
  device.memory_bandwidth = BytesPerSecond(memory_bandwidth);
  device.peak_bf16 = kPeak;
  return device;
}

Efficiency four_units() {
  Efficiency efficiency;
  efficiency.matmul.peak_fraction = 0.5;
  efficiency.matmul.units = 4;
  return efficiency;
}

double microseconds(const MatmulShape& shape, const Efficiency& efficiency,
                    const Device& on = device(), Bytes moved = Bytes(0)) {
  return 1e6 * efficient_matmul(shape, 8, moved, DType::bf16, kPeak, on, efficiency).time.value();
}

double ideal(const MatmulShape& s) {
  return 2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k) / 0.5e12 * 1e6;
}

TEST(EfficientMatmul, WholeWavesReachTheFraction) {
  const MatmulShape whole{1, 512, 256, 1000};  // 4 tiles of 256 x 128 or smaller: one wave
  EXPECT_NEAR(microseconds(whole, four_units()), ideal(whole), 1e-6);
}

TEST(EfficientMatmul, PartWavesAndPartTilesCostWholeOnes) {
  // One tile of 64 x 64 on 4 units; k too short to split.
  EXPECT_NEAR(microseconds({1, 64, 64, 100}, four_units()), 4 * ideal({1, 64, 64, 100}), 1e-6);
  EXPECT_NEAR(microseconds({1, 33, 50, 100}, four_units()), 4 * ideal({1, 64, 64, 100}), 1e-6);
  // 5 tiles of 64 x 64 take two waves.
  EXPECT_NEAR(microseconds({5, 64, 64, 100}, four_units()), ideal({8, 64, 64, 100}), 1e-6);
}

TEST(EfficientMatmul, ADeepMatmulOfFewTilesIsSplit) {
  const MatmulShape deep{1, 64, 64, 4096};
  EXPECT_NEAR(microseconds(deep, four_units()), ideal(deep), 1e-6);
  // The parts are added up in memory, which costs 2 * 4 bytes * 4 parts of each output.
  EXPECT_NEAR(microseconds(deep, four_units(), device(1e9)), ideal(deep) + 131.072, 1e-3);
}

TEST(EfficientMatmul, TilesHaveABeginningAndAnEnd) {
  Efficiency efficiency = four_units();
  efficiency.matmul.added_depth = 250;
  efficiency.matmul.fixed_time = Seconds(7e-6);
  const MatmulShape whole{1, 512, 256, 250};
  EXPECT_NEAR(microseconds(whole, efficiency), 2 * ideal(whole) + 7, 1e-6);
}

// cuBLAS in fp16 on a board that is held to 70 W: 24 of 65 TFLOP/s (see the cluster's sources).
TEST(EfficientMatmul, ATFourTakesWhatWasMeasured) {
  const Cluster t4 =
      read_cluster(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/clusters/g4dn-t4.json");
  const Estimate estimate =
      efficient_matmul({1, 4096, 4096, 4096}, 8, Bytes(3 * 4096 * 4096 * 2), DType::f16,
                       *t4.device.peak_fp16, t4.device, *t4.efficiency);
  EXPECT_NEAR(2 * std::pow(4096.0, 3) / estimate.time.value(), 24e12, 0.5e12);
}

TEST(EfficientMatmul, SmallTilesLoseRate) {
  Efficiency efficiency = four_units();
  efficiency.matmul.half_rate_reuse = 32;  // a 64 x 64 tile reuses 32, the largest 256 x 128 / 384
  const double largest = 256.0 * 128 / 384;
  const MatmulShape small{4, 64, 64, 100};
  EXPECT_NEAR(microseconds(small, efficiency), ideal(small) * 2 * largest / (largest + 32), 1e-6);
}

TEST(EfficientMatmul, MemoryIsPartlyHidden) {
  Efficiency efficiency = four_units();
  efficiency.memory.bandwidth_fraction = 0.5;
  const MatmulShape whole{1, 512, 256, 1000};
  const double compute = ideal(whole);
  // 1e6 bytes at half of 4e9 bytes/s: 500 us.
  EXPECT_NEAR(microseconds(whole, efficiency, device(4e9), Bytes(1'000'000)),
              std::sqrt(compute * compute + 500.0 * 500.0), 1e-6);
}

TEST(EfficientMatmul, RowsThatAreNotAlignedLoseRate) {
  Efficiency efficiency = four_units();
  efficiency.matmul.unaligned_rate = 0.125;
  const MatmulShape whole{1, 512, 256, 1000};
  const auto time = [&](std::int64_t alignment, DType dtype) {
    return 1e6 * efficient_matmul(whole, alignment, Bytes(0), dtype, kPeak, device(), efficiency)
                     .time.value();
  };
  EXPECT_NEAR(time(8, DType::bf16), ideal(whole), 1e-6);
  EXPECT_NEAR(time(4, DType::bf16), 2 * ideal(whole), 1e-6);
  EXPECT_NEAR(time(1, DType::bf16), 8 * ideal(whole), 1e-6);
  EXPECT_NEAR(time(1, DType::f32), ideal(whole), 1e-6);
  EXPECT_EQ(matmul_alignment({1, 64, 50257, 1024}, false, false), 1);
  EXPECT_EQ(matmul_alignment({1, 64, 64, 150}, false, true), 2);
  EXPECT_EQ(matmul_alignment({1, 50257, 64, 64}, false, false), 8);  // rows of a are k long
}

// An MLP's first product of hidden size 4096 with 8192 rows, forward and backward: 12.9 and 21.0 ms
// (github.com/microsoft/SuperScaler branch EuroSys24AE, gpt_6.7B, enc-MLP-GEMM-1).
TEST(EfficientMatmul, AVHundredTakesWhatWasMeasured) {
  const Cluster v100 = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                    "/models/presets/clusters/dgx1-v100-32gb.json");
  constexpr std::int64_t kRows = 8192, kHidden = 4096, kWide = 4 * kHidden;
  Seconds time(0);
  for (const MatmulShape& shape : {MatmulShape{1, kRows, kWide, kHidden},
                                   {1, kRows, kHidden, kWide},
                                   {1, kHidden, kWide, kRows}}) {
    const Bytes moved(2 * (kRows * kHidden + kHidden * kWide + kRows * kWide));
    time += efficient_matmul(shape, 8, moved, DType::f16, *v100.device.peak_fp16, v100.device,
                             *v100.efficiency)
                .time;
  }
  EXPECT_NEAR(time.value(), 33.9e-3, 1e-3);
}

// At an eighth of the rate, elements of twice the length take a quarter as long to load.
TEST(EfficientMatmul, LoadsOfF32CountLessAtItsLowerRate) {
  Efficiency efficiency = four_units();
  efficiency.matmul.added_depth = 400;
  const MatmulShape whole{1, 512, 256, 1000};
  const FlopsPerSecond rate(kPeak.value() / 8);
  const Estimate estimate =
      efficient_matmul(whole, 8, Bytes(0), DType::f32, rate, device(), efficiency);
  EXPECT_NEAR(1e6 * estimate.time.value(), 8 * ideal(whole) * 1.1, 1e-6);
}

TEST(EfficientMatmul, UnalignedBatchesRunAtTheRateOfF32) {
  Efficiency efficiency = four_units();
  efficiency.matmul.unaligned_rate = 0.125;
  Device with_tensor_cores = device();
  with_tensor_cores.peak_fp32 = FlopsPerSecond(kPeak.value() / 16);
  const auto time = [&](std::int64_t batch, std::int64_t alignment) {
    return 1e6 * efficient_matmul({batch, 256, 256, 1000}, alignment, Bytes(0), DType::f16, kPeak,
                                  with_tensor_cores, efficiency)
                     .time.value();
  };
  const double whole = ideal({4, 256, 256, 1000});
  EXPECT_NEAR(time(4, 8), whole, 1e-6);
  EXPECT_NEAR(time(4, 4), 16 * whole, 1e-6);
  EXPECT_NEAR(time(4, 1), 16 * whole, 1e-6);
  EXPECT_NEAR(time(1, 4), 2 * time(1, 8), 1e-6);  // a single product has kernels for narrow loads
}

TEST(EfficientMatmul, SaysHowItIsKnown) {
  Efficiency efficiency = four_units();
  const MatmulShape shape{1, 512, 256, 1000};
  const auto estimate = [&](DType dtype) {
    return efficient_matmul(shape, 8, Bytes(0), dtype, kPeak, device(), efficiency);
  };
  EXPECT_EQ(estimate(DType::bf16).provenance, Provenance::datasheet);
  efficiency.matmul.fitted = {Flops(1e6), Flops(1e9), 0.04};
  EXPECT_EQ(estimate(DType::bf16).provenance, Provenance::interpolated);
  EXPECT_EQ(estimate(DType::f32).provenance, Provenance::extrapolated);
  EXPECT_NEAR(estimate(DType::bf16).spread / estimate(DType::bf16).time, 0.04 * 2 * kHalfWidth90,
              1e-12);
  efficiency.matmul.fitted->to = Flops(1e8);
  EXPECT_EQ(estimate(DType::bf16).provenance, Provenance::extrapolated);
}

TEST(EfficientMatmul, IsWithinAFitByAllItsOperations) {
  Efficiency efficiency = four_units();
  const auto label = [&](double from, double to) {
    efficiency.matmul.fitted = {Flops(from), Flops(to), 0.04};
    const MatmulShape shape{4, 512, 256, 1000};  // 2 x 4 x 131,072,000 operations
    return efficient_matmul(shape, 8, Bytes(0), DType::bf16, kPeak, device(), efficiency)
        .provenance;
  };
  EXPECT_EQ(label(1.0485e9, 1.0486e9), Provenance::interpolated);
  EXPECT_EQ(label(1.0486e9, 2e9), Provenance::extrapolated);
  EXPECT_EQ(label(1e8, 1.0485e9), Provenance::extrapolated);
}

TEST(EfficientMatmul, SaysWhatItsRatesRestOn) {
  Efficiency efficiency = four_units();
  const MatmulShape shape{1, 512, 256, 1000};
  const auto label = [&](DType dtype) {
    return efficient_matmul(shape, 8, Bytes(0), dtype, kPeak, device(), efficiency).provenance;
  };
  efficiency.matmul.rests_on = RestsOn::typical;
  EXPECT_EQ(label(DType::bf16), Provenance::typical);
  efficiency.matmul.rests_on = RestsOn::runs;
  EXPECT_EQ(label(DType::bf16), Provenance::fitted);
  EXPECT_EQ(label(DType::f32), Provenance::extrapolated);  // runs were of 16-bit operands
  EXPECT_EQ(label(DType::e4m3), Provenance::extrapolated);
  efficiency.matmul.fp8_rests_on = RestsOn::runs;
  EXPECT_EQ(label(DType::e4m3), Provenance::fitted);
  EXPECT_EQ(label(DType::f32), Provenance::extrapolated);
  efficiency.matmul.fitted = {Flops(1e6), Flops(1e9), 0.04};
  EXPECT_EQ(label(DType::bf16), Provenance::fitted);
  efficiency.matmul.fitted->to = Flops(1e8);
  EXPECT_EQ(label(DType::bf16), Provenance::extrapolated);
}

TEST(EfficientAttention, HalfTheScoresAndHalfATileLostPerUnit) {
  AttentionEfficiency attention{0.5, Seconds(5e-6), FitRange<Flops>{Flops(1e6), Flops(1e9), 0.05}};
  // 1e8 operations in 40 tiles: half of them, and 4 units lose half of a tile of 1/40.
  const Estimate estimate = efficient_attention(Flops(1e8), true, 40, kPeak, attention, 4);
  EXPECT_NEAR(estimate.time.value() * 1e6, 200 * (0.5 + 0.5 * 4 / 40) + 5, 1e-9);
  EXPECT_EQ(estimate.provenance, Provenance::interpolated);
  attention.fitted.reset();
  EXPECT_EQ(efficient_attention(Flops(1e8), true, 40, kPeak, attention, 4).provenance,
            Provenance::datasheet);
}

// BERT's: every score is computed.
TEST(EfficientAttention, WithoutTheCausalMaskAllScores) {
  const AttentionEfficiency attention{0.5, Seconds(5e-6),
                                      FitRange<Flops>{Flops(1e6), Flops(1e9), 0.05}};
  const Estimate estimate = efficient_attention(Flops(1e8), false, 40, kPeak, attention, 4);
  EXPECT_NEAR(estimate.time.value() * 1e6, 200 * (1 + 0.5 * 4 / 40) + 5, 1e-9);
  EXPECT_EQ(estimate.provenance, Provenance::extrapolated);
  const AttentionEfficiency of_runs{0.5, Seconds(5e-6), std::nullopt, RestsOn::runs};
  EXPECT_EQ(efficient_attention(Flops(1e8), false, 40, kPeak, of_runs, 4).provenance,
            Provenance::extrapolated);
  EXPECT_EQ(efficient_attention(Flops(1e8), true, 40, kPeak, of_runs, 4).provenance,
            Provenance::fitted);
}

TEST(EfficientMove, FractionOfBandwidthAndFixedTime) {
  const MemoryEfficiency memory{0.8, Seconds(3e-6), FitRange<Bytes>{Bytes(100), Bytes(2000), 0.2}};
  const Estimate estimate = efficient_move(Bytes(1000), device(1e9), memory);
  EXPECT_NEAR(estimate.time.value() * 1e6, 1.25 + 3, 1e-9);
  EXPECT_EQ(estimate.provenance, Provenance::interpolated);
  EXPECT_EQ(efficient_move(Bytes(99), device(1e9), memory).provenance, Provenance::extrapolated);
}

}  // namespace
}  // namespace plimsoll

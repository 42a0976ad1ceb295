// gpt-nano under different strategies.
#include "tests/runtime/nano.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "passes/pipeline.h"
#include "runtime/state/parts.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

/// By element of the arena: whether the rank at `at` owns it.
std::vector<bool> owned(const Program& program, const Coordinates& at, std::size_t elements) {
  std::vector<bool> result(elements, false);
  for (const Bucket& bucket : program.buckets) {
    const Bucket part = owned_part(program, bucket, at);
    std::fill_n(result.begin() + part.begin, part.elements, true);
  }
  return result;
}

}  // namespace

std::vector<float> at_its_place(const Program& program, const Coordinates& at,
                                const std::vector<float>& arena) {
  if (std::int64_t(arena.size()) != owned_elements(program)) return arena;
  const Bucket& last = program.buckets.back();
  std::vector<float> whole(std::size_t(last.begin + last.elements));
  auto from = arena.begin();
  for (const Bucket& bucket : program.buckets) {
    const Bucket part = owned_part(program, bucket, at);
    std::copy_n(from, part.elements, whole.begin() + part.begin);
    from += part.elements;
  }
  return whole;
}

std::filesystem::path tests_folder() {
  const char* const set = std::getenv("PLIMSOLL_SOURCE_DIR");
  return std::filesystem::path(set != nullptr ? set : PLIMSOLL_SOURCE_DIR) / "tests";
}

Job nano_job() { return read_job(tests_folder() / "gpt-nano.json"); }

const std::vector<std::byte>& nano_text() {
  static const std::vector<std::byte> text = [] {
    std::vector<std::byte> bytes;
    std::uint32_t state = 1;
    while (bytes.size() < 4096) {  // words of a small alphabet from a linear congruence
      state = state * 1664525u + 1013904223u;
      const std::uint32_t length = 2 + (state >> 28) % 5;
      for (std::uint32_t i = 0; i < length; ++i) {
        bytes.push_back(std::byte('a' + ((state >> 8) + i * i) % 26));
      }
      bytes.push_back(std::byte(' '));
    }
    bytes.resize(4096);
    return bytes;
  }();
  return text;
}

Strategy nano_strategy(const std::string& fields, std::int64_t micro_batches, Recompute recompute) {
  Strategy strategy = fields.empty() ? Strategy{} : parse_strategy(fields);
  strategy.gradients.bucket_bytes = Bytes(64 << 10);
  strategy.recompute = recompute;
  strategy.micro_batch =
      nano_job().global_batch / (strategy.dp * strategy.sharding_degree * micro_batches);
  return strategy;
}

std::vector<Program> nano_programs(const Strategy& strategy, const Job& job) {
  std::vector<Program> programs = lower({job, strategy, bundled_framework()});
  for (Program& program : programs) {
    for (Segment& segment : program.segments) {
      if (!segment.parameter.ends_with(".adapter_b")) continue;
      segment.init = Init::normal;
      segment.init_stddev = 0.1;
    }
  }
  return programs;
}

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

TrainOptions steps_of(std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.warm_up_steps = 0;
  return options;
}

TrainResult train_nano(const std::vector<Program>& programs, TrainOptions options, const Job& job) {
  if (options.deadline == TrainOptions().deadline) options.deadline = kPatient;
  return train(programs, job, bundled_framework(), nano_text(), options);
}

void expect_predicted_bytes(const std::vector<Program>& programs, const Measured& measured,
                            bool own_layout) {
  const Grid& grid = programs[0].grid;
  ASSERT_EQ(std::int64_t(measured.timeline.memory.size()), grid.world_size());
  for (const RankMemory& counted : measured.timeline.memory) {
    const Program& program = programs[class_of(programs, grid.coordinates(counted.rank))];
    const MemoryPeak predicted = memory_peak(program);
    EXPECT_EQ(counted.peak, predicted.peak) << "rank " << counted.rank;
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      EXPECT_EQ(counted.by_role[role], predicted.by_role[role])
          << "rank " << counted.rank << ", " << to_text(TensorRole(role));
    }
    if (!own_layout) {
      EXPECT_EQ(counted.arena, program.arena_bytes) << "rank " << counted.rank;
    }
  }
}

std::int64_t bucket_elements(const Program& program) {
  return program.buckets.back().begin + program.buckets.back().elements;
}

WholeTensors put_together(const std::vector<Program>& programs,
                          const std::vector<std::vector<float>>& by_rank, bool owned_parts,
                          double tolerance) {
  WholeTensors whole;
  std::map<std::pair<std::string, std::int64_t>, std::vector<bool>> known;
  const Grid& grid = programs[0].grid;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const Program& program = programs[class_of(programs, at)];
    const std::vector<float> arena = at_its_place(program, at, by_rank[std::size_t(rank)]);
    const std::vector<bool> counts =
        owned_parts ? owned(program, at, arena.size()) : std::vector<bool>(arena.size(), true);
    for (const Segment& segment : program.segments) {
      const auto name = std::make_pair(segment.parameter, segment.layer);
      std::vector<float>& tensor = whole[name];
      std::vector<bool>& seen = known[name];
      tensor.resize(std::size_t(segment.elements * (segment.split ? parts_of(*segment.split) : 1)));
      seen.resize(tensor.size());
      double largest = 0;
      for (const float value : tensor) largest = std::max(largest, std::abs(double(value)));
      for (std::int64_t i = 0; i < segment.elements; ++i) {
        const auto element = std::size_t(segment.offset + i);
        if (!counts[element]) continue;
        const auto index = std::size_t(global_index(segment.shape, segment.split, at, i));
        if (seen[index]) {
          EXPECT_NEAR(tensor[index], arena[element], tolerance * largest)
              << segment.parameter << " of layer " << segment.layer << " on rank " << rank;
        }
        tensor[index] = arena[element];
        seen[index] = true;
      }
    }
  }
  for (const auto& [name, seen] : known) {
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << name.first;
  }
  return whole;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  return std::sqrt(difference) / std::sqrt(norm);
}

}  // namespace plimsoll

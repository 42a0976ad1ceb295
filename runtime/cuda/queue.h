// A CudaQueue is the part of a GPU that one rank uses: a stream, device memory, captured graphs and
// events.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/cuda/device.h"
#include "runtime/example_reader.h"
#include "runtime/rank_device.h"

namespace plimsoll {

class CudaQueue final : public RankDevice {
 public:
  /// Uses the device `index` on the calling thread from now on. Other threads that use it call
  /// use().
  explicit CudaQueue(int index);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void use() const;
  const CudaDevice& device() const { return device_; }
  /// Every wait of the host for this stream asks `watch`, which is null where no other rank can
  /// hold the stream up.
  void set_watch(StreamWatch* watch) { watch_ = watch; }
  StreamWatch* watch() const { return watch_; }
  void set_workspace(std::span<std::byte> workspace) { device_.workspace = workspace; }
  /// Kernels that are prepared from now on read the examples of the rank's sequences, which begin()
  /// lays out when a step begins.
  void set_examples(const RankContext& context);

  std::byte* allocate(Bytes size) override;
  void free(std::byte* memory) noexcept override;
  std::byte* allocate_on_host(Bytes size) override;
  void free_on_host(std::byte* memory) noexcept override;
  void fill(std::byte* to, int value, Bytes size) override;
  void write(std::byte* to, std::span<const std::byte> values) override;
  void read(const std::byte* from, std::span<std::byte> values) override;
  void finish(std::chrono::milliseconds deadline, std::string_view what) override;
  RowOverflow& overflow() override { return *device_.overflow; }
  bool begin(std::uint32_t sequence, const RunPosition& position, bool may_replay) override;
  void end() override;
  std::uint32_t mark() override;
  void forget_marks() override { marks_ = 0; }
  Picoseconds time_of(std::uint32_t mark) override;
  void move(OpKind kind, const CollectiveParams& params, DType dtype, std::int64_t elements,
            std::span<const MemberData> members) override;
  void copy(std::byte* to, const std::byte* from, Bytes size) override;
  std::string description() const override;
  Bytes memory_used() const override;

 private:
  /// A Sequence is kernels that are enqueued together. In their first step they are enqueued one by
  /// one, since the driver may still load them. In their second step they are captured, and from
  /// then on replayed.
  struct Sequence {
    bool has_run = false;
    cudaGraphExec_t graph = nullptr;
  };
  void gather(Bytes part, std::span<const MemberData> members);
  void move_rows(OpKind kind, DType dtype, std::span<const MemberData> members);

  CudaDevice device_;
  StreamWatch* watch_ = nullptr;
  bool reaches_others_ = true;  ///< whether it can read the memory of all GPUs of the host
  void lay_out_examples(std::int64_t step);
  DeviceMemory position_, examples_;
  Bytes examples_bytes_;
  std::optional<ExampleReader> reader_;  ///< null: sequences are whole
  std::optional<std::int64_t> step_;     ///< the step in position_
  std::map<std::uint32_t, Sequence> sequences_;
  Sequence* capturing_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::uint32_t marks_ = 0;
};

}  // namespace plimsoll

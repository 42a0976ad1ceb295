// Places of tensors in the files of a checkpoint, and checksums of their values.
#include "runtime/checkpoint/layout.h"

#include <bit>

#include "plan/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"

namespace plimsoll {

static_assert(std::endian::native == std::endian::little, "files have the bytes of this machine");

std::vector<std::string> file_names(std::size_t moments) {
  std::vector<std::string> names = {"model.safetensors"};
  for (const std::string& moment : moment_names(moments)) names.push_back(moment + ".safetensors");
  return names;
}

std::vector<LaidFile> lay_out(std::span<const WholeTensor> tensors, std::size_t moments) {
  std::vector<LaidFile> files;
  for (const std::string& name : file_names(moments)) {
    const std::size_t moment = files.size();  // 0: the parameters
    LaidFile& file = files.emplace_back();
    file.name = name;
    std::vector<NamedShape> entries;
    std::int64_t place = 0;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      const WholeTensor& tensor = tensors[index];
      if (moment > tensor.moments.size()) continue;
      const Shape& shape = moment == 0 ? tensor.shape : tensor.moments[moment - 1];
      entries.push_back({tensor.name, shape});
      const std::int64_t count = elements(shape);
      file.tensors[tensor.name] = {index, place, count};
      place += count * std::int64_t(sizeof(float));
    }
    file.header = safetensors_header(entries);
    for (auto& [tensor, laid] : file.tensors) laid.begin += std::int64_t(file.header.size());
    file.bytes = std::int64_t(file.header.size()) + place;
  }
  return files;
}

std::uint64_t checksum(std::int64_t first, std::span<const float> values) {
  std::uint64_t sum = 0, place = std::uint64_t(first) * 0x9e3779b97f4a7c15;
  for (const float value : values) {
    place += 0x9e3779b97f4a7c15;
    std::uint64_t hash = place ^ std::bit_cast<std::uint32_t>(value);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    sum += hash ^ (hash >> 31);
  }
  return sum;
}

}  // namespace plimsoll

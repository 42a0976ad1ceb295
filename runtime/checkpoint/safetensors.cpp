// Headers of safetensors files are written, and those of others read with care.
#include "runtime/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLengthBytes = 8;
/// JSON files have the same limit (base/json.h). The format itself allows 100 MB.
constexpr std::int64_t kMostHeaderBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;
constexpr std::size_t kMostDims = 16;

/// The types of the format with their bits (safetensors/src/tensor.rs, Dtype).
constexpr std::pair<std::string_view, std::int64_t> kTypes[] = {
    {"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},
    {"U32", 32}, {"F32", 32}, {"F64", 64}, {"I64", 64},    {"U64", 64},
};

std::int64_t bits_of(JsonObject& entry) {
  const std::string type = entry.text("dtype");
  const auto* const found =
      std::ranges::find_if(kTypes, [&](const auto& known) { return known.first == type; });
  if (found == std::end(kTypes)) entry.fail("dtype", "a type of the format is required");
  return found->second;
}

/// Returns the bytes of a tensor; they and the sizes are at most 2^53.
std::int64_t bytes_of_shape(JsonObject& entry, const Shape& shape, std::int64_t bits) {
  if (shape.size() > kMostDims)
    entry.fail("shape", fmt::format("at most {} dimensions are allowed", kMostDims));
  std::int64_t count = bits / 8;
  for (const std::int64_t size : shape) {
    if (size != 0 && count > kMostBytes / size) entry.fail("shape", "it has more than 2^53 bytes");
    count *= size;
  }
  return count;
}

SafeTensor tensor_from(JsonObject entry, const std::string& name, std::int64_t data) {
  SafeTensor tensor;
  tensor.name = name;
  const std::int64_t bits = bits_of(entry);
  tensor.dtype = entry.text("dtype");
  tensor.shape = entry.integers("shape", 0, kMostBytes);
  const auto offsets = entry.integers("data_offsets", 0, kMostBytes);
  entry.finish();
  const std::int64_t wanted = bytes_of_shape(entry, tensor.shape, bits);
  if (offsets.size() != 2 || offsets[1] < offsets[0])
    entry.fail("data_offsets", "the first byte and the one behind the last are required");
  if (offsets[1] - offsets[0] != wanted) {
    entry.fail("data_offsets", fmt::format("they hold {} bytes; shape and dtype need {}",
                                           offsets[1] - offsets[0], wanted));
  }
  tensor.begin = data + offsets[0];
  tensor.end = data + offsets[1];
  return tensor;
}

/// Values lie behind each other without gaps, from the end of the header to that of the file.
void check_places(std::vector<SafeTensor>& tensors, std::int64_t data, std::int64_t bytes,
                  const std::string& file) {
  std::ranges::stable_sort(tensors, [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t end = data;
  for (const SafeTensor& tensor : tensors) {
    if (tensor.begin != end) {
      throw InputError(
          file, json_pointer("", tensor.name) + "/data_offsets",
          fmt::format("found {}; the tensor before it ends at {}, and tensors neither overlap nor "
                      "leave a gap",
                      tensor.begin - data, end - data));
    }
    end = tensor.end;
  }
  if (end == bytes) return;
  throw InputError(file, "",
                   fmt::format("the file has {} bytes; by its header {} are there{}", bytes, end,
                               bytes < end ? ": it was cut off" : ""));
}

}  // namespace

std::string safetensors_header(std::span<const NamedShape> tensors) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::int64_t begin = 0;
  for (const NamedShape& tensor : tensors) {
    const std::int64_t end = begin + elements(tensor.shape) * std::int64_t(sizeof(float));
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::string length;
  for (int byte = 0; byte < kLengthBytes; ++byte)
    length += char(std::uint64_t(text.size()) >> (8 * byte) & 0xff);
  return length + text;
}

std::int64_t safetensors_start(std::string_view first, std::int64_t bytes,
                               const std::string& file) {
  if (std::int64_t(first.size()) < kLengthBytes) {
    throw InputError(
        file, "",
        fmt::format("found {} bytes; a safetensors file has at least {}", bytes, kLengthBytes + 2));
  }
  std::uint64_t length = 0;
  for (std::size_t byte = 0; byte < kLengthBytes; ++byte)
    length |= std::uint64_t(static_cast<unsigned char>(first[byte])) << (8 * byte);
  if (length > std::uint64_t(kMostHeaderBytes)) {
    throw InputError(file, "",
                     fmt::format("its header states {} bytes; at most 64 MiB are allowed", length));
  }
  if (std::int64_t(length) > bytes - kLengthBytes) {
    throw InputError(file, "",
                     fmt::format("its header states {} bytes; the file has {}", length, bytes));
  }
  return kLengthBytes + std::int64_t(length);
}

std::vector<SafeTensor> parse_safetensors(std::string_view start, std::int64_t bytes,
                                          const std::string& file) {
  const std::int64_t data = safetensors_start(start.substr(0, kLengthBytes), bytes, file);
  INVARIANT(std::int64_t(start.size()) >= data, "the whole header is given");
  const std::string_view text = start.substr(kLengthBytes, std::size_t(data - kLengthBytes));
  if (!text.starts_with('{')) throw InputError(file, "", "the header does not begin with {");
  const Json json = parse_json(text, file);
  std::vector<SafeTensor> tensors;
  for (const auto& [name, value] : json.items()) {
    JsonObject entry(value, file, json_pointer("", name));
    if (name == "__metadata__") {
      for (const std::string& key : entry.keys()) entry.text(key);
    } else {
      tensors.push_back(tensor_from(std::move(entry), name, data));
    }
  }
  check_places(tensors, data, bytes, file);
  return tensors;
}

}  // namespace plimsoll

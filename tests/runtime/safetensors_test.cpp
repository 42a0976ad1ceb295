// Headers of safetensors files: what is written is read, and what breaks a rule is refused with its
// place.
#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace plimsoll {
namespace {

/// A file with this header and so many bytes of values.
std::string file_of(const std::string& header, std::size_t values) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = char(header.size() >> (8 * i) & 0xff);
  return text + header + std::string(values, 'v');
}

std::string refusal(const std::string& file) {
  try {
    const std::int64_t start =
        safetensors_start(file.substr(0, 8), std::int64_t(file.size()), "file");
    parse_safetensors(file.substr(0, std::size_t(start)), std::int64_t(file.size()), "file");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsWhatItWrites) {
  const NamedShape tensors[] = {{"a", {2, 3}}, {"b.weight", {4}}};
  const std::string header = safetensors_header(tensors);
  EXPECT_EQ(header.size() % 8, 0u);
  const std::int64_t bytes = std::int64_t(header.size()) + 40;
  const auto read = parse_safetensors(header, bytes, "file");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_EQ(read[0].dtype, "F32");
  EXPECT_EQ(read[0].shape, Shape({2, 3}));
  EXPECT_EQ(read[0].begin, std::int64_t(header.size()));
  EXPECT_EQ(read[1].begin, read[0].end);
  EXPECT_EQ(read[1].end, bytes);
}

TEST(Safetensors, ReadsFilesOfOthers) {
  // Another order than the values', other types, a scalar, notes.
  EXPECT_EQ(refusal(file_of(R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]},)"
                            R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                            R"("__metadata__":{"format":"pt"}}   )",
                            10)),
            "");
  EXPECT_EQ(refusal(file_of("{}", 0)), "");
}

TEST(Safetensors, RefusesWhatBreaksARule) {
  const std::string whole = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(refusal(file_of(whole, 8)), "");
  struct Case {
    std::string file, words;
  };
  const auto entry = [](const std::string& text) { return R"({"a":)" + text + "}"; };
  const Case cases[] = {
      {"", "at least 10"},
      {"1234567", "at least 10"},
      {std::string(8, '\xff'), "64 MiB"},
      {file_of(whole, 8).substr(0, 30), "the file has 30"},
      {file_of("[]", 0), "does not begin with {"},
      {file_of("{", 0), "syntax error"},
      {file_of(whole, 7), "cut off"},
      {file_of(whole, 9), "by its header"},
      {file_of(entry("7"), 8), "/a"},
      {file_of(entry(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"), 8), "/a/dtype"},
      {file_of(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), 8), "/a/shape"},
      {file_of(entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), 8), "/a/shape"},
      {file_of(entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), 8),
       "2^53"},
      {file_of(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8), "need 12"},
      {file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), 8), "data_offsets"},
      {file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"), 8), "data_offsets"},
      {file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), 12), "gap"},
      {file_of(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})"), 8), "more"},
      {file_of(entry(R"({"dtype":"F32","shape":[2]})"), 8), "data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
               12),
       "/b/data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
               16),
       "duplicate"},
      {file_of(R"({"__metadata__":{"format":7}})", 0), "format"},
  };
  for (const Case& one : cases) {
    const std::string said = refusal(one.file);
    EXPECT_TRUE(said.starts_with("file: ")) << one.words;
    EXPECT_NE(said.find(one.words), std::string::npos) << said << "\nwithout " << one.words;
  }
}

}  // namespace
}  // namespace plimsoll

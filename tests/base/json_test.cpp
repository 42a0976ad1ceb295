// JSON: every limit at and beyond it, every getter's refusals, exact round trips.
#include "base/json.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace plimsoll {
namespace {

/// what() of the refusal, or "" when the text was accepted.
std::string refusal_of_json(const std::string& text) {
  try {
    parse_json(text, "f.json");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string members(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) {
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  }
  return text + "}";
}

std::string elements(int count) {
  std::string text = "[0";
  for (int i = 1; i < count; ++i) text += ",0";
  return text + "]";
}

std::string quoted(std::size_t length) { return '"' + std::string(length, 'x') + '"'; }

struct Limit {
  const char* name;
  std::string at, beyond;
  const char* message;
};

TEST(Json, Limits) {
  const Limit limits[] = {
      {"depth", nested(64), nested(65), "nested deeper than 64"},
      {"string", quoted(4096), quoted(4097), "at most 4096"},
      {"key", "{" + quoted(256) + ":0}", "{" + quoted(257) + ":0}", "at most 256"},
      {"members", members(10'000), members(10'001), "more than 10000 members"},
      {"elements", elements(1'000'000), elements(1'000'001), "more than 1000000 elements"},
      {"largest integer", "9007199254740992", "9007199254740993", "outside -2^53"},
      {"least integer", "-9007199254740992", "-9007199254740993", "outside -2^53"},
      {"64-bit integer", "1", "18446744073709551615", "outside -2^53"},
      {"integer beyond 64 bits", "1", "100000000000000000000", "outside -2^53"},
      {"finite", "1e308", "1e309", "number overflow"},
      {"duplicate key", R"({"a":1,"b":2})", R"({"a":1,"a":2})", "duplicate key \"a\""},
      {"control character", R"(" ")", R"("\n")", "U+000A"},
      {"zero character", R"("0")", R"("\u0000")", "U+0000"},
      {"delete", "\"~\"", "\"\x7f\"", "U+007F"},
      {"C1 control", "\"\u00a0\"", "\"\u0085\"", "U+0085"},
      {"bidi override", "\"\u202f\"", "\"\u202e\"", "U+202E"},
      {"bidi isolate", "\"\u206a\"", "\"\u2066\"", "U+2066"},
      {"bidi in key", "{\"a\":1}", "{\"\u202ea\":1}", "U+202E"},
      {"UTF-8", "\"\xc3\xa9\"", "\"\xc3\x28\"", "UTF-8"},
      {"overlong UTF-8", "\"/\"", "\"\xc0\xaf\"", "UTF-8"},
      {"surrogate", R"("\ud83d\ude00")", R"("\ud83d")", "surrogate"},
      {"truncated", "{\"a\":[1]}", "{\"a\":[1", "unexpected end of input"},
      {"trailing text", "{} ", "{} x", "f.json: at 1:4"},
      {"NUL byte behind the document", "{}\n", std::string("{}\n\0x", 5),
       "f.json: at 2:1: a NUL byte"},
      {"NUL byte alone behind it", "{}", std::string("{}\0", 3), "a NUL byte"},
      {"one document", "1", "", "unexpected end of input"},
  };
  for (const Limit& limit : limits) {
    EXPECT_EQ(refusal_of_json(limit.at), "") << limit.name;
    const std::string message = refusal_of_json(limit.beyond);
    EXPECT_NE(message.find(limit.message), message.npos) << limit.name << ": " << message;
    EXPECT_LT(message.size(), 700u) << limit.name;
  }
}

TEST(Json, FileSize) {
  const std::size_t limit = std::size_t{64} << 20;
  EXPECT_EQ(refusal_of_json("1" + std::string(limit - 1, ' ')), "");
  EXPECT_NE(refusal_of_json("1" + std::string(limit, ' ')).find("64 MiB"), std::string::npos);
}

TEST(Json, RefusalsSayWhere) {
  EXPECT_EQ(refusal_of_json("{\"a\": [1, {\"b/c\": [true, 99999999999999999999]}]}").substr(0, 28),
            "f.json: at /a/1/b~1c/1: an i");
  EXPECT_EQ(refusal_of_json("{\"a\": {\"x\": 1, \"x\": 2}}"),
            "f.json: at /a/x: duplicate key \"x\"");
  const std::string message = refusal_of_json("{\n  \"a\": 1,\n  b\n}");
  EXPECT_EQ(message.substr(0, 15), "f.json: at 3:3:") << message;
}

/// what() of what `read` throws, or "".
template <class Read>
std::string refusal_of(const std::string& text, Read read) {
  const Json value = parse_json(text, "f.json");
  try {
    JsonObject object(value, "f.json");
    read(object);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(JsonObject, IntegersAreIntegerTokensInRange) {
  const auto read = [](JsonObject& object) { object.integer("n", 1, 10); };
  EXPECT_EQ(refusal_of(R"({"n":1})", read), "");
  EXPECT_EQ(refusal_of(R"({"n":10})", read), "");
  for (const char* bad : {"0", "11", "-1", "2.5", "2.0", "1e1", "\"2\"", "true", "null", "[2]"}) {
    const std::string message = refusal_of("{\"n\":" + std::string(bad) + "}", read);
    EXPECT_EQ(message.rfind("f.json: at /n: found ", 0), 0u) << bad << ": " << message;
    EXPECT_NE(message.find("an integer from 1 to 10 is required"), message.npos) << message;
  }
}

TEST(JsonObject, NumbersAreInRange) {
  const auto read = [](JsonObject& object) { object.number("n", 0, 1); };
  for (const char* good : {"0", "1", "0.5", "1e-300"}) {
    EXPECT_EQ(refusal_of("{\"n\":" + std::string(good) + "}", read), "") << good;
  }
  for (const char* bad : {"-0.1", "1.0000001", "\"0.5\"", "null", "false"}) {
    EXPECT_NE(refusal_of("{\"n\":" + std::string(bad) + "}", read), "") << bad;
  }
}

TEST(JsonObject, OtherTypesAreExact) {
  const std::string all = R"({"b":1,"t":1,"o":[],"a":{},"m":1,"u":80})";
  const auto message = [&](auto read) { return refusal_of(all, read); };
  EXPECT_NE(message([](JsonObject& o) { o.boolean("b"); }).find("true or false"),
            std::string::npos);
  EXPECT_NE(message([](JsonObject& o) { o.text("t"); }).find("a text"), std::string::npos);
  EXPECT_NE(message([](JsonObject& o) { o.object("o"); }).find("found an array of 0 elements"),
            std::string::npos);
  EXPECT_NE(message([](JsonObject& o) { o.objects("a"); }).find("an array of objects"),
            std::string::npos);
  EXPECT_NE(message([](JsonObject& o) { o.bytes("u"); }).find("80 GiB"), std::string::npos);
  EXPECT_NE(message([](JsonObject& o) { o.text("absent"); }).find("at /absent: the key is missing"),
            std::string::npos);
}

TEST(JsonObject, ElementsAreCheckedOneByOne) {
  EXPECT_EQ(refusal_of(R"({"n":[1,2,3]})", [](JsonObject& o) { o.integers("n", 1, 3); }), "");
  EXPECT_EQ(refusal_of(R"({"n":[1,2,4]})", [](JsonObject& o) { o.integers("n", 1, 3); }),
            "f.json: at /n/2: found 4; integers from 1 to 3 are required");
  EXPECT_EQ(refusal_of(R"({"n":[1.5,"x"]})", [](JsonObject& o) { o.numbers("n"); }),
            "f.json: at /n/1: found \"x\"; a number is required");
  EXPECT_EQ(refusal_of(R"({"n":["x",1]})", [](JsonObject& o) { o.texts("n"); }),
            "f.json: at /n/1: found 1; a text is required");
  EXPECT_EQ(refusal_of(R"({"n":[{},1]})", [](JsonObject& o) { o.objects("n"); }),
            "f.json: at /n/1: found 1; an object is required");
}

TEST(JsonObject, QuantitiesHaveUnits) {
  const Json value =
      parse_json(R"({"m":"80 GiB","l":"3 us","b":"450 GB/s","p":"312 TFLOP/s"})", "f.json");
  JsonObject object(value, "f.json");
  EXPECT_EQ(object.bytes("m"), Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(object.seconds("l"), Seconds(3e-6));
  EXPECT_EQ(object.bytes_per_second("b"), BytesPerSecond(450e9));
  EXPECT_EQ(object.flops_per_second("p"), FlopsPerSecond(312e12));
  object.finish();
}

TEST(JsonObject, ChoicesAndSuggestions) {
  static constexpr std::array<std::string_view, 2> kColours = {"green", "purple"};
  const auto read = [](JsonObject& object) { object.choice("c", kColours); };
  EXPECT_EQ(refusal_of(R"({"c":"purple"})", read), "");
  EXPECT_EQ(refusal_of(R"({"c":"purpel"})", read),
            "f.json: at /c: found \"purpel\"; allowed: \"green\", \"purple\"; did you mean "
            "\"purple\"?");
  EXPECT_EQ(refusal_of(R"({"c":1})", read),
            "f.json: at /c: found 1; allowed: \"green\", \"purple\"");
}

TEST(JsonObject, UnknownKeysAreRefusedWithTheNearest) {
  const auto read = [](JsonObject& object) {
    object.has("hidden");
    object.has("heads");
    object.finish();
  };
  EXPECT_EQ(refusal_of(R"({"hidden":1,"heads":2})", read), "");
  EXPECT_EQ(refusal_of(R"({"hiden":1})", read),
            "f.json: at /hiden: unknown key; did you mean \"hidden\"?");
  EXPECT_EQ(refusal_of(R"({"zzz":1})", read), "f.json: at /zzz: unknown key");
  EXPECT_EQ(refusal_of(R"({"hiden":1})", [](JsonObject& o) { o.integer("hidden", 0, 1); }),
            "f.json: at /hidden: the key is missing; is \"hiden\" a misspelling of it?");
}

TEST(JsonObject, NullCountsAsAbsent) {
  const Json value = parse_json(R"({"a":null,"b":0})", "f.json");
  JsonObject object(value, "f.json");
  EXPECT_FALSE(object.has("a"));
  EXPECT_TRUE(object.has("b"));
  EXPECT_FALSE(object.has("c"));
  object.finish();
}

TEST(JsonObject, PointersGoDown) {
  const Json value = parse_json(R"({"a":{"b":[{"c":1}]}})", "f.json");
  JsonObject object(value, "f.json");
  JsonObject inner = object.object("a").objects("b").at(0);
  EXPECT_EQ(inner.pointer(), "/a/b/0");
  EXPECT_EQ(inner.keys(), std::vector<std::string>{"c"});
  inner.finish();
}

TEST(JsonText, RoundTripsExactly) {
  Json value = Json::object();
  value["order"] = {{"z", 1}, {"a", 2}};
  value["doubles"] =
      Json::array({0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 2.0, std::nextafter(1.0, 2.0)});
  value["long"] = Json::array();
  for (int i = 0; i < 60; ++i) value["long"].push_back(i);
  value["empty"] = Json::array({Json::object(), Json::array(), nullptr, false, "\u00e9\"\\"});
  const std::string text = json_text(value);
  EXPECT_EQ(parse_json(text, "f.json"), value);
  EXPECT_EQ(json_text(parse_json(text, "f.json")), text);
  EXPECT_EQ(text.back(), '\n');
}

TEST(JsonText, WhatFitsStaysOnOneLine) {
  Json value = Json::object();
  value["shape"] = {1, 2};
  value["name"] = "x";
  EXPECT_EQ(json_text(value), "{\"shape\": [1, 2], \"name\": \"x\"}\n");
  value["text"] = std::string(90, 'y');
  EXPECT_EQ(json_text(value), "{\n  \"shape\": [1, 2],\n  \"name\": \"x\",\n  \"text\": \"" +
                                  std::string(90, 'y') + "\"\n}\n");
}

TEST(Nearest, OnlyWhenNear) {
  const std::vector<std::string> words = {"micro_batch", "mp", "pp"};
  EXPECT_EQ(nearest("micro_bach", words), "micro_batch");
  EXPECT_EQ(nearest("sequence", words), "");
  EXPECT_EQ(nearest("mpp", words), "mp");
}

}  // namespace
}  // namespace plimsoll

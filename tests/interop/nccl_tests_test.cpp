// nccl-tests imports: every layout with exact numbers; what does not add up is refused with its
// place. The samples have the tool's layouts; their times are chosen, not measured.
#include "interop/hardware/nccl_tests.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/file.h"

namespace plimsoll {
namespace {

const std::filesystem::path kNcclSamples = PLIMSOLL_SOURCE_DIR "/tests/interop/nccl-tests";

std::string nccl_sample(const char* name) { return read_file(kNcclSamples / name); }

std::vector<NcclRun> runs_of(const char* name, const NcclGiven& given = {}) {
  return parse_nccl_tests(nccl_sample(name), name, given);
}

NcclRun run_of(const char* name, const NcclGiven& given = {}) {
  std::vector<NcclRun> runs = runs_of(name, given);
  EXPECT_EQ(runs.size(), 1u) << name;
  return runs.at(0);
}

/// Points and, through `notes`, what was said.
std::vector<CollectivePoint> points_of(std::vector<NcclRun> runs, std::string* notes = nullptr) {
  const std::vector<CollectivePoint> points = nccl_points(runs);
  for (const NcclRun& run : runs) {
    for (const std::string& note : run.notes) {
      if (notes != nullptr) *notes += note + "\n";
    }
  }
  return points;
}

/// Times as the decimal text in the file, to the last digit of a double.
void expect_us(Seconds time, double us) { EXPECT_DOUBLE_EQ(time.value() * 1e6, us); }

TEST(NcclTests, CurrentTextAmongWarnings) {
  const NcclRun run = run_of("current.txt");
  EXPECT_EQ(run.collective, "all_reduce");
  EXPECT_EQ(run.ranks, 16);
  EXPECT_EQ(run.nodes, 2);
  EXPECT_EQ(run.groups, 1);
  EXPECT_EQ(run.iterations, 20);
  EXPECT_EQ(run.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(run.versions, (std::vector<std::string>{"nccl-tests 2.18.3", "NCCL 2.28.9"}));
  EXPECT_FALSE(run.host_time);
  ASSERT_EQ(run.rows.size(), 5u);
  const NcclRow& row = run.rows[3];
  EXPECT_EQ(row.size, Bytes(1 << 30));
  EXPECT_EQ(row.count, 268435456);
  EXPECT_EQ(row.dtype, "float");
  expect_us(row.out_of_place->time, 5432.1);
  EXPECT_EQ(row.out_of_place->bus_bandwidth, 370.62);
  EXPECT_EQ(row.out_of_place->wrong, 0);
  expect_us(row.in_place->time, 5401.7);
  EXPECT_EQ(row.in_place->bus_bandwidth, 372.71);
  expect_us(run.rows[4].in_place->time, 43001.2);  // times lose decimals as they grow

  const std::vector<CollectivePoint> points = points_of({run});
  ASSERT_EQ(points.size(), 5u);
  EXPECT_EQ(points[3].kind, OpKind::all_reduce);
  EXPECT_EQ(points[3].payload, Bytes(1 << 30));
  EXPECT_EQ(points[3].ranks, 16);
  EXPECT_EQ(points[3].nodes, 2);
  EXPECT_EQ(points[3].communicator, CommunicatorKind::nccl);
  EXPECT_EQ(points[3].imported->file, "current.txt");
  expect_us(points[3].time.median, 5401.7);
  EXPECT_EQ(points[3].time.spread, Seconds(0));
  EXPECT_EQ(points[3].time.samples, 20);
}

TEST(NcclTests, SizesOfGathersAndScattersAreTotals) {
  std::string notes;
  const std::vector<NcclRun> runs = runs_of("two-runs.txt");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].collective, "all_gather");
  EXPECT_EQ(runs[1].collective, "reduce_scatter");
  EXPECT_EQ(runs[1].rows[0].in_place->wrong, 3);
  const std::vector<CollectivePoint> points = points_of(runs, &notes);
  ASSERT_EQ(points.size(), 2u);  // the row with wrong elements is not one
  EXPECT_EQ(points[1].kind, OpKind::all_gather);
  EXPECT_EQ(points[1].payload, Bytes(134217728));  // 2097152 floats on each of 16
  expect_us(points[1].time.median, 699.3);
  EXPECT_NE(notes.find("59:1: 65536 B had wrong elements"), notes.npos) << notes;
}

TEST(NcclTests, OldTextWithoutReductionAndWithErrors) {
  const NcclGiven given = {.collective = "all_gather", .ranks = 0, .ranks_per_node = 0, .date = ""};
  const NcclRun run = run_of("old-all-gather.txt", given);
  EXPECT_EQ(run.ranks, 4);
  EXPECT_EQ(run.device, "Tesla V100-SXM2-32GB");
  ASSERT_EQ(run.rows.size(), 3u);
  EXPECT_EQ(run.rows[2].size, Bytes(4194304));
  EXPECT_EQ(run.rows[2].count, 262144);
  expect_us(run.rows[2].out_of_place->time, 71.2);
  EXPECT_EQ(run.rows[2].in_place->wrong, 0);  // the line below the table says so
  EXPECT_EQ(points_of({run}).size(), 3u);

  std::string notes;
  NcclGiven reduce = given;
  reduce.collective = "all_reduce";
  EXPECT_TRUE(points_of(runs_of("old-all-reduce.txt", reduce), &notes).empty());
  EXPECT_NE(notes.find("out of bounds"), notes.npos) << notes;
}

TEST(NcclTests, HostTimesAreReadAndYieldNoPoint) {
  const NcclRun run = run_of("cpu-time.txt");
  EXPECT_TRUE(run.host_time);
  expect_us(run.rows.at(0).out_of_place->time, 12.34);
  expect_us(run.rows.at(0).in_place->time, 11.98);
  std::string notes;
  EXPECT_TRUE(points_of({run}, &notes).empty());
  EXPECT_NE(notes.find("times of the host"), notes.npos) << notes;
}

TEST(NcclTests, IterationsGiveTheSpreadAndTimestampsTheDate) {
  const NcclRun run = run_of("per-iteration.txt");
  EXPECT_EQ(run.date, "2026-07-09");
  ASSERT_EQ(run.rows.size(), 2u);
  expect_us(run.rows[1].in_place->time, 32.0);
  // 8 % of 32 us, over the middle half of a normal distribution.
  EXPECT_NEAR(run.rows[1].in_place->spread->value(), 1.349 * 0.08 * 32e-6, 1e-12);
  const std::vector<CollectivePoint> points = points_of({run});
  EXPECT_EQ(points.at(1).imported->date, "2026-07-09");
  EXPECT_TRUE(points.at(1).time.unsteady);  // 10.8 %
}

TEST(NcclTests, ReplaysAreInPlaceOnly) {
  const NcclRun run = run_of("replay.txt");
  EXPECT_FALSE(run.rows.at(0).out_of_place);
  expect_us(run.rows.at(0).in_place->time, 21.0);
  EXPECT_EQ(points_of({run}).size(), 1u);
}

TEST(NcclTests, WhatIsAddedUpHasATypeAndWhatIsMovedHasNone) {
  NcclRun run = run_of("current.txt");
  const std::size_t rows = points_of({run}).size();
  ASSERT_GE(run.rows.size(), 3u);
  run.rows[0].dtype = "double";
  run.rows[1].dtype = "half";
  run.rows[2].dtype = "bfloat16";
  std::string notes;
  std::vector<CollectivePoint> points = points_of({run}, &notes);
  ASSERT_EQ(points.size(), rows - 1);
  EXPECT_NE(notes.find("add up double, as no Program does: 1"), notes.npos) << notes;
  const auto count = [&](DType dtype) {
    return std::count_if(points.begin(), points.end(),
                         [&](const CollectivePoint& point) { return point.dtype == dtype; });
  };
  EXPECT_EQ(count(DType::f16), 1);
  EXPECT_EQ(count(DType::bf16), 1);
  run.collective = "all_gather";
  points = points_of({run});
  EXPECT_EQ(points.size(), rows);
  EXPECT_EQ(count(DType::f32), std::ptrdiff_t(rows));
}

TEST(NcclTests, CyclesAreOneSample) {
  const std::vector<CollectivePoint> points = points_of(runs_of("cycles.txt"));
  ASSERT_EQ(points.size(), 1u);            // the other size has 5 iterations only
  expect_us(points[0].time.median, 22.0);  // of 21, 22, 26
  EXPECT_NEAR(points[0].time.spread.value(), 2.5e-6, 1e-15);
  EXPECT_EQ(points[0].time.samples, 15);
}

TEST(NcclTests, CutListsOfDevicesAreCountedByProcess) {
  const NcclRun run = run_of("cut-devices.txt");
  EXPECT_EQ(run.ranks, 64);
  EXPECT_EQ(run.nodes, 2);
}

TEST(NcclTests, GroupsAtOnceAreCounted) {
  const NcclRun run = run_of("split.txt");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.groups, 4);
  const std::vector<CollectivePoint> points = points_of({run});
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].kind, OpKind::send);
  EXPECT_EQ(points[0].groups_per_node, 4);
  expect_us(points[0].time.median, 30.0);  // in place it is not verified
}

TEST(NcclTests, TruncatedTextIsReadToItsLastWholeRow) {
  const NcclRun run = run_of("truncated.txt");
  EXPECT_EQ(run.rows.size(), 4u);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("ends within this row"), std::string::npos);
}

TEST(NcclTests, Json) {
  const NcclRun run = run_of("all-gather.json");
  EXPECT_EQ(run.collective, "all_gather");
  EXPECT_EQ(run.ranks, 16);  // two processes of eight
  EXPECT_EQ(run.nodes, 2);
  EXPECT_EQ(run.date, "2026-07-09");
  EXPECT_EQ(run.versions, (std::vector<std::string>{"NCCL 2.28.9"}));
  ASSERT_EQ(run.rows.size(), 4u);
  expect_us(run.rows[0].out_of_place->time, 61.4);
  EXPECT_EQ(run.rows[0].where, "/results/0");
  EXPECT_FALSE(run.rows[0].in_place->spread);
  EXPECT_NEAR(run.rows[1].in_place->spread->value(), 10e-6, 1e-12);  // of 20 ... 39 us
  EXPECT_FALSE(run.rows[2].out_of_place);
  EXPECT_FALSE(run.rows[2].in_place);  // "nan"
  const std::vector<CollectivePoint> points = points_of({run});
  ASSERT_EQ(points.size(), 3u);
  expect_us(points[2].time.median, 699.3);
}

TEST(NcclTests, TruncatedJsonIsReadToItsLastWholeRow) {
  const std::string text = nccl_sample("all-gather.json");
  const std::size_t third = text.find("\"size\":2097152");
  const NcclRun run = parse_nccl_tests(text.substr(0, third + 90), "f", {}).at(0);
  EXPECT_EQ(run.rows.size(), 2u);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("ends early"), std::string::npos);
  // At every length: rows that are whole, or a refusal.
  std::size_t before = 0;
  for (std::size_t length = 0; length < text.size(); ++length) {
    try {
      const std::size_t rows = parse_nccl_tests(text.substr(0, length), "f", {}).at(0).rows.size();
      EXPECT_GE(rows, before) << length;
      before = rows;
    } catch (const InputError&) {
      EXPECT_EQ(before, 0u) << length;
    }
  }
  EXPECT_EQ(before, 4u);
}

std::string refusal_of_nccl(std::string_view text, const NcclGiven& given = {}) {
  try {
    parse_nccl_tests(text, "f", given);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// The sample with its first `old` replaced.
std::string changed_nccl(const char* name, const std::string& old, const std::string& other) {
  std::string text = nccl_sample(name);
  const std::size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), other);
}

void expect_nccl_refused(const std::string& text, std::initializer_list<const char*> words) {
  const std::string message = refusal_of_nccl(text);
  EXPECT_NE(message, "");
  for (const char* word : words) EXPECT_NE(message.find(word), message.npos) << message;
}

TEST(NcclTests, WhatDoesNotAddUpIsRefusedWithItsPlace) {
  const char* name = "current.txt";
  const std::string size = "8589934592    2147483648";
  expect_nccl_refused(changed_nccl(name, size, "8589934592    2147483640"),
                      {"36:1", "8589934592", "make"});
  expect_nccl_refused(changed_nccl(name, size, "-589934592    2147483648"), {"36:3", "-589934592"});
  expect_nccl_refused(changed_nccl(name, size, "99999999999999999999 1"),
                      {"36:3", "9999999", "integer"});
  expect_nccl_refused(changed_nccl(name, "43210.9", "43210.z"), {"36:55", "43210.z"});
  expect_nccl_refused(changed_nccl(name, "43210.9", "   -1.0"), {"36:58", "-1.0"});
  expect_nccl_refused(changed_nccl(name, "43210.9", "    nan"), {"nan"});
  expect_nccl_refused(changed_nccl(name, "43210.9", "  1e400"), {"1e400"});
  expect_nccl_refused(changed_nccl(name, "43210.9", "33210.9"), {"bus bandwidth", "16 ranks"});
  expect_nccl_refused(changed_nccl(name, "all_reduce_perf", "all_produce_perf"),
                      {"4:", "all_produce_perf"});
  expect_nccl_refused(changed_nccl(name, "(us)  (GB/s)", "(ms)  (GB/s)"), {"29:10", "(us)"});
  expect_nccl_refused(changed_nccl(name, "busbw", "speed"), {"in-place columns"});
  expect_nccl_refused(changed_nccl(name, "#  Rank  5", "#  Rank  4"),
                      {"rank 4 is there twice", "MPI=1"});
  expect_nccl_refused(changed_nccl(name, "#  Rank  5", "#  Renk  5"), {"rank 5 is missing"});
  expect_nccl_refused(changed_nccl(name, "node-1 device  7", "node-0 device  7"), {"7 ranks", "9"});
  expect_nccl_refused(changed_nccl(name, "H100", "A100"), {"one kind of device"});
  expect_nccl_refused(changed_nccl(name, "node-0", std::string("nod\0-0", 6)), {"NUL"});
  expect_nccl_refused(changed_nccl("all-gather.json", "\"size\":65536", "\"size\":-1"),
                      {"/results/0/size"});
  expect_nccl_refused(changed_nccl("all-gather.json", "\"size\":65536", "\"size\":65540"),
                      {"/results/0"});
  expect_nccl_refused(changed_nccl("all-gather.json", "\"time\":61.4", "\"time\":\"fast\""),
                      {"/results/0/out_of_place/time"});
  expect_nccl_refused(changed_nccl("all-gather.json", "\"version\":3", "\"version\":4"),
                      {"/version"});
  expect_nccl_refused(changed_nccl("all-gather.json", "\"ngpus\":8", "\"ngpus\":4"),
                      {"/config/devices/1"});
}

TEST(NcclTests, WhatIsNoTableIsRefused) {
  expect_nccl_refused("", {"no table"});
  expect_nccl_refused("# just a comment\n1 2 3\n", {"no table"});
  expect_nccl_refused(std::string(10'000'000, 'x'), {"1:1", "10000000 bytes"});
  expect_nccl_refused(
      "\x7f"
      "ELF\x02\x01\x01\n\xff\xfe",
      {"no table"});
  expect_nccl_refused("{\"version\":" + std::string(100'000, '['), {"nested deeper"});
  expect_nccl_refused("{}", {"version"});
  expect_nccl_refused("{\"version\": 3", {"f"});
  const std::string old = nccl_sample("old-all-gather.txt");
  expect_nccl_refused(old, {"--collective"});
  const std::string table = old.substr(old.find("#       size"));
  const NcclGiven given = {.collective = "all_gather", .ranks = 0, .ranks_per_node = 0, .date = ""};
  EXPECT_NE(refusal_of_nccl(table, given).find("--ranks"), std::string::npos);
  const NcclGiven whole = {.collective = "all_gather", .ranks = 4, .ranks_per_node = 2, .date = ""};
  EXPECT_EQ(refusal_of_nccl(table, whole), "");
  EXPECT_EQ(parse_nccl_tests(table, "f", whole).at(0).nodes, 2);
}

/// Returns the text with `tag` before each of its lines, without trailing blanks.
std::string tagged(const std::string& text, const std::string& tag) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = tag + text.substr(at, end - at);
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
    at = end + 1;
  }
  return result;
}

TEST(NcclTests, APrefixOfAllLinesIsTakenOff) {
  const std::string text = nccl_sample("current.txt");
  const NcclRun plain = parse_nccl_tests(text, "f", {}).at(0);
  for (const char* tag : {"[0] ", "node7: ", "[1,0]<stdout>:", "0: ", "gpu-a1|", "<0> [x] "}) {
    const std::vector<NcclRun> runs = parse_nccl_tests(tagged(text, tag), "f", {});
    ASSERT_EQ(runs.size(), 1u) << tag;
    EXPECT_EQ(runs[0].rows, plain.rows) << tag;
    EXPECT_EQ(runs[0].ranks, plain.ranks) << tag;
    EXPECT_EQ(runs[0].nodes, plain.nodes) << tag;
    EXPECT_EQ(runs[0].device, plain.device) << tag;
  }
}

/// One process of several may have its prefix alone, and others may write into its lines.
TEST(NcclTests, RowsBehindOtherTextAreReadOrNamed) {
  const std::string text = nccl_sample("current.txt");
  const NcclRun plain = parse_nccl_tests(text, "f", {}).at(0);
  std::string one = text;
  one.insert(one.find('\n', one.find("(GB/s)  ")) + 1, "[0] ");
  EXPECT_EQ(parse_nccl_tests(one, "f", {}).at(0).rows, plain.rows);
  one.insert(one.find("[0]  ") + 4, "a warning ");
  const NcclRun named = parse_nccl_tests(one, "f", {}).at(0);
  EXPECT_EQ(named.rows.size() + 1, plain.rows.size());
  ASSERT_EQ(named.notes.size(), plain.notes.size() + 1);
  EXPECT_NE(named.notes.back().find("a row behind \"a\": left out"), std::string::npos);
  EXPECT_EQ(parse_nccl_tests(tagged(text, "\x1b[1;32m"), "f", {}).at(0).rows, plain.rows);
}

/// A launcher's time of day differs by line.
TEST(NcclTests, TimesBeforeLinesAreTakenOff) {
  const std::string text = nccl_sample("current.txt");
  const NcclRun plain = parse_nccl_tests(text, "f", {}).at(0);
  for (const char* date : {"", "[2026-01-01T", "Jan 1 "}) {
    std::string stamped;
    int second = 9 * 3600 + 59 * 60 + 55;  // the hour gets a digit more
    for (std::size_t at = 0; at < text.size(); ++second) {
      const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      stamped += fmt::format("{}{}:{:02}:{:02}.{:03} ", date, second / 3600, second / 60 % 60,
                             second % 60, second * 37 % 1000);
      stamped += text.substr(at, end - at);
      at = end;
    }
    const std::vector<NcclRun> runs = parse_nccl_tests(stamped, "f", {});
    ASSERT_EQ(runs.size(), 1u) << date;
    EXPECT_EQ(runs[0].rows, plain.rows) << date;
    EXPECT_EQ(runs[0].ranks, plain.ranks) << date;
  }
  std::string seconds;
  int milliseconds = 0;
  for (const char c : "\n" + text.substr(0, text.size() - 1)) {
    seconds += c;
    if (c == '\n') seconds += fmt::format("1767225605.{:03} ", milliseconds++);
  }
  EXPECT_EQ(parse_nccl_tests(seconds.substr(1), "f", {}).at(0).rows, plain.rows);
}

/// A tag that slipped into a row is named by its line.
TEST(NcclTests, ARowWhoseRootIsNoRankIsLeftOut) {
  std::string text = tagged(nccl_sample("current.txt"), "[0] ");
  const std::size_t root = text.find(" -1 ");
  ASSERT_NE(root, text.npos);
  text.replace(root, 4, " [0]-1 ");
  const std::vector<NcclRun> runs = parse_nccl_tests(text, "f", {});
  EXPECT_EQ(runs.at(0).rows.size(), 4u);
  ASSERT_FALSE(runs[0].notes.empty());
  EXPECT_NE(runs[0].notes[0].find("root \"[0]-1\" is no rank: left out"), std::string::npos)
      << runs[0].notes[0];
}

TEST(NcclTests, RanksThatAreGivenStandForACutList) {
  std::string text = nccl_sample("current.txt");
  const std::size_t first = text.find("#  Rank  0"), second = text.find("#  Rank  5");
  ASSERT_TRUE(first != text.npos && second != text.npos);
  const std::string behind = text.substr(0, first) + text.substr(second);  // ranks 0 to 4 are gone
  const NcclGiven none;
  EXPECT_NE(refusal_of_nccl(behind, none).find("rank 5 where rank 0 is missing"),
            std::string::npos);
  EXPECT_NE(refusal_of_nccl(behind, none).find("--ranks"), std::string::npos);
  const NcclGiven given = {.collective = "", .ranks = 16, .ranks_per_node = 8, .date = ""};
  const std::size_t last = text.find("#  Rank 15");
  ASSERT_NE(last, text.npos);
  const std::string before = text.substr(0, last) + text.substr(text.find('\n', last) + 1);
  EXPECT_NE(refusal_of_nccl(before, none).find("--ranks stands for a list that is cut"),
            std::string::npos);
  for (const std::string& cut : {behind, before, text}) {
    const NcclRun run = parse_nccl_tests(cut, "f", given).at(0);
    EXPECT_EQ(run.ranks, 16);
    EXPECT_EQ(run.nodes, 2);
    EXPECT_EQ(run.rows.size(), 5u);
  }
  const NcclGiven fewer = {.collective = "", .ranks = 8, .ranks_per_node = 8, .date = ""};
  EXPECT_NE(refusal_of_nccl(text, fewer).find("the list has 16 ranks; --ranks 8 says otherwise"),
            std::string::npos);
}

TEST(NcclTests, NoEnvironmentIsKept) {
  std::vector<NcclRun> runs = runs_of("all-gather.json");
  Calibration calibration;
  calibration.date = "2026-07-09";
  calibration.collectives = nccl_points(runs);
  EXPECT_EQ(calibration_text(calibration).find("API_TOKEN"), std::string::npos);
  EXPECT_EQ(parse_calibration(calibration_text(calibration), "f"), calibration);
}

/// Bytes changed, removed, doubled or mixed between samples: read, or refused with an
/// InputError.
TEST(NcclTests, MutatedFilesAreReadOrRefused) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(kNcclSamples)) {
    seeds.push_back(read_file(entry.path()));
  }
  std::sort(seeds.begin(), seeds.end());
  ASSERT_GE(seeds.size(), 12u);
  std::mt19937_64 random(1);
  std::size_t refused = 0, read = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (std::uint64_t changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random() % text.size();
      const std::size_t length = std::min<std::size_t>(1 + random() % 200, text.size() - at);
      switch (random() % 5) {
        case 0:
          text[at] = char(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        case 3:
          text.insert(at, std::to_string(std::int64_t(random())));
          break;
        default:
          text.replace(at, length, seeds[at % seeds.size()].substr(0, length));
      }
    }
    try {
      const NcclGiven given = {
          .collective = "all_reduce", .ranks = 8, .ranks_per_node = 0, .date = ""};
      for (const CollectivePoint& point : points_of(parse_nccl_tests(text, "f", given))) {
        ASSERT_GT(point.payload, Bytes(0));
        ASSERT_GT(point.time.median, Seconds(0));
        ASSERT_EQ(point.ranks % point.nodes, 0);
      }
      ++read;
    } catch (const InputError& error) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(read, 500u);
}

}  // namespace
}  // namespace plimsoll

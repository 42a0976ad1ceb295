// Units: what parses to what, what is refused, what comes out, and checked arithmetic.
#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/error.h"

namespace plimsoll {
namespace {

struct BytesCase {
  const char* text;
  std::int64_t count;
};

TEST(Units, BytesParse) {
  const BytesCase cases[] = {
      {"0 B", 0},
      {"64 B", 64},
      {"64B", 64},
      {"512 MB", 512'000'000},
      {"80 GiB", 85'899'345'920},
      {"1.5 KiB", 1536},
      {"1.5 kB", 1500},
      {"0.001 kB", 1},
      {"2e3 B", 2000},
      {"007 B", 7},
      {"9007199254740992 B", std::int64_t{1} << 53},
      {"8 PiB", std::int64_t{1} << 53},
      {"9.007199254740992 PB", std::int64_t{1} << 53},
  };
  for (const BytesCase& c : cases) EXPECT_EQ(parse_bytes(c.text).count(), c.count) << c.text;
}

TEST(Units, BytesRefuse) {
  for (const char* text : {"",
                           "80",
                           "GiB",
                           "-1 B",
                           "+1 B",
                           "1 gib",
                           "1 GiB ",
                           " 1 GiB",
                           "1..5 B",
                           "1. B",
                           ".5 KiB",
                           "0.5 B",
                           "1.0001 kB",
                           "9007199254740993 B",
                           "8.5 PiB",
                           "1e300 B",
                           "1e99999999999 B",
                           "99999999999999999999999999999999 B",
                           "0x10 B",
                           "1 GiB/s",
                           "nan B",
                           "inf B",
                           "1,5 GiB"}) {
    EXPECT_THROW(parse_bytes(text), std::invalid_argument) << text;
  }
}

TEST(Units, RefusalNamesTextAndUnits) {
  try {
    parse_bytes("80 gigs");
    FAIL();
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("\"80 gigs\""), what.npos) << what;
    EXPECT_NE(what.find("GiB"), what.npos) << what;
    EXPECT_NE(what.find("\"80 GiB\""), what.npos) << what;
  }
}

TEST(Units, RatesAndTimesParseToTheNearestDouble) {
  EXPECT_EQ(parse_seconds("3 us").value(), 3e-6);
  EXPECT_EQ(parse_seconds("7 us").value(), 7e-6);  // 7 * 1e-6 would round to another double
  EXPECT_EQ(parse_seconds("1.5 ms").value(), 1.5e-3);
  EXPECT_EQ(parse_seconds("1.5e-06 s").value(), 1.5e-6);
  EXPECT_EQ(parse_seconds("2 s").value(), 2.0);
  EXPECT_EQ(parse_seconds("250 ns").value(), 250e-9);
  EXPECT_EQ(parse_bytes_per_second("450 GB/s").value(), 450e9);
  EXPECT_EQ(parse_bytes_per_second("1 Gbit/s").value(), 125e6);
  EXPECT_EQ(parse_bytes_per_second("1 GiB/s").value(), 1073741824.0);
  EXPECT_EQ(parse_bytes_per_second("12 B/s").value(), 12.0);
  EXPECT_EQ(parse_flops_per_second("312 TFLOP/s").value(), 312e12);
  EXPECT_EQ(parse_flops_per_second("2 EFLOP/s").value(), 2e18);
  EXPECT_EQ(parse_flops_per_second("2e3 FLOP/s").value(), 2000.0);
}

TEST(Units, RatesAndTimesRefuse) {
  EXPECT_THROW(parse_seconds("3"), std::invalid_argument);
  EXPECT_THROW(parse_seconds("3 min"), std::invalid_argument);
  EXPECT_THROW(parse_seconds("-3 s"), std::invalid_argument);
  EXPECT_THROW(parse_seconds("1e400 s"), std::invalid_argument);
  EXPECT_THROW(parse_bytes_per_second("450 GB"), std::invalid_argument);
  EXPECT_THROW(parse_bytes_per_second("450 Gb/s"), std::invalid_argument);
  EXPECT_THROW(parse_flops_per_second("312 TFLOPS"), std::invalid_argument);
  EXPECT_THROW(parse_flops_per_second("1e308 EFLOP/s"), std::invalid_argument);
}

TEST(Units, ExactTextReadsBackExactly) {
  EXPECT_EQ(exact_text(Bytes(0)), "0 B");
  EXPECT_EQ(exact_text(Bytes(25'769'803'776)), "24 GiB");
  EXPECT_EQ(exact_text(Bytes(25'769'803'777)), "25769803777 B");
  EXPECT_EQ(exact_text(Seconds(1.5e-6)), "1.5 us");
  EXPECT_EQ(exact_text(Seconds(0)), "0 s");
  EXPECT_EQ(exact_text(BytesPerSecond(450e9)), "450 GB/s");
  EXPECT_EQ(exact_text(FlopsPerSecond(312e12)), "312 TFLOP/s");
  EXPECT_EQ(exact_text(FlopsPerSecond(1e30)), "1e30 FLOP/s");
  for (double value :
       {1.0 / 3, 1e-30, 2.0 / 3 * 1e-6, 123456789.123456789, 1e23, 0.1 + 0.2, 999.9995,
        std::nextafter(1.0, 0.0), std::numeric_limits<double>::max(), 5e-324}) {
    EXPECT_EQ(parse_seconds(exact_text(Seconds(value))).value(), value);
    EXPECT_EQ(parse_bytes_per_second(exact_text(BytesPerSecond(value))).value(), value);
    EXPECT_EQ(parse_flops_per_second(exact_text(FlopsPerSecond(value))).value(), value);
  }
  for (std::int64_t count : {1L, 1023L, 1024L, 3L << 40, 1L << 53, (1L << 53) - 1}) {
    EXPECT_EQ(parse_bytes(exact_text(Bytes(count))).count(), count);
  }
}

TEST(Units, PeopleText) {
  EXPECT_EQ(to_text(Bytes(0)), "0 B");
  EXPECT_EQ(to_text(Bytes(1023)), "1023 B");
  EXPECT_EQ(to_text(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(to_text(Bytes(-1536)), "-1.50 KiB");
  EXPECT_EQ(to_text(Bytes(1'524'713'390)), "1.42 GiB");
  EXPECT_EQ(to_text(Bytes((1 << 20) - 1)), "1.00 MiB");
  EXPECT_EQ(to_text(Seconds(0.0137)), "13.7 ms");
  EXPECT_EQ(to_text(Seconds(0.9999)), "1.00 s");
  EXPECT_EQ(to_text(Seconds(0.0)), "0 s");
  EXPECT_EQ(to_text(Seconds(-2e-6)), "-2.00 us");
  EXPECT_EQ(to_text(BytesPerSecond(450e9)), "450 GB/s");
  EXPECT_EQ(to_text(FlopsPerSecond(148e9)), "148 GFLOP/s");
}

TEST(Units, Rounding) {
  EXPECT_EQ(round_up(Bytes(0), Bytes(64)).count(), 0);
  EXPECT_EQ(round_up(Bytes(1), Bytes(64)).count(), 64);
  EXPECT_EQ(round_up(Bytes(64), Bytes(64)).count(), 64);
  EXPECT_EQ(to_picoseconds(Seconds(1.4e-12)).count(), 1);
  EXPECT_EQ(to_picoseconds(Seconds(-1.4e-12)).count(), -1);
  EXPECT_EQ(to_picoseconds(Seconds(-1.6e-12)).count(), -2);
  for (const double halves : {0.5, -0.5, 2.5, -3.5, 0.49999999999999994, 4503599627370495.5}) {
    EXPECT_EQ(to_picoseconds(Seconds(halves * 1e-12)).count(),
              std::int64_t(std::round(halves * 1e-12 * 1e12)));
  }
  EXPECT_EQ(to_picoseconds(Seconds(1.6e-12)).count(), 2);
  EXPECT_EQ(to_picoseconds(Seconds(2)).count(), 2'000'000'000'000);
}

TEST(Units, MeaningfulQuotients) {
  EXPECT_EQ((Bytes(1000) / BytesPerSecond(500)).value(), 2.0);
  EXPECT_EQ((Flops(6e9) / FlopsPerSecond(3e9)).value(), 2.0);
  EXPECT_EQ((Bytes(1000) / Seconds(2)).value(), 500.0);
}

TEST(UnitsDeathTest, OverflowAborts) {
  const Bytes most(std::numeric_limits<std::int64_t>::max());
  EXPECT_DEATH(most + Bytes(1), "overflows");
  EXPECT_DEATH(Bytes(-2) - most, "overflows");
  EXPECT_DEATH(most * 2, "overflows");
}

TEST(Units, TimesBeyondTheClockAreRefused) {
  const Picoseconds most(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(most - Picoseconds(1) + Picoseconds(1), most);
  EXPECT_THROW(most + Picoseconds(1), InfeasibleError);
  EXPECT_THROW(Picoseconds(-2) - most, InfeasibleError);
  Picoseconds sum = most;
  EXPECT_THROW(sum += Picoseconds(1), InfeasibleError);
  EXPECT_THROW(to_picoseconds(Seconds(1e7)), InfeasibleError);
  EXPECT_THROW(to_picoseconds(Seconds(std::nan(""))), InfeasibleError);
  EXPECT_EQ(to_picoseconds(Seconds(9e6)).count(), 9'000'000'000'000'000'000);
}

}  // namespace
}  // namespace plimsoll

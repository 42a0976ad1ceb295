// Quantities are types. Bytes and Picoseconds are exact integers with checked arithmetic; Seconds,
// Flops and the rates are doubles. Construction is explicit, and only meaningful quotients exist.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

/// Bytes are an exact count. An overflow aborts, since user input is bounded before it gets here.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}
  constexpr std::int64_t count() const { return count_; }
  friend Bytes operator+(Bytes a, Bytes b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a.count_, b.count_, &sum)) overflow();
    return Bytes(sum);
  }
  friend Bytes operator-(Bytes a, Bytes b) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a.count_, b.count_, &difference)) overflow();
    return Bytes(difference);
  }
  friend Bytes operator*(Bytes a, std::int64_t times) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a.count_, times, &product)) overflow();
    return Bytes(product);
  }
  friend Bytes operator*(std::int64_t times, Bytes a) { return a * times; }
  Bytes& operator+=(Bytes b) { return *this = *this + b; }
  Bytes& operator-=(Bytes b) { return *this = *this - b; }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  [[noreturn]] static void overflow();

  std::int64_t count_ = 0;
};

/// Rounds up to a multiple of `alignment` (> 0).
Bytes round_up(Bytes size, Bytes alignment);

/// A Quantity is a double with a unit. `Tag` makes seconds, flops and rates different types.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}
  constexpr double value() const { return value_; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value_ + b.value_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator*(Quantity a, double times) {
    return Quantity(a.value_ * times);
  }
  friend constexpr Quantity operator*(double times, Quantity a) {
    return Quantity(a.value_ * times);
  }
  friend constexpr Quantity operator/(Quantity a, double by) { return Quantity(a.value_ / by); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
  Quantity& operator+=(Quantity b) { return *this = *this + b; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  double value_ = 0;
};

using Seconds = Quantity<struct SecondsTag>;
using Flops = Quantity<struct FlopsTag>;                    ///< floating-point operations, a count
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;  ///< per device and direction
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds(static_cast<double>(amount.count()) / rate.value());
}
constexpr Seconds operator/(Flops amount, FlopsPerSecond rate) {
  return Seconds(amount.value() / rate.value());
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return BytesPerSecond(static_cast<double>(amount.count()) / time.value());
}
constexpr FlopsPerSecond operator/(Flops amount, Seconds time) {
  return FlopsPerSecond(amount.value() / time.value());
}

/// Picoseconds are a simulated or measured time, an exact integer of up to 106 days. Arithmetic
/// beyond 106 days throws InfeasibleError and does not abort as Bytes do: a time follows from rates
/// that users state, and bounds on each rate would not bound their sum.
class Picoseconds {
 public:
  constexpr Picoseconds() = default;
  constexpr explicit Picoseconds(std::int64_t count) : count_(count) {}
  constexpr std::int64_t count() const { return count_; }
  constexpr Seconds seconds() const { return Seconds(static_cast<double>(count_) * 1e-12); }
  friend constexpr Picoseconds operator+(Picoseconds a, Picoseconds b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a.count_, b.count_, &sum)) out_of_range();
    return Picoseconds(sum);
  }
  friend constexpr Picoseconds operator-(Picoseconds a, Picoseconds b) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a.count_, b.count_, &difference)) out_of_range();
    return Picoseconds(difference);
  }
  Picoseconds& operator+=(Picoseconds b) { return *this = *this + b; }
  friend constexpr auto operator<=>(Picoseconds, Picoseconds) = default;

 private:
  friend Picoseconds to_picoseconds(Seconds time);
  [[noreturn]] static void out_of_range();

  std::int64_t count_ = 0;
};

/// Rounds to the nearest picosecond. Simulated time is rounded nowhere else. Throws InfeasibleError
/// beyond 106 days, and for what is not a number.
inline Picoseconds to_picoseconds(Seconds time) {
  const double count = time.value() * 1e12;
  if (!(count > -9.2e18 && count < 9.2e18)) Picoseconds::out_of_range();
  // The result is that of std::round, which would be a function call for each of many millions of
  // times. It is exact: where doubles are further apart than 1, no fraction is left.
  const auto whole = static_cast<std::int64_t>(count);
  const double rest = count - static_cast<double>(whole);
  return Picoseconds(whole + (rest >= 0.5 ? 1 : 0) - (rest <= -0.5 ? 1 : 0));
}

// Parsers take what people write: a number, an optional space and a unit. They throw
// std::invalid_argument naming the text and the allowed units, and refuse a bare number or a sign.
// Decimal units are applied to the decimal text, so "7 us" is exactly the double 7e-06. Bytes must
// come out whole and at most 2^53.
Bytes parse_bytes(std::string_view text);                      ///< "80 GiB", "512 MB", "64 B"
Seconds parse_seconds(std::string_view text);                  ///< "3 us", "1.5 ms", "2 s"
BytesPerSecond parse_bytes_per_second(std::string_view text);  ///< "450 GB/s", "1 Gbit/s"
FlopsPerSecond parse_flops_per_second(std::string_view text);  ///< "312 TFLOP/s"

// exact_text() is for files that people also write. It gives every digit in the largest unit that
// stays exact, so that parse(exact_text(x)) == x ("24 GiB", "450 GB/s", "1.5 us").
std::string exact_text(Bytes size);
std::string exact_text(Seconds time);
std::string exact_text(BytesPerSecond rate);
std::string exact_text(FlopsPerSecond rate);

// to_text() is for people. It gives three significant digits and a unit ("1.42 GiB", "13.7 ms").
std::string to_text(Bytes size);
std::string to_text(Seconds time);
std::string to_text(BytesPerSecond rate);
std::string to_text(FlopsPerSecond rate);

}  // namespace plimsoll

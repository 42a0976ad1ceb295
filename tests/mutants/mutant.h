// The functions that lab/mutants writes into copies of sources, in place of operators. One
// build holds all mutants of a source. Each place asks which mutant is on, and notes that it was
// reached.
#pragma once

namespace plimsoll_mutants {

extern int on;                   ///< number of the mutant that is on, or 0
extern unsigned char reached[];  ///< by number

/// Whether this mutant is on.
[[gnu::always_inline]] inline bool is(int number) {
  reached[number] = 1;
  return on == number;
}

/// The condition inside of a place that has asked with is().
[[gnu::always_inline]] inline bool still(int number) { return on == number; }

// Operands are evaluated once. Types for which one of the operators is missing make the call an
// error at its own place, so that the script can leave the place out.
#define PLIMSOLL_MUTANT_OPERATOR(name, op, other)                                            \
  template <class A, class B>                                                                \
  requires requires(const A& a, const B& b) {                                                \
    a op b;                                                                                  \
    static_cast<decltype(a op b)>(a other b);                                                \
  }                                                                                          \
  [[gnu::always_inline]] inline auto name(int n, const A& a, const B& b)->decltype(a op b) { \
    if (is(n)) return static_cast<decltype(a op b)>(a other b);                              \
    return a op b;                                                                           \
  }
// A comparison has two mutants: its border, and its opposite.
#define PLIMSOLL_MUTANT_COMPARISON(name, op, border, opposite)             \
  template <class A, class B>                                              \
  requires requires(const A& a, const B& b) {                              \
    a op b;                                                                \
    a border b;                                                            \
    a opposite b;                                                          \
  }                                                                        \
  [[gnu::always_inline]] inline bool name(int n, const A& a, const B& b) { \
    if (is(n)) return a border b;                                          \
    if (on == n + 1) return a opposite b;                                  \
    return a op b;                                                         \
  }
#define PLIMSOLL_MUTANT_ASSIGNMENT(name, op, other)                \
  template <class A, class B>                                      \
  requires requires(A & a, const B& b) {                           \
    a op b;                                                        \
    a other b;                                                     \
  }                                                                \
  [[gnu::always_inline]] inline A& name(int n, A& a, const B& b) { \
    if (is(n)) {                                                   \
      a other b;                                                   \
    } else {                                                       \
      a op b;                                                      \
    }                                                              \
    return a;                                                      \
  }
PLIMSOLL_MUTANT_OPERATOR(plus, +, -)
PLIMSOLL_MUTANT_OPERATOR(minus, -, +)
PLIMSOLL_MUTANT_OPERATOR(times, *, /)
PLIMSOLL_MUTANT_OPERATOR(over, /, *)
PLIMSOLL_MUTANT_OPERATOR(modulo, %, *)
PLIMSOLL_MUTANT_OPERATOR(equal, ==, !=)
PLIMSOLL_MUTANT_OPERATOR(differ, !=, ==)
PLIMSOLL_MUTANT_COMPARISON(less, <, <=, >=)
PLIMSOLL_MUTANT_COMPARISON(at_most, <=, <, >)
PLIMSOLL_MUTANT_COMPARISON(more, >, >=, <=)
PLIMSOLL_MUTANT_COMPARISON(at_least, >=, >, <)
PLIMSOLL_MUTANT_ASSIGNMENT(add_to, +=, -=)
PLIMSOLL_MUTANT_ASSIGNMENT(take_from, -=, +=)
PLIMSOLL_MUTANT_ASSIGNMENT(scale, *=, /=)
PLIMSOLL_MUTANT_ASSIGNMENT(divide, /=, *=)

template <class T>
[[gnu::always_inline]] inline T min_of(int n, const T& a, const T& b) {
  return is(n) ? (a < b ? b : a) : (b < a ? b : a);
}

template <class T>
[[gnu::always_inline]] inline T max_of(int n, const T& a, const T& b) {
  return is(n) ? (b < a ? b : a) : (a < b ? b : a);
}

}  // namespace plimsoll_mutants

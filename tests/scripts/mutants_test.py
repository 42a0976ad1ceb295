"""lab/mutants: places are found and changed, one build holds all of them, and samples leave out what changes no result."""

import pathlib
import subprocess
import sys
import tempfile

from programs import SOURCE, load_script

SKIPPED = 77
EXAMPLE = b"""
#include <algorithm>
#include <vector>
#define TWICE(x) ((x) + (x))
constexpr int kFour = 2 + 2;
const int kEight = kFour + kFour;
static void grow(std::vector<int>& all) { all.push_back(1); }
bool known(int a) { return a == 7; }
int value(int a, int b) {
  static_assert(kFour - 1 == 3);
  std::vector<int> all(2);
  grow(all);
  if (a < b || known(a)) a += TWICE(b);
  return std::max(a - b * 2, int(all.size()));
}
"""
# The program prints value(1, 2) and value(9, 2) with the mutant of a number.
MAIN = """
#include <cstdio>
#include <cstdlib>
#include "tests/mutants/mutant.h"
int plimsoll_mutants::on = 0;
unsigned char plimsoll_mutants::reached[1 << 20];
int value(int, int);
int main(int, char** arguments) {
  plimsoll_mutants::on = std::atoi(arguments[1]);
  std::printf("%d %d\\n", value(1, 2), value(9, 2));
}
"""


def check_logic(mutants, places):
    outer = places.Place(0, 9, ["&& to ||"], [(0, "A{n}("), (9, ")A")], [(2, 4, ",")])
    inner = places.Place(0, 1, ["without !"], [(0, "B{n}("), (1, ")B")], [])
    last = places.Place(5, 9, ["< to <=", "< to >="], [(5, "C{n}("), (9, ")C")], [(6, 7, ",")])
    numbered = places.numbered([outer, inner, last], 2)
    assert [place.number for place in numbered] == [8193, 8194, 8195] and [*last.numbers()] == [8195, 8196]
    text = b"a && b<cd;"
    made, where = places.changed(text, numbered)
    assert made == b"A8193(B8194(a)B , C8195(b,cd)C)A;", made
    found = places.at_fault(made, where, numbered, 1, made.index(b"C8195") + 1)
    assert [place.number for place in found] == [8195], found
    assert places.at_fault(made, where, numbered, 1, 1) == [outer]

    def mutant(line, words, number):
        return mutants.Mutant("plan", "a.cpp", None, number, "+ to -", line, words)
    everything = [mutant(1, "a + b", 1), mutant(2, "a + b", 2), mutant(3, "c + d", 3)]
    left, stale = mutants.without_equal(everything, {("a.cpp", "a + b", "+ to -", 1)})
    assert [one.number for one in left] == [1, 3] and not stale
    left, stale = mutants.without_equal(everything, {("a.cpp", "a + b", "+ to -", None), ("a.cpp", "e", "+ to -", None)})
    assert [one.number for one in left] == [3] and stale == [("a.cpp", "e", "+ to -", None)]

    one = mutants.Mutant("plan", "a.cpp", outer, 8193, "", 1, "")
    reached = {8193: [(3.0, "p", "Slow.C"), (0.2, "q", "Fast.A"), (0.2, "p", "Fast.B"), (99.0, "p", "Long.D")]}
    tests = mutants.tests_of(one, reached, 60)
    assert [test for _, _, test in tests] == ["Fast.A", "Fast.B", "Slow.C"], tests
    assert [test for _, _, test in mutants.tests_of(one, reached, 0.3)] == ["Fast.A"]
    assert mutants.tests_of(one, {8193: reached[8193][3:]}, 60) == reached[8193][3:]
    assert [(program, [test for _, test in batch]) for program, batch in mutants.batches(tests)] == [
        ("q", ["Fast.A"]), ("p", ["Fast.B"]), ("p", ["Slow.C"])]
    row = mutants.row_of("checker", 50, 4, ["killed", "survived", "killed", "not reached"])
    assert (row["killed"], row["survived"], row["unreached"], row["score"]) == (2, 1, 1, 50), row


def check_build(places):
    """Each mutant of the example, in one program."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "example.cpp"
        found = places.numbered(places.Finder(source, ["-std=c++20"], EXAMPLE).places, 0)
        source.write_bytes(places.changed(EXAMPLE, found)[0])
        (folder / "main.cpp").write_text(MAIN)
        subprocess.run(["c++", "-std=c++20", f"-I{SOURCE}", "-include", SOURCE / "tests/mutants/mutant.h", source,
                        folder / "main.cpp", "-o", folder / "example"], check=True)

        def result(number):
            return subprocess.run([folder / "example", str(number)], capture_output=True, text=True, check=True).stdout.strip()
        by_mutant = {(places.words_of(EXAMPLE, place), change): result(number) for place in found
                     for number, change in zip(place.numbers(), place.changes)}
        assert result(0) == "3 5", result(0)
    expected = {
        ("all.push_back(1)", "call removed"): "2 5", ("a == 7", "== to !="): "3 9", ("grow(all)", "call removed"): "2 5",
        ("a < b || known(a)", "|| to &&"): "3 5", ("a < b", "< to <="): "3 5", ("a < b", "< to >="): "3 9",
        ("a += TWICE(b)", "+= to -="): "3 5", ("std::max(a - b * 2, int(all.size()))", "std::max to std::min"): "1 3",
        ("a - b * 2", "- to +"): "9 13", ("b * 2", "* to /"): "4 8"}
    assert by_mutant == expected, by_mutant


def main():
    mutants = load_script("mutants")
    places = mutants.mutant_places
    check_logic(mutants, places)
    if places.cindex is None:
        print("python3-clang-14 is missing: no source was read")
        return SKIPPED
    check_build(places)
    print("a program with all mutants of an example does what each of them says")
    return 0


if __name__ == "__main__":
    sys.exit(main())

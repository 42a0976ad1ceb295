"""scripts/check finds comments without a subject, long sentences, code that is not formatted, and what clang-tidy finds."""

import sys
import tempfile
import pathlib

import programs

check = programs.load_script("check")


def main():
    lines = [
        "// Sums of stages.",
        "/// Of the first stage.",
        "  // The same for bytes.",
        "  int b;  ///< bytes. Of all ranks",
        "/// Offsets of the first stage.",
        "/// The samest.",
    ]
    found = list(check.check_openings("a.h", lines))
    assert [line.split(":")[1] for line in found] == ["2", "3"], found
    found = list(check.check_openings("a.cpp", ["#include <map>"]))
    assert [line.split(":")[1] for line in found] == ["1"], found

    most = check.MOST_WORDS
    long_enough, too_long = "One " + "word " * (most - 1), "One " + "word " * most
    lines = [
        f"/// {long_enough.strip()}. {long_enough.strip()}.",
        "int a = 0;",
        f"/// {too_long[:len(too_long) // 2]}",
        f"/// {too_long[len(too_long) // 2:].strip()}.",
        f"int b = 0;  ///< {too_long}",
        f"/// {long_enough}",
        f"/// - {long_enough}",
    ]
    found = list(check.check_sentences("a.h", lines))
    assert [line.split(":")[1] for line in found] == ["3", "5"], found
    # Messages of several words count in sources, whole lines in pages; keys and comments do not.
    lines = ['fail("it stands beside the plan");  // beside', 'key("beside");', 'fail("the file says so");', "for so many ranks"]
    assert [line.split(":")[1] for line in check.check_words("a.cpp", lines)] == ["1", "3"]
    # Code and targets of links are no words. "where" is for places: these lines have conditions first, then places.
    lines = ["so many ranks", "so many as", "as many", "the key `beside`", "[a](0019-beside-b.md)", "It fits only where it can.",
             "Where they are built in, none is needed.", "the last one, where no plan fits", "the layer where rows are sent",
             "It shows where each fact is from.", "where it is used"]
    pages = ["README.md", "docs/architecture.md", "docs/glossary.md", "lab/pages/speed.md.in"]
    pages += [f"docs/{folder}/page.md" for folder in ("guide", "reference", "how-it-works", "how-to")]
    for page in pages:
        assert [line.split(":")[1] for line in check.check_words(page, lines)] == ["1", "6", "7", "8"], page
    assert not list(check.check_words("docs/adr/0001-x.md", lines)), "decisions of before stay as they are"
    with tempfile.TemporaryDirectory() as folder:
        good, bad = pathlib.Path(folder, "good.cpp"), pathlib.Path(folder, "bad.cpp")
        good.write_text("int a = 1;\n")
        bad.write_text("int   a=1 ;\n")
        style = pathlib.Path(folder, ".clang-format")
        style.write_text((programs.SOURCE / ".clang-format").read_text())
        found = check.check_format([str(good), str(bad)])
        assert len(found) == 1 and found[0].startswith(str(bad)), found
        moved = pathlib.Path(folder, "moved.cpp")
        moved.write_text("#include <string>\n#include <utility>\n"
                         "std::size_t f(std::string a) {\n  std::string b = std::move(a);\n"
                         "  return a.size() + b.size();\n}\n")
        tidy = pathlib.Path(folder, ".clang-tidy")
        tidy.write_text((programs.SOURCE / ".clang-tidy").read_text())
        found = check.check_tidy([str(moved), str(good)])
        assert len(found) == 1 and "use-after-move" in found[0], found
    print("scripts/check finds what it should")


if __name__ == "__main__":
    sys.exit(main())

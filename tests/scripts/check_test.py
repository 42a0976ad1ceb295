"""scripts/check finds comments without a subject, and code that is not formatted."""

import sys
import tempfile
import pathlib

import programs

check = programs.load_script("check")


def main():
    lines = [
        ("a.h", 1, "/// Of the first stage."),
        ("a.h", 2, "  // The same for bytes."),
        ("a.cpp", 3, "  int b;  ///< bytes. Of all ranks"),
        ("a.md", 4, "// Of a page."),
        ("a.h", 5, "/// Offsets of the first stage."),
        ("a.h", 6, "/// The samest."),
    ]
    found = check.check_openings(lines)
    assert [line.split(":")[1] for line in found] == ["1", "2"], found
    with tempfile.TemporaryDirectory() as folder:
        good, bad = pathlib.Path(folder, "good.cpp"), pathlib.Path(folder, "bad.cpp")
        good.write_text("int a = 1;\n")
        bad.write_text("int   a=1 ;\n")
        style = pathlib.Path(folder, ".clang-format")
        style.write_text((programs.SOURCE / ".clang-format").read_text())
        found = check.check_format([str(good), str(bad)])
        assert len(found) == 1 and found[0].startswith(str(bad)), found
    print("scripts/check finds what it should")


if __name__ == "__main__":
    sys.exit(main())

"""Pages stay short, and their sentences, too: at most 150 lines a page, 60 a decision, 120 the README; at most 40 words. A
decision has its status and then what was decided. All pages together stay few, and so do their words."""

import re
import subprocess
import sys

from programs import SOURCE

MOST_LINES = {"README.md": 120, "docs/adr/": 60, "": 150}  # by how a page's path begins; the first that fits
NO_PAGES = ("CHANGELOG.md",)  # one line for each change, since the beginning
MOST_WORDS = 40
ALL_PAGES, ALL_WORDS = 90, 60_000  # of docs; cells of generated tables do not count
GENERATED = "docs/results/"  # cells of generated tables are data
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[^\sa-z])")
ABBREVIATIONS = re.compile(r"\b(et al|e\.g|i\.e|vs|Fig|No)\.")


def blocks(text, with_tables):
    """(line number, text) of each paragraph, item of a list, heading and cell of a table."""
    found, begin, fenced = [], None, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        indented = line.startswith("    ") and begin is None
        if fenced or line.startswith("```") or indented or not line.strip():
            begin = None
        elif line.startswith("|"):
            begin = None
            if with_tables:
                found += [(number, cell) for cell in line.replace("\\|", "/").split("|")]
        elif line.startswith("#"):
            begin = None
        elif begin is None or ITEM.match(line):
            begin = number
            found.append((number, ITEM.sub("", line)))
        else:
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
    return found


def sentences(block):
    plain = LINK.sub(r"\1", CODE.sub("Code", block))
    plain = ABBREVIATIONS.sub(lambda match: match.group(0).replace(".", ""), plain)
    return SENTENCE_END.split(plain.strip())


def long_sentences(page, text):
    with_tables = not page.startswith(GENERATED)
    for number, block in blocks(text, with_tables):
        for sentence in sentences(block):
            words = len([word for word in sentence.split() if re.search(r"\w", word)])
            if words > MOST_WORDS:
                yield f"{page}:{number}: {words} words, at most {MOST_WORDS}: {sentence[:70]}..."


def too_long(page, text):
    most = next(limit for start, limit in MOST_LINES.items() if page.startswith(start))
    lines = len(text.splitlines())
    if lines > most:
        yield f"{page}: {lines} lines, at most {most}"


def unlike_a_decision(page, text):
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    if page.startswith("docs/adr/") and not (
            re.match(rf"# {page[9:13]}\. .*\n\nStatus: ", text) and headings[:1] == ["Decision"]):
        yield f"{page}: is not its number and name, its status, and then the decision"


def found_in(page, text):
    return [*too_long(page, text), *long_sentences(page, text), *unlike_a_decision(page, text)]


def words_of(page, text):
    lines = text.splitlines()
    if page.startswith(GENERATED):
        lines = [line for line in lines if not line.startswith("|")]
    return sum(len(line.split()) for line in lines)


def too_much(texts):
    """`texts`: by page."""
    words = [words_of(page, text) for page, text in texts.items() if page.startswith("docs/")]
    if len(words) > ALL_PAGES:
        yield f"docs: {len(words)} pages, at most {ALL_PAGES}"
    if sum(words) > ALL_WORDS:
        yield f"docs: {sum(words)} words, at most {ALL_WORDS}"


def the_rules_can_fire():
    words = " ".join(["word"] * 25)
    assert len(found_in("README.md", "Line.\n" * 121)) == 1
    assert not found_in("docs/page.md", "Line.\n" * 150)
    decision = "# 0001. X\n\nStatus: accepted.\n\n## Decision\n\n"
    assert not found_in("docs/adr/0001-x.md", decision + "Line.\n" * 50)
    assert len(found_in("docs/adr/0001-x.md", decision + "Line.\n" * 55)) == 1
    assert len(found_in("docs/adr/0001-x.md", decision.replace("Decision", "Context"))) == 1
    assert not found_in("docs/page.md", f"A {words}. A {words}.")
    assert len(found_in("docs/page.md", f"A {words},\n{words}.")) == 1
    assert not found_in("docs/page.md", f"- A {words}\n- {words}\n\n    {words} {words}\n")
    assert len(found_in("docs/page.md", f"| a | {words} {words} |")) == 1
    assert not found_in("docs/results/page.md", f"| a | {words} {words} |")
    assert not list(too_much({"docs/page.md": "word " * ALL_WORDS, "docs/results/page.md": f"| {words} |", "README.md": words}))
    assert len(list(too_much({f"docs/{index}.md": "word " * 1000 for index in range(ALL_PAGES + 1)}))) == 2


def main():
    the_rules_can_fire()
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            cwd=SOURCE, capture_output=True, text=True, check=False).stdout.split()
    pages = [page for page in listed if (SOURCE / page).is_file()] or [
        str(path.relative_to(SOURCE)) for path in (*SOURCE.glob("*.md"), *(SOURCE / "docs").rglob("*.md"))]
    texts = {page: (SOURCE / page).read_text(encoding="utf-8") for page in sorted(pages) if page not in NO_PAGES}
    found = [*too_much(texts), *(message for page, text in texts.items() for message in found_in(page, text))]
    print("\n".join(found) or f"{len(pages)} pages are short, and so are their sentences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Links between the project's pages lead somewhere: to a file that is there, and a heading in it. The scripts that a page names
are there. The schema of framework files describes every field. The page on imports lists each model that is read. No program is needed, so that `scripts/check` runs it."""

import json
import re
import subprocess
import sys

from programs import SOURCE

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$")
FENCE = re.compile(r"^(```|    )")
SCRIPT = re.compile(r"(?<![\w/.-])(?:scripts|lab)/[\w.-]*\w(?:/[\w.-]*\w)*")
ANY_NAME = re.compile(r"\b[A-Z]{3,}\b")  # NAME.json stands for a file of the reader's


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        heading = HEADING.match(line)
        if heading:
            text = re.sub(r"[^\w\- ]", "", heading.group(1).strip().lower())
            found.add(text.replace(" ", "-"))
    return found


def broken_links(page, text, root):
    """Messages for a page, whose path is below `root`."""
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            continue
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (root / page).parent / name if name else root / page
            if not path.exists():
                yield f"{page}:{number}: {target}: no such file"
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{page}:{number}: {target}: no such heading"


def missing_scripts(page, text, root):
    """Messages for files of scripts/ and lab/ that a page names and that do not exist."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in SCRIPT.findall(line):
            if not ANY_NAME.search(name) and not (root / name).exists():
                yield f"{page}:{number}: {name}: no such file"


def undescribed(schema, keys):
    """Messages for those `keys` of framework files that their schema does not describe, or describes by the words of another."""
    groups = {name: group.get("properties", {}) for name, group in schema["properties"].items()}
    texts = {(group, key): of.get("description") for group, members in groups.items() for key, of in members.items()
             if key != "source"}
    described = {key for (_, key), text in texts.items() if text}
    yield from (f"does not describe {key}" for key in keys if key not in described)
    for group in groups:
        own = [text for (of, _), text in texts.items() if of == group and text]
        yield from (f"{group}: describes two keys by the same words: {text}" for text in sorted(set(own)) if own.count(text) > 1)


def undescribed_fields():
    """The schema of framework files, held against the fields and capabilities that are read."""
    fields = (SOURCE / "models/framework/framework_fields.h").read_text(encoding="utf-8")
    keys = re.findall(r'FieldPlace\{k\w+, "(\w+)"', fields)
    capabilities = re.findall(r'visit\("(\w+)", can\.', (SOURCE / "models/framework/capabilities_json.cpp").read_text(encoding="utf-8"))
    assert len(keys) > 40 and len(capabilities) > 30, (keys, capabilities)
    path = "models/presets/schemas/framework.json"
    schema = json.loads((SOURCE / path).read_text(encoding="utf-8"))
    twice = {"properties": {"memory": {"properties": {"a": {"description": "x"}, "b": {"description": "x"}}}, "can": {"properties": {"c": {}}}}}
    assert len(list(undescribed(twice, ["a", "b", "c"]))) == 2
    return [f"{path}: {message}" for message in undescribed(schema, keys + capabilities)]


def other_models(page, known):
    """Messages for values of model_type that are on one side alone: in the list of the page on imports, or in `known`."""
    section = page.split("These values of `model_type` are known")[1].split("`models/presets/architectures`")[0]
    listed = set(re.findall(r"`([\w-]+)`", section))
    return [f"docs/reference/imports.md: {name}: in {'the list' if name in listed else 'models/presets/architectures'} alone"
            for name in sorted(listed ^ known)]


def unlisted_models():
    known = set()
    for path in (SOURCE / "models/presets/architectures").glob("*.json"):
        read = json.loads(path.read_text(encoding="utf-8"))
        known |= set() if "refused" in read else {path.stem, *read.get("model_types", [])}
    page = (SOURCE / "docs/reference/imports.md").read_text(encoding="utf-8")
    assert len(other_models(page.replace("`llama`", "`new`"), known)) == 2
    return other_models(page, known)


def main():
    fires = list(broken_links("README.md", "[a](no-such-page.md) [b](README.md#no-such-heading)", SOURCE))
    assert len(fires) == 2, fires
    fires = list(missing_scripts("README.md", "`lab/no-such X`, tests/scripts/x.py, scripts/check, `lab/rules/words`, lab/NAME.py.", SOURCE))
    assert fires == ["README.md:1: lab/no-such: no such file"], fires
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            cwd=SOURCE, capture_output=True, text=True, check=False).stdout.split()
    pages = [page for page in listed if (SOURCE / page).is_file()] or [
        str(path.relative_to(SOURCE)) for path in (*SOURCE.glob("*.md"), *(SOURCE / "docs").rglob("*.md"))]
    texts = {page: (SOURCE / page).read_text(encoding="utf-8") for page in pages}
    found = [message for page, text in texts.items() for message in broken_links(page, text, SOURCE)]
    found += [message for page, text in texts.items() if page != "CHANGELOG.md" for message in missing_scripts(page, text, SOURCE)]
    found += undescribed_fields() + unlisted_models()
    print("\n".join(found) or f"the links of {len(pages)} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

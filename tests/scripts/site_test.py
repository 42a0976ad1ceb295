"""scripts/docs builds the pages as a site: every page is in its search index, and nothing in it needs a network."""

import html.parser
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from programs import OK, SOURCE

SKIPPED = 77
# For each tag that makes a browser fetch something by itself: the attribute that says from where.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}
LISTS = ("\n- ", "\n* ", "\n| ", "\n1. ")  # Markdown that a paragraph swallowed


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.fetched, self.links, self.anchors, self.swallowed = [], [], set(), []
        self.inside = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.inside += tag == "p"
        if tag in FETCHED and found.get(FETCHED[tag]) and found.get("rel") != "canonical":
            self.fetched.append(found[FETCHED[tag]])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get("id"):
            self.anchors.add(found["id"])

    def handle_endtag(self, tag):
        self.inside -= tag == "p"

    def handle_data(self, data):
        if self.inside > 0:
            self.swallowed += [data.strip()[:60] for begin in LISTS if begin in data]


def main():
    if not shutil.which("mkdocs"):
        print("mkdocs is not installed (scripts/setup installs it): the site is not built")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        site = pathlib.Path(name) / "site"
        done = subprocess.run([SOURCE / "scripts" / "docs", "--out", site], capture_output=True, text=True)
        assert done.returncode == OK, done.stdout + done.stderr
        pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
        searched = {doc["location"].split("#")[0]
                    for doc in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    found = []
    for path, page in pages.items():
        place = path.relative_to(site.resolve())
        found += [f"{place}: fetches {url}" for url in page.fetched if "//" in url]
        found += [f"{place}: a list or table is part of a paragraph: {text}" for text in page.swallowed]
        if str(place) not in searched and place.name not in ("404.html", "search.html"):
            found.append(f"{place}: not in the search index")
        for link in page.links:
            target, _, anchor = link.partition("#")
            other = (path.parent / target).resolve() if target else path
            if "//" not in link and anchor and other in pages and anchor not in pages[other].anchors:
                found.append(f"{place}: {link}: no such heading")
    assert len(pages) > 80 and {"index.html", "lab.html"} <= searched, (len(pages), searched)
    # The checks can fire.
    bad = Page('<script src="https://elsewhere/x.js"></script><p>a\n- b</p><a href="x.html#y" id="z">')
    assert bad.fetched == ["https://elsewhere/x.js"] and bad.swallowed and bad.links == ["x.html#y"] and bad.anchors == {"z"}
    print("\n".join(found) or f"{len(pages)} pages, all of them searched; nothing in them needs a network")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

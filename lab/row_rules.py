"""Rules state facts about raw rows of published runs, in addition to the rows' own words (lab/README.md has their format).

A file of lab/rules/documents has rules for the rows of one document, a file of lab/rules/words rules for all rows. A field is named by
its path in the row, such as parallel.tp.
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "rules"
TEXTS, NUMBERS, PARTS = ("contains", "contains_letters", "starts_with"), ("least", "most"), ("not", "has")
LOWER = {ord(letter): ord(letter.lower()) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class BadRule(Exception):
    """A file of rules has an invalid rule."""


def document_of(source):
    """The document of a source: repository or paper, without version and place."""
    for end in "@, (":
        source = source.split(end)[0]
    return source


def lower(text):
    """Case is that of ASCII."""
    return text.translate(LOWER)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def field_of(row, path):
    for key in path.split("."):
        if not isinstance(row, dict) or key not in row:
            return None
        row = row[key]
    return row


def set_field(row, path, value):
    *parents, last = path.split(".")
    for key in parents:
        if not isinstance(row.get(key), dict):
            row[key] = {}
        row = row[key]
    row[last] = value


def check_condition(condition, place):
    """Conditions have lower case from here on."""
    if isinstance(condition, str):
        return lower(condition)
    if isinstance(condition, list):
        return [check_condition(one, place) for one in condition]
    if not isinstance(condition, dict):
        return condition
    if not condition:
        raise BadRule(f"{place}: a condition requires something")
    return {key: check_member(key, value, place) for key, value in condition.items()}


def check_member(key, value, place):
    if key in PARTS:
        return check_condition(value, place)
    if key in NUMBERS and is_number(value):
        return value
    texts = value if isinstance(value, list) and key == "contains" else [value]
    if key in TEXTS and all(isinstance(text, str) for text in texts):
        return [lower(text) for text in texts]
    raise BadRule(f"{place}: a condition has {', '.join(TEXTS)} with text, {', '.join(NUMBERS)} with a number, {', '.join(PARTS)}")


def has_in_order(text, parts):
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def member_holds(key, condition, value):
    if key == "not":
        return not holds(condition, value)
    if key == "has":
        return isinstance(value, list) and any(holds(condition, one) for one in value)
    if key in NUMBERS:
        return is_number(value) and (value >= condition if key == "least" else value <= condition)
    if not isinstance(value, str):
        return False
    text = lower(value)
    if key == "starts_with":
        return text.startswith(condition[0])
    if key == "contains_letters":
        text = "".join(c for c in text if c.isascii() and c.isalnum())
    return has_in_order(text, condition)


def holds(condition, value):
    if isinstance(condition, list):
        return any(holds(one, value) for one in condition)
    if isinstance(condition, dict):
        return all(member_holds(key, one, value) for key, one in condition.items())
    if isinstance(value, str):
        return condition == lower(value)
    return isinstance(condition, bool) == isinstance(value, bool) and condition == value


class Rule:
    """`when`: alternatives, of which one has to hold; each is a list of (field, condition). None: every row."""

    KEYS = {"when", "says", "source", "settled_by_results"}

    def __init__(self, rule, place):
        if not isinstance(rule, dict) or not rule.keys() <= self.KEYS or not rule.get("says") or not rule.get("source"):
            raise BadRule(f"{place}: a rule has {', '.join(sorted(self.KEYS))}")
        when = rule.get("when")
        self.when = None if when is None else [
            [(field, check_condition(condition, place)) for field, condition in one.items()]
            for one in (when if isinstance(when, list) else [when])]
        self.says, self.source = rule["says"], rule["source"]
        self.settled_by_results = rule.get("settled_by_results", False)
        for value in self.says.values():
            if isinstance(value, dict) and ("of" not in value or not value.keys() <= {"of", "plus"}):
                raise BadRule(f"{place}: a computed value has of and plus")


def read_rules(text, name):
    """The document of a file of rules (None: all rows), and its rules."""
    file = json.loads(text)
    return file.get("document"), [Rule(rule, f"{name}: /rules/{i}") for i, rule in enumerate(file["rules"])]


class Rules:
    """Rules by field, in the order in which they are tried. Rules of a document come first."""

    def __init__(self, files):
        self.general, self.own = {}, {}
        for document, rules in files:
            fields = self.general if document is None else self.own.setdefault(document, {})
            for rule in rules:
                for field in rule.says:
                    fields.setdefault(field, []).append(rule)
        for fields in self.own.values():
            for field, rules in self.general.items():
                fields.setdefault(field, []).extend(rules)

    def of(self, document):
        return self.own.get(document, self.general)


def built_in():
    files = sorted((FOLDER / "documents").glob("*.json")) + sorted((FOLDER / "words").glob("*.json"))
    return Rules([read_rules(file.read_text(encoding="utf-8"), file.name) for file in files])


class Statement:
    """The fields of one row, as its rules state them."""

    def __init__(self, row, rules):
        self.row, self.rules = row, rules
        self.fields, self.open = {}, []

    def field(self, path):
        """The value of a field and the rule that states it. None: the value is the row's own."""
        if path in self.fields:
            return self.fields[path]
        if path in self.open:
            raise BadRule(f"rules for {self.open[-1]} and {path} need each other")
        self.open.append(path)
        own = field_of(self.row, path)
        found = (own, None)
        if own is None or not path.startswith("stated."):
            rule = next((rule for rule in self.rules.get(path, ()) if self.holds(rule)), None)
            if rule:
                found = (self.value(rule.says[path]), rule)
        self.open.pop()
        self.fields[path] = found
        return found

    def seen(self, path):
        """The row's own word for the field whose rules are tried, else what rules state."""
        return field_of(self.row, path) if self.open and self.open[-1] == path else self.field(path)[0]

    def holds(self, rule):
        return rule.when is None or any(all(holds(condition, self.seen(field)) for field, condition in one) for one in rule.when)

    def value(self, said):
        if not isinstance(said, dict) or "of" not in said:
            return said
        other = self.seen(said["of"])
        return other + said.get("plus", 0) if is_number(other) and not isinstance(other, float) else other

    def stated(self):
        """The row with all facts, and its list `statements`."""
        row, statements = json.loads(json.dumps(self.row)), []
        for path in sorted(self.rules):
            value, rule = self.field(path)
            if rule:
                set_field(row, path, value)
                statements.append({"field": path, "value": value, "source": rule.source,
                                   "settled_by_results": rule.settled_by_results})
        row["statements"] = statements
        return row

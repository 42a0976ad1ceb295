"""Places of a C++ source at which lab/mutants may change what it does, found by libclang, and the source with all of them changed.

A place is an operator, a condition, a returned truth value, std::min or std::max, or a call whose result is not used. It has one
mutant, or two: a comparison has another border, and is the opposite. Left out are macros, constant expressions, initial values of
variables of namespaces, thrown errors, and texts.
"""

import bisect
import dataclasses
import sys

try:
    import clang.cindex as cindex
except ImportError:  # Debian's package is for its own Python, and runs in each
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import clang.cindex as cindex
    except ImportError:
        cindex = None

NUMBERS_OF_A_FILE = 4096

# By operator: the function of tests/mutants/mutant.h, and what its mutants have instead.
OPERATORS = {"+": ("plus", "-"), "-": ("minus", "+"), "*": ("times", "/"), "/": ("over", "*"), "%": ("modulo", "*"),
             "==": ("equal", "!="), "!=": ("differ", "=="), "<": ("less", "<=", ">="), "<=": ("at_most", "<", ">"),
             ">": ("more", ">=", "<="), ">=": ("at_least", ">", "<"), "+=": ("add_to", "-="), "-=": ("take_from", "+="),
             "*=": ("scale", "/="), "/=": ("divide", "*=")}
TRUTHS = {"&&": "||", "||": "&&"}
EXTREMES = {"min": "max", "max": "min"}
TEXTS = ("basic_string", "fmt::", "ostream", "filesystem::path")


@dataclasses.dataclass
class Place:
    """Bytes of the source that an expression takes, and how they are changed: texts to put in and bytes to replace."""
    start: int
    end: int
    changes: list  # what each mutant does, in words
    insert: list   # (offset, text), of which those at `start` open and those at `end` close
    replace: list  # (start, end, text)
    number: int = 0

    def numbers(self):
        return range(self.number, self.number + len(self.changes))


class Finder:
    def __init__(self, path, arguments, text):
        unit = cindex.Index.create().parse(
            str(path), args=arguments, unsaved_files=[(str(path), text.decode())],
            options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        self.errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        self.path, self.text, self.places, self.seen = str(path), text, [], set()
        tokens = [*unit.get_tokens(extent=unit.cursor.extent)]
        self.tokens = [(t.extent.start.offset, t.extent.end.offset, t.spelling) for t in tokens]
        self.starts = [start for start, _, _ in self.tokens]
        kinds = cindex.CursorKind
        self.macros = []
        for cursor in unit.cursor.get_children():
            if not self.is_here(cursor):
                continue
            if cursor.kind in (kinds.MACRO_INSTANTIATION, kinds.MACRO_DEFINITION):
                self.macros.append(self.span(cursor))
        for cursor in unit.cursor.get_children():
            if self.is_here(cursor) and not cursor.kind.is_preprocessing():
                self.visit(cursor, None, None)
        self.places.sort(key=lambda place: (place.start, -place.end))

    def is_here(self, cursor):
        file = cursor.location.file
        return file is not None and file.name == self.path

    def span(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def words(self, start, end):
        """Tokens that begin in [start, end)."""
        return self.tokens[bisect.bisect_left(self.starts, start):bisect.bisect_left(self.starts, end)]

    def in_macro(self, start, end, edits):
        """Whether a place is part of a macro's use, or would be changed within one."""
        return any((first <= start and end <= last) or any(first < edit < last for edit in edits) for first, last in self.macros)

    def add(self, cursor, changes, insert, replace=()):
        start, end = self.span(cursor)
        key = (start, end, tuple(changes), tuple(replace))
        edits = [edit[0] for edit in (*insert, *replace)]
        if start < end and key not in self.seen and not self.in_macro(start, end, edits):
            self.seen.add(key)
            self.places.append(Place(start, end, list(changes), list(insert), list(replace)))

    def visit(self, cursor, function, parent):
        kinds = cindex.CursorKind
        kind = cursor.kind
        if kind in (kinds.STATIC_ASSERT, kinds.CXX_THROW_EXPR, kinds.ENUM_DECL, kinds.FIELD_DECL, kinds.PARM_DECL,
                    kinds.TYPE_ALIAS_DECL, kinds.USING_DECLARATION):
            return
        if kind in (kinds.VAR_DECL, kinds.FUNCTION_DECL, kinds.CXX_METHOD, kinds.CONSTRUCTOR, kinds.FUNCTION_TEMPLATE):
            if self.is_constant(cursor) or (kind == kinds.VAR_DECL and function is None):
                return
            if kind != kinds.VAR_DECL:
                function = cursor
        if function is not None:
            if kind == kinds.CALL_EXPR and self.is_text(cursor):
                return
            self.look_at(cursor, function, parent)
        children = [*cursor.get_children()]
        if kind == kinds.CASE_STMT or (kind == kinds.IF_STMT and self.is_constant(cursor)):
            children = children[1:]
        for child in children:
            if self.is_here(child):
                self.visit(child, function, cursor)

    def is_constant(self, cursor):
        start, end = self.span(cursor)
        for _, _, word in self.words(start, end):
            if word in ("constexpr", "consteval", "constinit"):
                return True
            if word in ("(", "{", "=", ";"):
                return False
        return False

    def is_text(self, cursor):
        """A call that makes a text: nothing but words would change."""
        if cursor.spelling in ("format", "to_string", "print"):
            return True
        return cursor.spelling.startswith("operator") and any(text in cursor.type.get_canonical().spelling for text in TEXTS)

    def look_at(self, cursor, function, parent):
        kinds = cindex.CursorKind
        kind = cursor.kind
        if kind in (kinds.BINARY_OPERATOR, kinds.COMPOUND_ASSIGNMENT_OPERATOR):
            operands = [*cursor.get_children()]
            if len(operands) == 2:
                self.operator(cursor, *operands)
        elif kind == kinds.CALL_EXPR and cursor.spelling.startswith("operator"):
            operands = [*cursor.get_arguments()]
            if len(operands) == 2:
                self.operator(cursor, *operands)
        elif kind == kinds.CALL_EXPR and cursor.spelling in EXTREMES:
            self.extreme(cursor)
        elif kind == kinds.UNARY_OPERATOR:
            start, end = self.span(cursor)
            if [word for _, _, word in self.words(start, start + 1)] == ["!"]:  # and not "!=", which the compiler rewrites
                self.add(cursor, ["without !"], [(start, "(plimsoll_mutants::is({n}) != "), (end, ")")])
        if kind in (kinds.IF_STMT, kinds.CONDITIONAL_OPERATOR) and not self.is_constant(cursor):
            for child in [*cursor.get_children()][:1]:
                self.truth(child, "the opposite condition")
        if kind == kinds.RETURN_STMT:
            for child in cursor.get_children():
                returned = function.result_type.get_canonical().kind
                if child.type.kind == cindex.TypeKind.BOOL and (parent is None or returned == cindex.TypeKind.BOOL):
                    self.truth(child, "returns the opposite")
        if parent is not None and parent.kind in (kinds.COMPOUND_STMT, kinds.IF_STMT, kinds.FOR_STMT,
                                                  kinds.CXX_FOR_RANGE_STMT):
            self.statement(cursor, parent)

    def operator(self, cursor, left, right):
        (start, end), (_, left_end), (right_start, _) = self.span(cursor), self.span(left), self.span(right)
        between = self.words(left_end, right_start)
        if len(between) != 1 or self.span(left)[0] != start or self.span(right)[1] != end:
            return
        first, last, word = between[0]
        if any(text in side.type.get_canonical().spelling for side in (left, right) for text in TEXTS) and word in "+=":
            return
        if word in OPERATORS:
            function, *others = OPERATORS[word]
            self.add(cursor, [f"{word} to {other}" for other in others],
                     [(start, f"plimsoll_mutants::{function}({{n}}, "), (end, ")")], [(first, last, ",")])
        elif word in TRUTHS:  # not (not a and not b) is a or b
            again = "(plimsoll_mutants::still({n}) != static_cast<bool>("
            self.add(cursor, [f"{word} to {TRUTHS[word]}"],
                     [(start, f"(plimsoll_mutants::is({{n}}) != ({again}"), (end, "))))")],
                     [(first, last, f")) {word} {again}")])

    def extreme(self, cursor):
        start, end = self.span(cursor)
        words = self.words(start, end)
        if [word for _, _, word in words[:2]] != ["std", "::"] or len([*cursor.get_arguments()]) != 2:
            return
        opening = next(at for at, _, word in words if word == "(")
        name = cursor.spelling
        self.add(cursor, [f"std::{name} to std::{EXTREMES[name]}"], [],
                 [(start, words[2][1], f"plimsoll_mutants::{name}_of"), (opening, opening + 1, "({n}, ")])

    def truth(self, cursor, what):
        """A condition, unless it is an operator, which is a place of its own."""
        start, end = self.span(cursor)
        kinds = cindex.CursorKind
        inner = cursor
        while inner.kind in (kinds.UNEXPOSED_EXPR, kinds.PAREN_EXPR):
            children = [*inner.get_children()]
            if len(children) != 1:
                break
            inner = children[0]
        if not cursor.kind.is_expression() or inner.kind in (kinds.BINARY_OPERATOR, kinds.UNARY_OPERATOR):
            return
        if inner.kind == kinds.CALL_EXPR and len([*inner.get_arguments()]) == 2 and inner.spelling.startswith("operator"):
            return
        self.add(cursor, [what], [(start, "(plimsoll_mutants::is({n}) != static_cast<bool>("), (end, "))")])

    def statement(self, cursor, parent):
        kinds = cindex.CursorKind
        if not cursor.kind.is_expression() or (parent.kind != kinds.COMPOUND_STMT and
                                               [*parent.get_children()][0] == cursor):
            return
        inner = cursor
        while inner.kind == kinds.UNEXPOSED_EXPR and len([*inner.get_children()]) == 1:
            inner = [*inner.get_children()][0]
        if inner.kind != kinds.CALL_EXPR or (inner.spelling.startswith("operator") and inner.spelling != "operator()"):
            return
        start, end = self.span(cursor)
        after = self.words(end, end + 20)
        if not after or after[0][2] != ";":  # the header of a loop, or its range
            return
        self.add(cursor, ["call removed"], [(start, "(plimsoll_mutants::is({n}) ? void() : void("), (end, "))")])


def numbered(places, file_number):
    """Gives each mutant of a file its number."""
    number = file_number * NUMBERS_OF_A_FILE
    for place in places:
        number += 1
        place.number = number
        number += len(place.changes) - 1
    return places


def changed(text, places):
    """Returns the source with all places, and where each of its edits went: (start in the result, length, place)."""
    edits = []
    for place in places:
        size = place.end - place.start
        for offset, words in place.insert:
            # At one offset inner places close first, and outer ones open first.
            closes = offset == place.end
            edits.append((offset, 0 if closes else 1, size if closes else -size, offset, words, place))
        for start, end, words in place.replace:
            edits.append((start, 2, 0, end, words, place))
    edits.sort(key=lambda edit: edit[:3])
    parts, at, length, where = [], 0, 0, []
    for offset, _, _, end, words, place in edits:
        parts.append(text[at:offset])
        length += offset - at
        new = words.replace("{n}", str(place.number)).encode()
        where.append((length, len(new), place))
        parts.append(new)
        length += len(new)
        at = end
    parts.append(text[at:])
    return b"".join(parts), where


def at_fault(made, where, places, line, column):
    """Returns the places that an error at a line and a column (of bytes, from 1) of the result may come from."""
    lines = made.split(b"\n")
    offset = sum(len(one) + 1 for one in lines[:line - 1]) + column - 1
    spans = {}
    for start, length, place in where:
        low, high = spans.get(id(place), (start, start + length))
        spans[id(place)] = (min(low, start), max(high, start + length))
    within = [place for place in places if spans[id(place)][0] <= offset < spans[id(place)][1]]
    if within:
        return [min(within, key=lambda place: spans[id(place)][1] - spans[id(place)][0])]
    first = offset - column + 1
    last = first + len(lines[line - 1])
    return [place for place in places if spans[id(place)][0] < last and first < spans[id(place)][1]]


def line_of(text, place):
    return text.count(b"\n", 0, place.start) + 1


def words_of(text, place):
    """The expression as one line."""
    return " ".join(text[place.start:place.end].decode().split())

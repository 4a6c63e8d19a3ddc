#!/usr/bin/env python3
"""Finds idioms that read as translated, in comments, strings, Markdown and identifiers of the tracked files.

    english.py [PATH...]    print one line per finding, "file:line: rule: text"; exit with 1 if there are any

An exception is a line "path | text | reason" in english_exceptions.txt: findings in that file whose text contains the given
one are allowed. There are at most 60, and one that allows nothing is a finding.
"""

import pathlib
import re
import subprocess
import sys

CODE = {".cpp", ".hpp", ".cu", ".cuh", ".h", ".js", ".mjs"}
SCRIPTS = {".py", ".cmake", ".sh", ".toml", ".yaml"}
# Data, quoted files and outputs of commands.
SKIPPED = ("tests/golden/corpus", "tests/wild/", "docs/validation", "calibrate/validation/published", "docs/schema/",
           "tests/structure/english")
MOST_EXCEPTIONS = 60

WORDS = [
    ("told", re.compile(r"\b(?:told|tells?|untold|telling)\b", re.I)),
    ("is no", re.compile(r"(?<!there )(?<!There )\b(?:is|are|was|were) no\b(?! (?:longer|more|less|fewer)\b)")),
    ("beside", re.compile(r"\bbeside\b", re.I)),
    ("number", re.compile(r"\b(?:so many|these many|as many of)\b", re.I)),
    ("idiom", re.compile(r"\b(?:of one's own|in the making|by itself|stands? for)\b", re.I)),
]
OPENING = re.compile(r"^(?:What|Of|Whether|Who|Those|By)\b")
IDENTIFIER = re.compile(
    r"\b(?:hear_\w+|tell_\w+|say|say_\w+|untold|most_telling|kStill|kPassing|by_law|further_state|yards?|complaint|take_back)\b"
)
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`(?:[^`\\]|\\.)*`|\d[\d\']*|\w+|.',
    re.S,
)


def code_pieces(text):
    """[line, kind, text] of comments, strings and identifiers; // comments on adjacent lines are one comment."""
    pieces, line, comment, end = [], 1, None, 0
    for match in TOKEN.finditer(text):
        token, start = match.group(0), line
        line += token.count("\n")
        if token.isspace():
            continue
        if token.startswith("//"):
            body = re.sub(r"^//[/!]?<?\s?", "", token).strip()
            if comment and end == start - 1 and body and not token.startswith("///<"):
                comment[2] += " " + body
            else:
                comment = [start, "comment", body]
                pieces.append(comment)
            end = start
            continue
        comment = None
        if token.startswith("/*"):
            pieces.append([start, "comment", re.sub(r"\s*\n\s*\*?\s*", " ", token[2:-2]).strip(" *")])
        elif token[0] in "\"`" or token.startswith('R"'):
            pieces.append([start, "string", token])
        elif token[0].isalpha() or token[0] == "_":
            pieces.append([start, "identifier", token])
    return pieces


def prose_pieces(text):
    """Lines outside code blocks, without inline code."""
    pieces, fenced = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            pieces.append([number, "prose", re.sub(r"`[^`]*`", "`…`", line)])
    return pieces


def script_pieces(text, strings):
    """# comments, adjacent lines as one, and the strings of Python on one line."""
    pieces, previous = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)#\s?(.*)$", line)
        if match and not line.startswith("#!"):
            if previous == number - 1 and pieces and line.lstrip().startswith("#"):
                pieces[-1][2] += " " + match.group(1)
            else:
                pieces.append([number, "comment", match.group(1)])
            previous = number
        if strings:
            pieces += [[number, "string", string] for string in re.findall(r'"[^"]*"', line)]
    return pieces


def findings_in(path, text):
    if path.suffix in CODE:
        pieces = code_pieces(text)
    elif path.suffix == ".md":
        pieces = prose_pieces(text)
    else:
        pieces = script_pieces(text, path.suffix == ".py")
    for line, kind, body in pieces:
        if kind == "identifier":
            if IDENTIFIER.fullmatch(body):
                yield line, "identifier", body
            continue
        for rule, pattern in WORDS:
            for match in pattern.finditer(body):
                yield line, rule, body[max(0, match.start() - 50) : match.end() + 50]
        if kind == "comment" and OPENING.search(body):
            yield line, "opening", body[:110]


def exceptions_of(file):
    rows = [row for row in file.read_text().splitlines() if row and not row.startswith("#")]
    return [tuple(cell.strip() for cell in row.split(" | ", 2)) for row in rows]


def main(wanted):
    root = pathlib.Path(__file__).resolve().parents[2]
    names = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
    exceptions = exceptions_of(pathlib.Path(__file__).with_name("english_exceptions.txt"))
    used, found, read = set(), 0, 0
    for name in names:
        path = pathlib.PurePosixPath(name)
        if not name or name.startswith(SKIPPED) or path.suffix not in CODE | SCRIPTS | {".md"}:
            continue
        if not (root / name).exists() or (wanted and not any(name.startswith(one) for one in wanted)):
            continue
        read += 1
        for line, rule, body in findings_in(path, (root / name).read_text()):
            allowed = {row for row in exceptions if row[0] == name and row[1] in body}
            used |= allowed
            if not allowed:
                found += 1
                print(f"{name}:{line}: {rule}: {body}")
    if not wanted:
        for row in exceptions:
            if row not in used:
                found += 1
                print(f"english_exceptions.txt: allows nothing: {' | '.join(row)}")
        if len(exceptions) > MOST_EXCEPTIONS or any(len(row) != 3 for row in exceptions):
            found += 1
            print(f"english_exceptions.txt: {len(exceptions)} exceptions, at most {MOST_EXCEPTIONS}, each with a reason")
    print(f"{read} files, {found} findings, {len(exceptions)} exceptions")
    return 1 if found or not read else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

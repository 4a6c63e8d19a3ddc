#!/usr/bin/env python3
"""Counts the functions outside the codec that read or write JSON by hand.

Values that a table of fields describes are read and written by model/config/codec; import reads the formats of other
programs. A function counts as a reader if it takes a JSON value or an ObjectReader, and as a writer if it returns JSON. The
counts may fall and must not rise: lower the limits when they fall.
"""

import collections
import pathlib
import re
import subprocess
import sys

MOST_READERS = 238
MOST_WRITERS = 154
EXEMPT = ("tests/", "examples/", "import/", "model/config/")
JSON = r"(?:nlohmann::(?:ordered_)?json|(?:Ordered)?Json(?:Value)?)"
FUNCTION = re.compile(
    r"\b(\w+(?:::\w+)*)\s*\(([^(){};]*(?:\([^()]*\)[^(){};]*)*)\)\s*(?:const\s*)?(?:noexcept\s*)?\{"
)
KEYWORDS = {"if", "for", "while", "switch", "catch", "return", "sizeof"}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    names = subprocess.run(["git", "ls-files", "*.cpp", "*.hpp"], cwd=root, check=True, capture_output=True, text=True)
    readers, writers = collections.Counter(), collections.Counter()
    for name in names.stdout.split():
        if name.startswith(EXEMPT):
            continue
        text = re.sub(r'//[^\n]*|"(?:[^"\\]|\\.)*"', "", (root / name).read_text())
        for match in FUNCTION.finditer(text):
            if match.group(1) in KEYWORDS:
                continue
            room = name.split("/")[0]
            if re.search(r"\bObjectReader\s*&|const " + JSON + r"\s*&", match.group(2)):
                readers[room] += 1
            if re.search(JSON + r"\s+$", text[max(0, match.start() - 60) : match.start()]):
                writers[room] += 1
    print(f"readers: {sum(readers.values())} (at most {MOST_READERS}) {dict(readers)}")
    print(f"writers: {sum(writers.values())} (at most {MOST_WRITERS}) {dict(writers)}")
    if not readers or not writers:
        print("no function was found: is this a checkout with its sources?")
        return 1
    return 0 if sum(readers.values()) <= MOST_READERS and sum(writers.values()) <= MOST_WRITERS else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Looks for the worst habits of language in comments, documents and the program's words.

    tests/lint/language.py [FILE...]

CONTRIBUTING.md states the rules; PATTERNS below is the list of expressions, each with the advice that is printed.
The checker reads comments, documents (outside code blocks) and string literals of the program (outside tests).
A line that must stay as it is carries `language: allow` in its comment.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 120
# `make docs` writes these: a paragraph or a cell is one line.
GENERATED = ("options.md", "rpc.md")

# Pieces of text that the patterns tell apart.
COMMENT, DOC, SAFETY, STRING, PROSE = "comment", "doc comment", "SAFETY comment", "string", "document"
EVERYWHERE = {COMMENT, DOC, SAFETY, STRING, PROSE}

# (name, where, expression matched against one sentence, advice)
PATTERNS = [
    (
        "subject-clause",
        EVERYWHERE,
        r"^(What|Who|Whoever|Whatever|Whose|Whether|Of what|Of which|Of whom)\b(?!.*\?$)",
        "begin with the actor: a noun, not a clause",
    ),
    (
        "subject-clause",
        {STRING},
        r"^(what|who|whoever|whatever|whose|whether|of what|of which)\b(?!.*\?$)",
        "begin with the actor: a noun, not a clause",
    ),
    (
        "subject-clause",
        {DOC},
        r"^(How|Which|Why)\b(?!.*\?$)",
        "begin with the noun: the number of, the time between, the reason why",
    ),
    (
        "amount",
        EVERYWHERE,
        r"\b[Ss]o (many|much|long)\b(?! (that|as)\b)",
        "name the number",
    ),
    (
        "negated-noun",
        EVERYWHERE,
        r"(?<!there )(?<!There )\b(is|are|was|were|be) no(?= )(?! (longer|more|fewer|less|later|earlier|greater"
        r"|smaller|larger|bigger|better|worse|faster|slower|one)\b)",
        'write "is not a ...", with what was expected',
    ),
    (
        "pronoun",
        EVERYWHERE,
        r"\b(the|an) own\b|\b[Tt]heirs\b|\bours\b|\b([Aa]s|[Ll]ike) (above|before|below)\b(?= *[.;,)]|$)",
        "name the noun",
    ),
    (
        "empty-doc",
        {DOC},
        r"^(It|Its|Their|They|Them|The same|That|Those|Such|Same|Ditto|Likewise|Sticky)\b",
        "a doc comment is understood without the code: name the subject",
    ),
    (
        "empty-safety",
        {SAFETY},
        r"^SAFETY: (the caller'?s?|as above|see above|as before|the same|same|ditto|likewise|so too|above)\b.{0,12}$",
        "name the invariant and who upholds it",
    ),
]
PATTERNS = [(name, where, re.compile(expression), advice) for name, where, expression, advice in PATTERNS]

TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw>\bb?c?r(?P<hashes>\#*)".*?"(?P=hashes))
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<char>'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])')""",
    re.VERBOSE | re.DOTALL,
)


def rust_pieces(text):
    """(kind, line, words) for each block of comments and each string literal of Rust or C."""
    tests_from = re.search(r"^\s*#\[cfg\(test\)\]\s*\n\s*mod \w+ \{", text, re.MULTILINE)
    tests_from = tests_from.start() if tests_from else len(text)
    block, kind_of_block, first_line, last_line = [], None, 0, -2

    def flush():
        if block:
            yield kind_of_block, first_line, " ".join(block)

    for token in TOKEN.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        if token["line"] is not None:
            marker = re.match(r"//[/!]?(?!/)", token["line"])
            words = token["line"][marker.end() if marker else 2 :].strip()
            kind = DOC if marker and len(marker[0]) == 3 else SAFETY if words.startswith("SAFETY:") else COMMENT
            goes_on = line == last_line + 1 and (kind == kind_of_block or (kind == COMMENT and kind_of_block == SAFETY))
            if goes_on and words and not words.startswith(("#", "- ", "* ", "|", "```", "1.", "2.", "3.")):
                block.append(words)
            else:
                yield from flush()
                block, kind_of_block, first_line = [words.lstrip("#-* ")], kind, line
            last_line = line
            continue
        yield from flush()
        block, last_line = [], -2
        if token["block"] is not None:
            words = re.sub(r"\n\s*\*? ?", " ", token["block"][2:-2].lstrip("*!")).strip()
            yield COMMENT, line, words
        elif token["string"] is not None and token.start() < tests_from:
            words = re.sub(r"\\\n\s*", "", token["string"][1:-1]).replace("\\n", "\n")
            for paragraph in words.split("\n"):
                if paragraph.count(" ") >= 2:
                    yield STRING, line, paragraph.strip()
    yield from flush()


def code_blocks_blanked(lines):
    """The lines, with those of fenced blocks emptied."""
    fenced = False
    for line in lines:
        fence = line.strip().startswith("```")
        yield "" if fenced or fence else line
        fenced ^= fence


def prose_pieces(text):
    """(kind, line, words) for each paragraph, item, heading and cell of a Markdown document."""
    block, first_line = [], 0
    for number, line in enumerate(code_blocks_blanked(text.split("\n")), 1):
        stripped = line.strip()
        indented = line.startswith("    ") and not block
        starts = re.match(r"(#+|[-*]|\d+\.|>) ", stripped)
        if not stripped or indented or starts or stripped.startswith("|"):
            if block:
                yield PROSE, first_line, " ".join(block)
            block = []
        if not stripped or indented:
            continue
        if stripped.startswith("|"):
            for cell in stripped.strip("|").split(" | "):
                yield PROSE, number, cell.strip()
            continue
        if not block:
            first_line = number
        block.append(stripped[starts.end() :] if starts else stripped)
    if block:
        yield PROSE, first_line, " ".join(block)


def script_pieces(text):
    """(kind, line, words) for each block of `#` comments."""
    block, first_line = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*#(?!!)(.*)", line)
        words = match[1].strip() if match else ""
        if not words and block:
            yield COMMENT, first_line, " ".join(block)
            block = []
        elif words:
            if not block:
                first_line = number
            block.append(words)
    if block:
        yield COMMENT, first_line, " ".join(block)


def sentences(words):
    """The sentences of a piece; code in backquotes counts as a noun."""
    words = re.sub(r"`[^`]*`", "`code`", words)
    words = re.sub(r"\*\*|\\\"", "", words)
    return re.split(r"(?<=[.!?:])\s+(?=[A-Z`])", words)


def language_of(path):
    """How the pieces of a file are found; None for files that are not text of ours."""
    if path.suffix in (".rs", ".c", ".h"):
        return rust_pieces
    if path.suffix == ".md":
        return prose_pieces
    if path.suffix in (".py", ".sh", ".toml", ".fio") or path.name == "Makefile":
        return script_pieces
    return script_pieces if path.parent.name in ("tests", "bench", "rigs") and not path.suffix else None


def findings(path):
    """(line, name, text, advice) for everything in a file that breaks a rule."""
    text = (ROOT / path).read_text(encoding="utf-8")
    pieces_of = language_of(path)
    if pieces_of is None:
        return
    lines = text.split("\n")
    checked = list(code_blocks_blanked(lines)) if path.suffix == ".md" else lines
    for number, line in enumerate(checked, 1):
        comment = path.suffix == ".md" or re.match(r"\s*(//|#)", line)
        code = path.suffix == ".md" and line.startswith("    ")
        unbreakable = line.lstrip().startswith("|") or " " not in line.strip("/#-!* ") or "://" in line or code
        if len(line) > WIDTH and comment and not unbreakable and path.name not in GENERATED:
            yield number, "long-line", f"{len(line)} columns", f"wrap at {WIDTH}"
    is_test = path.parts[0] == "tests" or "tests" in path.parts or path.name == "tests.rs"
    for kind, number, words in pieces_of(text):
        if kind == STRING and is_test:
            continue
        for sentence in sentences(words):
            for name, where, expression, advice in PATTERNS:
                if kind not in where or "language: allow" in lines[number - 1]:
                    continue
                if kind == DOC and name == "empty-doc" and not words.startswith(sentence):
                    continue
                if expression.search(sentence):
                    yield number, name, sentence[:110], advice


def tracked():
    """Every file of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def main():
    parser = argparse.ArgumentParser(description="The language checker of `make lint`: see CONTRIBUTING.md.")
    parser.add_argument("files", nargs="*", type=Path, help="these files only (all that git knows)")
    options = parser.parse_args()

    files = [path.resolve().relative_to(ROOT) for path in options.files] or tracked()
    left = 0
    for path in files:
        for line, name, text, advice in findings(path):
            left += 1
            print(f"{path}:{line}: {name}: {text}  ({advice})")
    if left:
        print(f"language: {left} findings")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

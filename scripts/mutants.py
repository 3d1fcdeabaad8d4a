"""Simple mutants of C++ sources: one small change in one line each, as a hasty edit would make it."""
import dataclasses
import pathlib
import re

# kind: (pattern of the place, what comes instead)
RULES = {
    "comparison": [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == ")],
    "logic": [(r" && ", " || "), (r" \|\| ", " && ")],
    "arithmetic": [(r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" \+= ", " -= "), (r" -= ", " += ")],
    "off by one": [(r" [+-] 1\b", ""), (r"\+\+(?=\w)", "--")],
    "truth": [(r"\btrue\b", "false"), (r"\bfalse\b", "true")],
    "constant": [(r"(?<![\w.])(\d+)(?![\w.'])", lambda m: str(int(m[1]) + 1))],
    "condition": [(r"\bif \((.+)\) (?=\S)", lambda m: f"if (!({m[1]})) ")],
    # A whole statement on one line: a call or an assignment, no declaration.
    "statement": [(r"^(\s+)(?:[\w.>()\[\]-]+\(.*\)|[\w.>\[\]-]+ [+|-]?= .*);$", lambda m: m[1] + ";")],
}
NO_STATEMENT = re.compile(r"\s*(return|throw|co_|case|using|static_assert|explicit|virtual|\[\[|const |auto |friend )")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str  # below the root
    line: int
    kind: str
    before: str
    after: str

    def __str__(self):
        return f"{self.path}:{self.line} {self.kind}: {self.before.strip()}  ->  {self.after.strip()}"

    def plant(self, root):
        """Writes the mutant; returns the text to put back."""
        file = pathlib.Path(root) / self.path
        text = file.read_text()
        lines = text.split("\n")
        assert lines[self.line - 1] == self.before, self
        lines[self.line - 1] = self.after
        file.write_text("\n".join(lines))
        return text


def code_of(line):
    """The line with comments and literals blanked, of equal length."""
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', line)
    return re.sub(r"//.*", lambda m: "\0" * len(m[0]), line)


def mutants_of(root, folder):
    """Every mutant of the sources of a folder, in the order of files and lines."""
    found = []
    for file in sorted(pathlib.Path(root, folder).iterdir()):
        if file.suffix != ".cc":  # headers declare
            continue
        for number, line in enumerate(file.read_text().split("\n"), 1):
            code = code_of(line)
            if line.lstrip().startswith(("#", "template", "static_assert")):
                continue
            for kind, rules in RULES.items():
                if kind == "statement" and NO_STATEMENT.match(code):
                    continue
                for pattern, instead in rules:
                    for match in re.finditer(pattern, code):
                        # The change is made in the text itself, whose literals the pattern did not see.
                        place = re.compile(pattern).match(line, match.start())
                        if not place:
                            continue
                        after = line[:place.start()] + (instead if isinstance(instead, str) else instead(place)) + line[place.end():]
                        found.append(Mutant(str(file.relative_to(root)), number, kind, line, after))
    return found

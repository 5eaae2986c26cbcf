"""The HTML page: sections, tables and the style sheet, in one file without links.

    page = Page("flights", "step 2,000")
    page.section("Metrics").table(["metric", "value"], [["auc", "0.70"]])
    page.html()

Text is escaped here, and nowhere else. Figures are SVG elements and stay as they are.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d2530; --dim: #5c6773;
  --grid: #d5dae1; --box: #f4f6f9; --link: #1456b8; --warn: #9a4b00;
  --series-1: #1f66c1; --series-2: #d1571b; --series-3: #2b8a4b; --series-4: #8a4bb8;
  --series-5: #b0892a; --series-6: #17899b; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e8ed;
  --dim: #9aa5b1; --grid: #3a434e; --box: #1d232a; --link: #7db2ff; --warn: #f0a860;
  --series-1: #6ba6f5; --series-2: #f2935c; --series-3: #6cc28a; --series-4: #c194e6;
  --series-5: #dbb95e; --series-6: #5fc4d3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main, header, nav { max-width: 1080px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 32px; }
h1 { font-size: 28px; margin: 0; }
h2 { font-size: 21px; margin: 44px 0 10px; padding-bottom: 6px;
  border-bottom: 1px solid var(--grid); }
h3 { font-size: 16px; margin: 26px 0 6px; }
p { margin: 8px 0; max-width: 78ch; }
.dim, figcaption { color: var(--dim); }
nav { padding-top: 12px; display: flex; flex-wrap: wrap; gap: 4px 18px; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; }
.tile { background: var(--box); border-radius: 8px; padding: 10px 16px;
  min-width: 120px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.figures { display: flex; flex-wrap: wrap; gap: 18px 26px; align-items: flex-start; }
figure { margin: 0; flex: 0 1 490px; min-width: 300px; }
figure.wide { flex-basis: 780px; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: 13px; margin-top: 2px; }
.scroll { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 4px 14px 4px 0; vertical-align: top;
  white-space: nowrap;
  border-bottom: 1px solid var(--grid); }
td.long { white-space: normal; min-width: 190px; }
th { color: var(--dim); font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--box); border-radius: 8px; padding: 12px 16px; overflow-x: auto;
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
details { margin: 10px 0; }
summary { cursor: pointer; color: var(--link); }
footer { max-width: 1080px; margin: 48px auto 32px; padding: 0 24px;
  color: var(--dim); }
@media print { nav { display: none; } h2 { break-after: avoid; } figure, tr {
  break-inside: avoid; } }
"""

# Numbers of a table cell: 1,234  -0.5  12%  1e-05
_NUMBER = re.compile(r"^[-+±]?[\d,]*\.?\d+(e[-+]?\d+)?%?$")


class Section:
    """A part of the page with a heading; its methods append to it.

    Args:
      title: The heading.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    @property
    def anchor(self) -> str:
        """The id of the section, for links to it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def text(self, text: str, *, is_dim: bool = False) -> Section:
        """Append a paragraph."""
        kind = ' class="dim"' if is_dim else ""
        self._parts.append(f"<p{kind}>{html.escape(text)}</p>")
        return self

    def heading(self, text: str) -> Section:
        """Append a heading below that of the section."""
        self._parts.append(f"<h3>{html.escape(text)}</h3>")
        return self

    def tiles(self, values: Sequence[tuple[str, str]]) -> Section:
        """Append large numbers side by side: pairs of name and value."""
        cells = "".join(
            f'<div class="tile"><b>{html.escape(value)}</b>{html.escape(name)}</div>'
            for name, value in values
        )
        self._parts.append(f'<div class="tiles">{cells}</div>')
        return self

    def figures(self, *figures: tuple[str, str], is_wide: bool = False) -> Section:
        """Append figures side by side: pairs of SVG and caption."""
        kind = ' class="wide"' if is_wide else ""
        cells = "".join(
            f"<figure{kind}>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"
            for svg, caption in figures
        )
        self._parts.append(f'<div class="figures">{cells}</div>')
        return self

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        folded: str | None = None,
    ) -> Section:
        """Append a table; columns of numbers are aligned to the right.

        Args:
          headings: The heading of each column.
          rows: The cells of each row.
          folded: If given, the table is hidden behind this line until it is clicked.
        """
        is_number = [
            bool(rows) and all(not r[i] or _NUMBER.match(r[i]) for r in rows)
            for i in range(len(headings))
        ]
        head = "".join(
            _cell("th", *pair) for pair in zip(headings, is_number, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(_cell("td", *pair) for pair in zip(row, is_number, strict=True))
            + "</tr>\n"
            for row in rows
        )
        if not any(headings):
            head = ""
        table = (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}</tbody></table></div>"
        )
        return self._fold(table, folded)

    def code(self, text: str, *, folded: str | None = None) -> Section:
        """Append text as it is, such as commands; `folded` as for a table."""
        return self._fold(f"<pre>{html.escape(text)}</pre>", folded)

    def _fold(self, part: str, folded: str | None) -> Section:
        if folded is not None:
            line = html.escape(folded)
            part = f"<details><summary>{line}</summary>{part}</details>"
        self._parts.append(part)
        return self

    def html(self) -> str:
        """Return the section as HTML."""
        title = html.escape(self.title)
        parts = "\n".join(self._parts)
        return f'<section id="{self.anchor}"><h2>{title}</h2>\n{parts}\n</section>'


def _cell(kind: str, text: str, is_number: bool) -> str:
    style = ' class="n"' if is_number else ' class="long"' if len(text) > 34 else ""
    return f"<{kind}{style}>{html.escape(text)}</{kind}>"


class Page:
    """The HTML page of a report: a title and sections.

    Args:
      title: The name of the run.
      subtitle: A line below it.
    """

    def __init__(self, title: str, subtitle: str) -> None:
        self._title = title
        self._subtitle = subtitle
        self._sections: list[Section] = []

    def section(self, title: str) -> Section:
        """Append a section and return it."""
        section = Section(title)
        self._sections.append(section)
        return section

    def html(self) -> str:
        """Return the page."""
        title, subtitle = html.escape(self._title), html.escape(self._subtitle)
        links = "\n".join(
            f'<a href="#{section.anchor}">{html.escape(section.title)}</a>'
            for section in self._sections
        )
        body = "\n".join(section.html() for section in self._sections)
        return (
            "<!doctype html>\n"
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<style>{_STYLE}</style></head>\n<body>\n"
            f'<header><h1>{title}</h1><p class="dim">{subtitle}</p></header>\n'
            f"<nav>{links}</nav>\n<main>\n{body}\n</main>\n"
            "<footer>Made by estimax. This file needs no network.</footer>\n"
            "</body></html>\n"
        )

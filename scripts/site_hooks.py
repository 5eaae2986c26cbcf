"""Hooks of the documentation site: pages made from the code and from other files.

    mkdocs build --strict

`mkdocs.yml` names this file. It adds a page for each public package, whose content
mkdocstrings takes from the docstrings, a page of the keys of run files, a page for each
folder of examples, with the programs, and shows CONTRIBUTING, CHANGELOG and the list of
examples as pages.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from estimax.core.lazy_names import is_alias

sys.path.insert(0, str(Path(__file__).parent))
from run_file_keys import key_page

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "estimax"
# Files outside of docs/ that are pages of the site.
COPIED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the reference, and the copied pages."""
    for source, page in COPIED.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    for name, text in reference_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for name, text in example_pages().items():
        files.append(File.generated(config, f"examples/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replace links to files that the site does not have by the path of the file."""
    sources = {copy: source for source, copy in COPIED.items()}
    here = page.file.src_uri
    folder = posixpath.dirname(sources.get(here, posixpath.join("docs", here)))

    def resolved(found: re.Match[str]) -> str:
        target = found["target"]
        if "://" in target or target.startswith(("mailto:", "<")):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            inside = path.removeprefix("docs/")
        elif path in COPIED:
            inside = COPIED[path]
        elif path == "README.md":
            inside = "index.md"
        elif (example := path.split("/"))[0] == "examples" and len(example) > 1:
            inside = f"examples/{example[1]}.md"
        else:
            return f"{found['text']} (`{path}`)"
        link = posixpath.relpath(inside, posixpath.dirname(here) or ".")
        anchor = "" if inside == "index.md" else found["anchor"] or ""
        return f"[{found['text']}]({link}{anchor})"

    return _LINK.sub(resolved, markdown)


def example_pages() -> dict[str, str]:
    """Return the text of a page for each folder of examples: programs or notebooks."""
    pages: dict[str, str] = {}
    for program in sorted((ROOT / "examples").rglob("*.py")):
        path = program.relative_to(ROOT)
        name = path.parts[1]
        text = pages.get(name, f"# {name.replace('_', ' ').capitalize()}\n")
        pages[name] = f"{text}\n## {path}\n\n```python\n{program.read_text()}```\n"
    pages["notebooks"] = "# Notebooks\n"
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        pages["notebooks"] += f"\n{_notebook_text(notebook)}"
    return pages


def _notebook_text(notebook: Path) -> str:
    """Return the cells of a notebook as Markdown, its headings one level lower."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{text}\n```\n")
        else:
            parts.append(re.sub("^#", "##", text, flags=re.MULTILINE) + "\n")
    return "\n".join(parts)


def reference_pages() -> dict[str, str]:
    """Return the text of each page of the reference, by its name."""
    packages, names = public_names()
    top = [f"::: estimax.{name}\n" for name in names]
    pages = {"estimax": "# estimax\n\n`import estimax as ex`\n\n" + "\n".join(top)}
    for package in packages:
        pages[package] = f"# ex.{package}\n\n::: estimax.{package}\n" + _ROOTLESS
        for name in _modules_of(package):
            pages[package] += f"\n## ex.{package}.{name}\n\n"
            pages[package] += f"::: estimax.{package}.{name}\n" + _ROOTLESS
        for name in _hidden_by_modules(package):
            pages[package] += f"\n::: estimax.{package}.{name}.{name}\n"
            pages[package] += f"    options:\n      heading: {name}\n"
    pages["run_file_keys"] = key_page()
    # Not in `ex`: a server needs the extra `serve`, and a client nothing else of `ex`.
    for name in ("client", "serving"):
        pages[name] = f"# estimax.{name}\n\n::: estimax.{name}\n" + _ROOTLESS
    return pages


# The page has the heading of the package already.
_ROOTLESS = "    options:\n      show_root_heading: false\n      heading_level: 2\n"


def _modules_of(package: str) -> list[str]:
    """Return the public modules of a package, such as `v1`."""
    path = f"estimax.{package}"
    names = [name for module, name in _imports(_names_of(package)) if module == path]
    aliases = [path.stem for path in _path_of(package).glob("*.py") if is_alias(path)]
    return names + [name for name in sorted(aliases) if name not in names]


def _hidden_by_modules(package: str) -> list[str]:
    """Return names that Griffe does not see, because a module has the same name."""
    imports = _imports(_names_of(package))
    return [name for module, name in imports if module.endswith(f"{package}.{name}")]


def _names_of(package: str) -> Path:
    """Return the file that imports the public names of a package."""
    path = _path_of(package) / "__init__.py"
    stub = path.with_suffix(".pyi")
    return stub if stub.exists() else path


def _path_of(package: str) -> Path:
    """Return the folder of a package of `ex`, such as `estimax/v1/losses`."""
    for module, name in _imports(PACKAGE / "__init__.pyi"):
        if name == package:
            return ROOT.joinpath(*module.split("."), name)
    return PACKAGE / package


def _imports(path: Path) -> list[tuple[str, str]]:
    """Return (module, name) of each `from module import name` in a file."""
    if not path.exists():
        return []
    return [
        (str(node.module), alias.name)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def public_names() -> tuple[list[str], list[str]]:
    """Return the packages and the other names of `import estimax as ex`."""
    packages, names = [], []
    for _, name in _imports(PACKAGE / "__init__.pyi"):
        path = PACKAGE / name
        is_package = path.is_dir() or path.with_suffix(".py").exists()
        (packages if is_package else names).append(name)
    return sorted(packages), sorted(names)

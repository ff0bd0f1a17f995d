# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Build the documentation site, which needs no network, neither while it is built nor when read.

    python site/make.py [FOLDER]

The site mirrors the repository: README is its home, and `docs/` and all linked files have the same
paths as here, so that links are the same. Linked files of code and notebooks become pages, which
the search does not list. A link or an anchor without a target is an error. The site can be read
and searched as files, without a server.
"""

import argparse
import json
import logging
import re
import shutil
import sys
import tempfile
import tomllib
from functools import partial
from importlib.metadata import version
from pathlib import Path

import questions
from diagram import drawing
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parents[1]
HOME, INDEX = Path("README.md"), Path("docs/README.md")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)([^)]*\))")
FENCE = re.compile(r"^(\s*)(`{3,})(\w+)?(.*)$")
CHART = re.compile(r"^```mermaid\n(.*?)\n```$", re.M | re.S)
SHOWN_AS = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml"}
PICTURES = {".svg", ".png"}
ASSETS = Path(__file__).with_name("assets")
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def stage(folder: Path) -> list[Path]:
    """Write all pages into a folder, from the home page along the links; answers them."""
    todo, done = [HOME, INDEX, *(p.relative_to(ROOT) for p in (ROOT / "docs").glob("*.md"))], []
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.append(path)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in PICTURES:
            (folder / path).write_bytes((ROOT / path).read_bytes())
            continue
        links: list[Path] = []
        (folder / _page_of(path)).write_text(_rendered(path, links), encoding="utf-8")
        todo += links
    return done


def _target(path: Path, link: str) -> Path:
    """The file, or folder, of this repository to which a page's link leads."""
    target = (ROOT / path.parent / link).resolve()
    if target.is_dir() and (target / "README.md").is_file():
        target /= "README.md"
    return target.relative_to(ROOT)


def _page_of(path: Path) -> Path:
    """Where in the site something stands."""
    if path.suffix == ".md" or path.suffix in PICTURES:
        return path
    return path.with_name(f"{path.name}.md")


def _rendered(path: Path, links: list[Path]) -> str:
    """A page's text, as the site's Markdown has it; where its links lead is added to the list."""
    file = ROOT / path
    if file.is_dir():
        texts = [f"## {p.name}\n\n{_fenced(p)}" for p in sorted(file.iterdir()) if p.is_file()]
        return f"{NOT_SEARCHED}# {path}\n\n" + "\n".join(texts)
    if path.suffix == ".ipynb":
        return _notebook(json.loads(file.read_text(encoding="utf-8")))
    if path.suffix != ".md":
        return f"{NOT_SEARCHED}# {path}\n\n{_fenced(file)}"
    lines, inside = [], False
    text = CHART.sub(lambda match: f"<div>{drawing(match[1])}</div>", file.read_text("utf-8"))
    for line in text.splitlines():
        if match := FENCE.match(line):
            inside = not inside
            line = f"{match[1]}{match[2]}{_language(match[3], match[4]) if inside else ''}"
        elif not inside:
            line = LINK.sub(partial(_to_page, path, links), line)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    return f"{NOT_SEARCHED}{text}" if path.name in ("CHANGELOG.md", "questions.md") else text


def _to_page(path: Path, links: list[Path], match: re.Match[str]) -> str:
    """A link as it must be on the page of `path`."""
    if "://" in match[2]:
        return match[0]
    links.append(target := _target(path, match[2]))
    if not (ROOT / target).exists():
        raise Abort(f"{path}: {match[2]} leads nowhere")
    return f"{match[1]}{Path(*['..'] * len(path.parent.parts)) / _page_of(target)}{match[3]}"


def _language(language: str | None, words: str) -> str:
    """Behind a fence stand words for the tests, or the name of a file."""
    name = words.split()[0] if "." in words else ""
    shown = {"sh": "bash", None: "text"}.get(language, language)
    return f'{shown} title="{name}"' if name else str(shown)


def _fenced(file: Path, language: str | None = None) -> str:
    text = file.read_text(encoding="utf-8")
    return f"`````{language or SHOWN_AS.get(file.suffix, 'text')}\n{text}\n`````\n"


def _notebook(notebook: dict) -> str:  # type: ignore[type-arg]
    """Text, programs, and what they printed and drew."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = "data:image/png;base64," + "".join(data["image/png"]).replace("\n", "")
                parts.append(f'<img alt="What the program drew" src="{picture}">')
            elif text := "".join(data.get("text/plain", output.get("text", ""))):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def navigation() -> list[dict[str, object]]:
    """The site's contents: what the index of the documentation lists, under its headings."""
    sections: list[dict[str, object]] = [{"Home": str(HOME)}]
    for heading, body in re.findall(
        r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / INDEX).read_text(encoding="utf-8"), re.M | re.S
    ):
        rows = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)", body, re.M)
        pages: list[dict[str, str]] = [
            {name[0].upper() + name[1:]: str(_page_of(_target(INDEX, link)))} for name, link in rows
        ]
        sections.append({heading: pages})
    return sections


def _project() -> dict[str, str]:
    """Settings with the version and the addresses of the project."""
    project = ASSETS.parents[1] / "pyproject.toml"
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    urls = about.get("urls", {})
    settings = {"copyright": f"{about['name']} {version(about['name'])}"}
    if "Repository" in urls:
        settings["repo_url"] = urls["Repository"]
    return settings


def main(folder: Path) -> int:
    """Build; the status is 1 where a link leads nowhere."""
    with tempfile.TemporaryDirectory() as pages:
        try:
            stage(Path(pages))
            shutil.copytree(ASSETS, Path(pages) / "assets")
            config = load_config(
                str(Path(__file__).with_name("mkdocs.yml")),
                docs_dir=pages,
                site_dir=str(folder.resolve()),
                nav=navigation(),
                strict=True,
                **_project(),
            )
            config.plugins["questions"] = questions.Questions()
            config.plugins.on_startup(command="build", dirty=False)
            build(config)
        except Abort as error:
            print(error, file=sys.stderr)
            return 1
    print(folder / "index.html")
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "site")
    sys.exit(main(parser.parse_args().folder))

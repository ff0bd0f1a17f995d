# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What tests look for in a page: elements, texts of sections, embedded data."""

import json
import re
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Elements, texts and attributes of a page, and the text of each of its sections."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.title = ""
        self._section = ""
        self._tag = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = str(dict(attrs)["id"])

    def handle_data(self, data: str) -> None:
        if self._tag == "title" and not self.title:
            self.title = data
        self.text[self._section] = self.text.get(self._section, "") + data

    def words(self, section: str) -> str:
        return " ".join(self.text[section].split())

    def cells(self, section: str) -> str:
        """The same without any space: neighbouring cells have none between them."""
        return "".join(self.text[section].split())


def embedded(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found
    return dict(json.loads(found.group(1)))

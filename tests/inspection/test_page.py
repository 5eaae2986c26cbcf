"""The HTML of a report."""

from html.parser import HTMLParser

from estimax.inspection.report.page import Page


class Checked(HTMLParser):
    """Notes whether tags match, and what would be loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(html):
    """Raise unless tags match and every link stays on the page."""
    parser = Checked()
    parser.feed(html)
    assert parser.open == []
    assert all(link.startswith("#") for link in parser.links), parser.links


def test_text_from_data_is_escaped():
    page = Page("<b>run</b>", "a & b")
    section = page.section("Data")
    section.table(["<th>"], [["<script>alert(1)</script>"]])
    section.text("1 < 2").code("a > b").tiles([("<i>", "&")])
    html = page.html()
    assert "<script" not in html
    assert "<b>run" not in html
    check(html)


def test_columns_of_numbers_are_aligned_to_the_right():
    page = Page("run", "")
    page.section("Data").table(["name", "rows"], [["a", "1,234"], ["b", "-0.5%"]])
    assert '<td>a</td><td class="n">1,234</td>' in page.html()


def test_sections_are_linked():
    page = Page("run", "")
    page.section("How to reproduce").code("x", folded="more")
    html = page.html()
    assert '<a href="#how-to-reproduce">' in html
    assert '<section id="how-to-reproduce">' in html
    check(html)

"""Reading a page of `batchrun report` as a person does: its words, cell by cell."""

from dataclasses import dataclass
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from tests.commands import Bench, Result

RATES = 'prefill_tokens_per_s = 4000\ndecode_tokens_per_s = 900\nclock = "virtual"'


@dataclass(frozen=True, kw_only=True)
class Page:
    html: str

    @property
    def tree(self) -> LexborHTMLParser:
        return LexborHTMLParser(self.html)

    @property
    def text(self) -> str:
        body = self.tree.body
        assert body is not None
        return " ".join(body.text(separator=" ").split())

    def cards(self) -> dict[str, str]:
        """The key figures by their labels."""
        found = {}
        for card in self.tree.css(".card"):
            label, value = card.css_first(".muted"), card.css_first("b")
            assert label is not None
            assert value is not None
            found[label.text()] = value.text()
        return found

    def cells(self) -> set[str]:
        """Of all tables."""
        return {" ".join(cell.text(separator=" ").split()) for cell in self.tree.css("td")}


def simulate(bench: Bench, corpus: Path, *arguments: object, options: str = RATES) -> Result:
    """Calibrate the simulator, then submit to it."""
    bench.write_spec(options)
    assert 0 == bench.run("calibrate", "--seconds", "5").code
    return bench.submit(corpus, *arguments)


def report(bench: Bench, *arguments: object) -> tuple[Page, Result]:
    """The page and the JSON object of a report."""
    target = bench.home / "page.html"
    result = bench.run("report", *arguments, "-o", target, "--json")
    assert 0 == result.code, result.err
    return Page(html=target.read_text(encoding="utf-8")), result

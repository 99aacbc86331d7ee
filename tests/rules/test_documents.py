"""Generated documents are fresh, and what tests cite exists."""

from __future__ import annotations

import re

import pytest

from tests.rules.tree import TESTS, short, sources
from tools import docs, trace
from tools.docs import ROOT

DOCUMENTS = docs.documents()


@pytest.mark.parametrize("document", DOCUMENTS, ids=[document.path.name for document in DOCUMENTS])
def test_a_generated_document_is_what_would_be_written_now(document: docs.Document) -> None:
    assert document.is_fresh(), "run `make docs` and commit the result"


def test_tests_cite_known_requirements_one_by_one() -> None:
    known = {requirement.id for requirement in trace.requirements()}
    assert not set(trace.citations()) - known
    ranges = [short(path) for path in sources(TESTS) if trace.RANGE.search(path.read_text(encoding="utf-8"))]
    assert not ranges, "a range hides what it covers: write each id"


def test_no_requirement_is_both_proven_and_excused() -> None:
    cited = trace.citations()
    assert not [
        requirement.id for requirement in trace.requirements() if requirement.reason and requirement.id in cited
    ]


def test_the_owner_of_a_citation_is_the_test_around_or_below_it() -> None:
    spans = [(10, 20, "test_a"), (25, 30, "test_b")]
    assert [trace.owner(spans, line) for line in (1, 8, 15, 20, 23, 27, 40)] == [
        "", "test_a", "test_a", "test_a", "test_b", "test_b", "",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["bugs.md", "security.md"])
def test_tests_that_a_document_names_are_there(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    named = set(re.findall(r"tests/[\w/]+(?:\.py)?(?:::\w+)?", text))
    assert named
    for each in named:
        path, _, test = each.partition("::")
        assert (ROOT / path).exists(), each
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8") if test else True, each

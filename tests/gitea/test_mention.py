# ruff: noqa: RUF001 - Chinese punctuation and look-alike brackets are meant

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster.gitea import mention
from tests.gitea.samples import payload

BOT = "codebot"


def asked(body: str, login: str = BOT) -> str | None:
    found = mention.find(body, login)
    return None if found is None else found.instruction


@pytest.mark.parametrize(
    ("body", "instruction"),
    [
        ("@codebot please fix", "please fix"),
        ("@CodeBot please fix", "please fix"),
        ("@codebot: please fix", "please fix"),
        ("@codebot，请修复", "请修复"),
        ("请@codebot 修复登录", "请 修复登录"),
        ("@codebot修复登录", "修复登录"),
        ("please @codebot fix", "please fix"),
        ("(@codebot) fix", "() fix"),
        ("**@codebot** fix", "**** fix"),
        ("fix it, @codebot.", "fix it, ."),
        ("fix it @codebot", "fix it"),
        ("@codebot's turn", "'s turn"),
        ("- @codebot fix", "- fix"),
        ("@codebot/x", "/x"),
        ("-@codebot fix", "- fix"),
        (".@codebot fix", ". fix"),
        ("é@codebot fix", "é fix"),
        ("@codebot\r\n\r\nfix\r\n", "fix"),
        ("@codebot add @codebot to CODEOWNERS", "add @codebot to CODEOWNERS"),
        ("@codebot run `@codebot help`", "run `@codebot help`"),
        ("> they wrote @codebot\n@codebot fix", "> they wrote @codebot\nfix"),
        ("see `x`@codebot", "see `x`"),
        ("a ` b @codebot fix", "a ` b fix"),
        ("\\`@codebot fix\\`", "\\` fix\\`"),
        ("<!-- note --> @codebot fix", "<!-- note --> fix"),
        ("<!-->\n@codebot fix -->", "<!-->\nfix -->"),
        ("```js\nx\n```\n@codebot fix", "```js\nx\n```\nfix"),
        ("```a``` @codebot fix", "```a``` fix"),
        ("`` ` `` @codebot fix", "`` ` `` fix"),
        ("`never closed\n\n@codebot fix", "`never closed\n\nfix"),
        ("~~~\n```\n~~~\n@codebot fix", "~~~\n```\n~~~\nfix"),
    ],
)
def test_a_mention_and_what_it_asks(body: str, instruction: str) -> None:  # GW-R-055, GW-R-057
    assert asked(body) == instruction


@pytest.mark.parametrize(
    "body",
    [
        "",
        "codebot fix",
        "@ codebot fix",
        "@codebot-x fix",
        "@codebot_ fix",
        "@codebot2 fix",
        "@codebot.example fix",
        "mail me@codebot",
        "mail me@codebot.example",
        "@@codebot fix",
        "acme/@codebot fix",
        "@acme/codebot fix",
        "> @codebot fix",
        "  > @codebot fix",
        "- > @codebot fix",
        ">@codebot fix",
        "`@codebot fix`",
        "`` ` @codebot fix ``",
        "`one\ntwo @codebot three`",
        "```\n@codebot fix\n```",
        "```\n@codebot fix",
        "```sh\n@codebot fix\n``\n",
        "~~~\n@codebot fix\n```\n~~~",
        "- ```\n  @codebot fix\n  ```",
        "1. a\n\n   ```\n   @codebot fix\n   ```",
        "\t```\n\t@codebot fix\n\t```",
        "<!-- @codebot fix -->",
        "words <!-- @codebot fix --> words",
        "<!--\n\n@codebot fix\n\n-->",
        "<!--\n@codebot fix",
        "<!-- ``` --> <!-- @codebot -->",
        "\N{KELVIN SIGN}@codebo\N{LATIN SMALL LETTER LONG S}",
    ],
)
def test_what_does_not_speak_to_the_bot(body: str) -> None:
    assert asked(body) is None


@pytest.mark.parametrize(
    "body", ["@codebot", " @codebot \r\n", "@codebot: ", "@codebot @codebot", "@codebot <!-- x -->"]
)
def test_a_mention_that_asks_nothing(body: str) -> None:  # GW-R-057
    assert asked(body) == ""


def test_recorded_comments() -> None:
    assert asked(payload("issue_comment_code_and_quote")["comment"]["body"]) is None
    forms = payload("issue_comment_mention_forms")["comment"]["body"]
    assert len(mention.spans(forms, BOT)) == 7
    assert asked(payload("issue_comment_created_issue")["comment"]["body"]) == (
        "please fix the crash in `parse()` 🙏\n\nThanks!"
    )


def test_a_login_with_dots_is_taken_literally() -> None:
    assert asked("@code.bot fix", "code.bot") == "fix"
    assert asked("@codeXbot fix", "code.bot") is None
    assert asked("@x fix", "") is None


pieces = st.one_of(
    st.sampled_from(
        [
            "@codebot",
            "@CODEBOT",
            "`",
            "``",
            "```",
            "~~~",
            "> ",
            "- ",
            "\n",
            "\r\n",
            "\n\n",
            "<!--",
            "-->",
            "\\",
            " ",
            "x",
        ]
    ),
    st.text(max_size=5),
)
bodies = st.lists(pieces, max_size=40).map("".join)


@given(bodies)
def test_blanking_keeps_every_place(text: str) -> None:
    live = mention.live(text)
    assert len(live) == len(text)
    assert all(kept in (char, " ") for kept, char in zip(live, text, strict=True))
    assert [at for at, char in enumerate(text) if char == "\n"] == [at for at, char in enumerate(live) if char == "\n"]


@given(bodies)
def test_a_mention_is_really_there_and_taken_out_once(text: str) -> None:
    spans = mention.spans(text, BOT)
    assert all(text[start:end].lower() == "@codebot" for start, end in spans)
    found = mention.find(text, BOT)
    if found is not None and found.instruction:
        assert found.instruction.lower().count("@codebot") == text.lower().count("@codebot") - 1
        assert found.instruction == found.instruction.strip()


@given(st.text(alphabet=st.characters(exclude_characters="@`~<>\\\n\r"), max_size=60))
def test_ordinary_words_after_the_address_are_the_instruction(words: str) -> None:
    cleaned = words.strip().lstrip(" \t:,;：，；、").strip()
    found = asked(f"@codebot {words}")
    assert found is not None
    assert found == cleaned or found == words.strip() or found.endswith(cleaned)


@given(bodies)
def test_quoting_a_whole_comment_silences_it(text: str) -> None:
    quoted = "\n".join(f"> {line}" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    assert mention.find(quoted, BOT) is None


@given(
    st.text(alphabet=st.characters(exclude_characters="~"), max_size=60), st.sampled_from(["@codebot x", "@codebot"])
)
def test_fencing_a_whole_comment_silences_it(text: str, call: str) -> None:
    assert mention.find(f"~~~\n{text}\n{call}\n~~~", BOT) is None


def test_hostile_texts_cost_one_pass() -> None:
    # A quadratic reading of these takes hours, and this test then never ends.
    for piece in (
        "`",
        "``a`",
        "<!--",
        "<!-- `",
        "- " * 20,
        "\\`",
        ">",
        "```\n",
        "@codebot ",
        "<!---->",
        "a\n",
        "` `` ",
    ):
        mention.find(piece * (1_000_000 // len(piece)) + " @codebot x", BOT)
        mention.find("".join("`" * n + " " for n in range(1, 1200)) + "@codebot x", BOT)


def test_a_large_log_is_read() -> None:
    assert (asked(payload("issue_comment_large_body")["comment"]["body"]) or "").startswith("see log")

"""The command line of the canonical form: a whole value, or lines with an answer each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[1] / "data/canon_v1.jsonl"


def canon(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "stationmaster.ops.main", "canon", *args]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)


def test_lines_are_answered_in_order_and_survive_as_ascii() -> None:  # R-CAN-10, R-CAN-12
    vectors = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    asked = [{"id": each["id"], "input": each["input"]} for each in vectors]
    asked.append({"id": "lone", "input": '"\ud800"'})
    done = canon("--jsonl", given="".join(json.dumps(each) + "\n" for each in asked).encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers] == [each["id"] for each in asked]
    for vector, answer in zip(vectors, answers[:-1], strict=True):
        if vector["canonical"] is None:
            assert set(answer) == {"id", "error", "code"}
        else:
            assert (answer["canonical"], answer["sha256"]) == (vector["canonical"], vector["sha256"])
    assert answers[-1]["canonical"] == '"\ud800"'


def test_a_line_that_cannot_be_read_does_not_hide_the_others() -> None:
    done = canon("--jsonl", given=b'{"id":1,"input":"1.0"}\nnonsense\n{"id":2}\n\xff\n{"id":3,"input":"2.0"}\n')
    assert done.returncode == 2
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers] == [1, None, None, None, 3]
    assert answers[1]["error"].startswith("Line 2 is not an object")
    assert answers[4]["canonical"] == "2"


@pytest.mark.parametrize("named", [True, False])
def test_a_value_is_printed_with_its_hash(tmp_path: Path, named: bool) -> None:
    file = tmp_path / "value.json"
    file.write_bytes(' {"b": 1.50, "a": "é", "intent": 3}\n'.encode())
    done = canon(str(file)) if named else canon("-", given=file.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert said["canonical"] == '{"a":"é","b":1.5}'
    assert len(said["sha256"]) == 64


def test_what_is_refused_is_one_sentence(tmp_path: Path) -> None:
    done = canon(given=b'{"a":1,}')
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"stationmaster: The JSON is refused: ")
    gone = canon(str(tmp_path / "nothing.json"))
    assert gone.returncode == 2
    assert b"cannot be read" in gone.stderr

"""The verbs of a task: every move of a task, its session and its lease, each one command's body.

Nothing here talks to the forge, to git or to an agent. Whoever holds the repository lease passes it in; a lost lease
stops the command before anything is written (GW-R-121).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stationmaster import canonical, ids, redact
from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.errors import Illegal, Stale
from stationmaster.gitea import codes, limits, marker, parts, store, texts
from stationmaster.gitea.machine import COMMENT, REPOSITORY, SESSION, TASK
from stationmaster.gitea.model import LEASE_KIND, Asker, Comment, CommentKind, Purpose, Repository, Task, TurnKind
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.gitea.store import Q
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import End
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx

MOST_ATTEMPTS = 1
AGENT = "codex_app"
ACTIVE = frozenset({"preparing", "running", "verifying_reply", "aborting"})
_ENDED_BADLY = frozenset({"failed", "failed_reply", "aborted", "cancelled"})


def refs(task: Task) -> dict[str, str]:
    """Returns the correlation ids of everything done for a task (GW-R-229)."""
    return {
        "delivery": task.delivery_id,
        "task": task.id,
        "repo": task.resource_key.rsplit(":", 2)[0],
        "resource": task.resource_key,
        "session": task.resource_key,
    }


def log_ids(task: Task) -> dict[str, str]:
    """Returns what every line of the log about a task carries: its ids, without the session, which is the resource."""
    return {kind: value for kind, value in refs(task).items() if kind != "session"}


def command(name: str, task: Task, cause: str, *, actor: str = "system", dedupe: str | None = None) -> Cmd:
    """Makes a command about a task."""
    return Cmd(name, actor, cause, dedupe, refs(task))


def take_lease(tx: Tx, task: Task, station: Station, settings: GiteaSettings) -> Lease | None:
    """Takes the lease of a task's repository for this worker, or returns None while somebody holds it."""
    return leases.acquire(
        tx,
        kind=LEASE_KIND,
        key=task.repository_id,
        owner=station.worker_id,
        incarnation=station.incarnation,
        subject=task.id,
        ttl_s=settings.ttl_s,
    )


def settle(tx: Tx, repository: Repository, **cols: Any) -> None:
    """Stores a fact about a repository that does not change its state."""
    tx.move(REPOSITORY, repository.id, "settle", rev=repository.rev, updated_at=tx.now, **cols)


def step(tx: Tx, task: Task, verb: str, settings: GiteaSettings, **cols: Any) -> Task:
    """Moves a task with everything that belongs to the move, and returns the task as it is then.

    That is: its session's state, the ready list, and the receipt of an exceptional end (GW-R-135).
    """
    state = tx.move(TASK, task.id, verb, rev=task.rev, updated_at=tx.now, **cols)
    # The move was by `rev`, so what it left is known; a read for it would cost every accepted delivery.
    moved = msgspec.structs.replace(task, state=state, rev=task.rev + 1, updated_at=tx.now, **cols)
    if task.state == "queued":
        limits.forget(tx, task.id)
    if state == "waiting_user":
        _session(tx, task, "wait")
    elif task.state == "waiting_user":
        _session(tx, task, "resume")
    if state == "retry_wait":
        store.ready(tx, task.repository_id, cols["next_retry_at"])
    if state not in ACTIVE:
        # Others of this repository may have waited for this one.
        store.ready(tx, task.repository_id, tx.now)
    if state in _ENDED_BADLY:
        _end_receipt(tx, moved, settings)
    return moved


def _session(tx: Tx, task: Task, verb: str) -> None:
    session = store.session(tx, task.session_id)
    if session.state == {"wait": "active", "resume": "waiting_user"}[verb]:
        tx.move(SESSION, session.id, verb, rev=session.rev, updated_at=tx.now)


def _end_receipt(tx: Tx, task: Task, settings: GiteaSettings) -> None:
    key = status_key(task.id, task.state)
    language, code = settings.language, task.error_code
    if task.state == "cancelled" and store.comment(tx, status_key(task.id, "running")) is None:
        return
    if code == codes.AUTHOR_NOT_ALLOWED:
        author = asked_by(tx, task)
        if not store.first_refusal_today(tx, settings.instance_id, author.id):
            return
        body = texts.refused_author(key, author.login, settings.allow, language)
    elif code == codes.AUTHOR_NOT_VERIFIABLE:
        body = texts.unverifiable_author(key, language)
    else:
        note = _kept(tx, task, language) if task.state == "aborted" else ""
        body = texts.end_receipt(key, task.state, code, language, note)
    intend_comment(tx, task, key, "status", body)


def _kept(reader: Reader, task: Task, language: codes.Language) -> str:
    """Names the commit that keeps what the task changed last; empty when it changed nothing."""
    last, after = "", 0
    while page := history.by_ref(reader, "task", task.id, after=after):
        for entry in page:
            if entry.name == "git.commit.result" and (entry.data or {}).get("changed"):
                last = str((entry.data or {}).get("after"))
        after = page[-1].seq
    branch = store.current_branch(reader, task.session_id)
    return "" if not last or branch is None else texts.saved_line(last, branch.name, language)


def asked_by(reader: Reader, task: Task) -> Asker:
    """Returns who gave the task's newest instruction, and what the signed event says they may do."""
    said = store.follow_ups(reader, task.id)
    newest = said[-1] if said else task
    return Asker(newest.author_id, newest.author, newest.sender_may)


def advance(tx: Tx, task_id: str, verb: str, lease: Lease, settings: GiteaSettings, **cols: Any) -> Task:
    """Moves a task under its lease and keeps the lease."""
    leases.held(tx, lease)
    return step(tx, store.task(tx, task_id), verb, settings, **cols)


def leave(tx: Tx, task_id: str, verb: str, lease: Lease, settings: GiteaSettings, **cols: Any) -> Task:
    """Moves a task to a state in which nobody works on it, and gives the lease back (GW-R-106)."""
    leases.held(tx, lease)
    moved = step(tx, store.task(tx, task_id), verb, settings, **cols)
    leases.release(tx, lease)
    return moved


def give_up_or_retry(
    tx: Tx, task_id: str, code: str, lease: Lease, settings: GiteaSettings, *, retryable: bool
) -> Task:
    """Spends the one retry that all causes share, or fails the task (GW-R-107)."""
    task = store.task(tx, task_id)
    if not retryable or task.attempt >= MOST_ATTEMPTS:
        return leave(tx, task_id, "fail", lease, settings, error_code=code, next_retry_at=None, retry_purpose=None)
    return leave(
        tx,
        task_id,
        "retry",
        lease,
        settings,
        attempt=task.attempt + 1,
        next_retry_at=tx.now + int(settings.retry_delay_s * MICROS),
        retry_purpose="execution",
        error_code=code,
    )


def postpone(
    tx: Tx, task_id: str, purpose: Purpose, lease: Lease, settings: GiteaSettings, *, delay_s: float, **cols: Any
) -> Task:
    """Puts a task back for another look or for its one reply retry; spends no execution retry (GW-R-093)."""
    due = tx.now + int(delay_s * MICROS)
    return leave(tx, task_id, "retry", lease, settings, next_retry_at=due, retry_purpose=purpose, **cols)


def open_turn(
    tx: Tx, task_id: str, lease: Lease, run_id: str, worker_id: str, *, kind: TurnKind, head: str | None
) -> None:
    """Makes the run before its process exists, so that recovery knows its mark (GW-R-040, GW-R-148)."""
    leases.held(tx, lease)
    task = store.task(tx, task_id)
    jobs.open_run(tx, run_id, agent=AGENT, subject=task.id, worker_id=worker_id)
    tx.run(Q.add_turn, run_id=run_id, task_id=task.id, kind=kind, head_before=head, opened_at=tx.now)
    limits.begin(tx, task, run_id, asked_by(tx, task), store.repository(tx, task.repository_id).instance_id)
    tx.event("turn.open", refs={**refs(task), "turn": run_id}, kind=kind, attempt=task.attempt)


def bind_turn(tx: Tx, task: Task, run_id: str, turn_id: str, thread_id: str) -> None:
    """Stores the agent's own turn id (GW-R-147)."""
    run = jobs.find(tx, run_id)
    if run is None or run.state != "started":
        raise Stale("The run has ended.", code=codes.LEASE_LOST, hint="Stop it.", run=run_id)
    jobs.bind(tx, run, external_id=turn_id, thread_id=thread_id)
    tx.event("turn.bound", refs={**refs(task), "turn": (run_id, turn_id), "thread": thread_id}, run=run_id)


def end_turn(tx: Tx, task: Task, run_id: str, verb: End, code: str | None, text: str) -> None:
    """Stores how a turn ended and the agent's last words (GW-R-150, GW-R-173)."""
    if text:
        tx.run(Q.set_final_text, run_id=run_id, body=redact.clean(text))
    if jobs.end(tx, run_id, verb, error_code=code):
        run = jobs.find(tx, run_id)
        named = (run_id, run.external_id) if run is not None and run.external_id else (run_id,)
        tx.event("turn.end", refs={**refs(task), "turn": named}, outcome=verb, code=code)


def bind_thread(tx: Tx, task: Task, thread_id: str, tool_set: str, *, why: str | None) -> None:
    """Stores the conversation's thread; replacing one needs a reason and leaves an audit row (GW-R-036)."""
    session = store.session(tx, task.session_id)
    if session.thread_id not in {None, thread_id} and why is None:
        raise Illegal("A thread is replaced only for a reason.", code=codes.INVALID_STATE, hint="Resume the first one.")
    if session.state == "closed":
        tx.move(SESSION, session.id, "reopen", rev=session.rev, updated_at=tx.now)
        session = store.session(tx, task.session_id)
    if session.state == "waiting_user":
        tx.move(SESSION, session.id, "resume", rev=session.rev, updated_at=tx.now)
        session = store.session(tx, task.session_id)
    if session.thread_id == thread_id:
        return
    verb = "bind_thread" if session.thread_id is None else "replace_thread"
    tx.move(SESSION, session.id, verb, rev=session.rev, thread_id=thread_id, tool_set=tool_set, updated_at=tx.now)
    if session.thread_id is not None:
        both: dict[str, str | tuple[str, ...]] = {**refs(task), "thread": (thread_id, session.thread_id)}
        tx.event("thread.replaced", refs=both, old=session.thread_id, new=thread_id, reason=why or "")


def intend_comment(
    tx: Tx,
    task: Task,
    key: str,
    kind: CommentKind,
    body: str,
    *,
    run_id: str | None = None,
    term: int | None = None,
) -> Comment:
    """Makes the row of a comment before it is sent; a repeat returns the first one (GW-R-023, GW-R-138)."""
    known = store.comment(tx, key)
    if known is not None:
        return known
    if kind == "rest_fallback" and any(
        row.kind == "mcp_final" and row.state == "confirmed" for row in store.comments(tx, task.id)
    ):
        # GW-R-042: a fallback never doubles an answer that is proven.
        raise Illegal("The answer is already proven.", code=codes.INVALID_STATE, hint="Nothing is left to post.")
    clean = redact.clean(body)
    session = store.session(tx, task.session_id)
    tx.born(
        COMMENT,
        key,
        "intend",
        task_id=task.id,
        run_id=run_id,
        kind=kind,
        repository_id=task.repository_id,
        resource_key=task.resource_key,
        number=session.number,
        body_hash=canonical.sha256(clean),
        term=term,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.run(Q.add_comment_body, comment_key=key, body=clean)
    made = store.comment(tx, key)
    assert made is not None, "BUG: the comment was just made"  # noqa: S101 - it was
    return made


def intend_parts(tx: Tx, task: Task, answer_key: str, further: Sequence[str], *, run_id: str) -> None:
    """Makes the rows of the parts that follow an answer; they are sent once the answer stands."""
    for number, text in enumerate(further, 2):
        key = parts.key(answer_key, number)
        intend_comment(tx, task, key, "status", marker.attach(text, marker.receipt(key)), run_id=run_id)


def turn_end_row(reader: Reader, task_id: str, run_id: str) -> Comment | None:
    """Returns the comment that decided how a turn ends: the first of `reply` and `ask` (scoped mode)."""
    return store.comment(reader, final_key(task_id, run_id)) or store.comment(reader, ask_key(task_id, run_id))


def final_key(task_id: str, run_id: str) -> str:
    """Returns the key of a turn's answer (GW-R-021)."""
    return f"{task_id}:final:{run_id}"


def ask_key(task_id: str, run_id: str) -> str:
    """Returns the key of a turn's question."""
    return f"{task_id}:ask:{run_id}"


def fallback_key(task_id: str) -> str:
    """Returns the key of the one fallback (GW-R-021)."""
    return f"{task_id}:fallback"


def status_key(task_id: str, state: str) -> str:
    """Returns the key of a receipt (GW-R-133, GW-R-135)."""
    return f"{task_id}:status:{state}"


def new_run_id() -> str:
    """Makes a turnRef: ours, unique, known before the agent is."""
    return ids.new("run")

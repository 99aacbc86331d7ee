"""Which repositories and conversations there are: registered at first sight, followed through renames."""

from __future__ import annotations

from stationmaster import ids
from stationmaster.gitea import store
from stationmaster.gitea.machine import REPOSITORY, SESSION
from stationmaster.gitea.model import Repository
from stationmaster.gitea.normalise import Normalised, repo_key
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Tx


def registered(tx: Tx, said: Normalised) -> Repository:
    """Returns the repository's row; a first sight registers it, another name than before renames it (GW-R-031)."""
    repo = said.repo
    found = store.repository_by_native(tx, said.instance_id, repo.id)
    names = {"owner": repo.owner, "name": repo.name, "repo_key": said.repo_key, "clone_url": repo.clone_url}
    if found is None:
        made = ids.new("repo")
        tx.born(
            REPOSITORY,
            made,
            "register",
            instance_id=said.instance_id,
            native_id=repo.id,
            default_branch=repo.default_branch,
            registered_at=tx.now,
            updated_at=tx.now,
            **names,
        )
        tx.event("repo.register", native_id=repo.id)
        return store.repository(tx, made)
    if (found.owner, found.name, found.clone_url) != (repo.owner, repo.name, repo.clone_url):
        rename(tx, found, owner=repo.owner, name=repo.name, key=said.repo_key, clone_url=repo.clone_url)
        return store.repository(tx, found.id)
    return found


def rename(tx: Tx, found: Repository, *, owner: str, name: str, key: str, clone_url: str) -> None:
    """Follows a repository to its new name; the old one stays as an alias, never becomes a new row."""
    if found.repo_key != key:
        tx.run(Q.add_alias, repo_key=found.repo_key, repository_id=found.id, until_at=tx.now)
    tx.move(
        REPOSITORY,
        found.id,
        "rename",
        rev=found.rev,
        owner=owner,
        name=name,
        repo_key=key,
        clone_url=clone_url,
        updated_at=tx.now,
    )
    tx.event("repo.rename", refs={"repo": (found.repo_key, key)}, old=found.repo_key, new=key)


def moved(tx: Tx, repository_id: str, owner: str, name: str) -> Repository:
    """Stores the name under which the forge now shows a repository; a repeat changes nothing."""
    found = store.repository(tx, repository_id)
    if (found.owner, found.name) != (owner, name):
        key = repo_key(found.instance_id, owner, name)
        prefix = found.clone_url.rsplit("/", 2)[0]
        rename(tx, found, owner=owner, name=name, key=key, clone_url=f"{prefix}/{owner}/{name}.git")
    return store.repository(tx, repository_id)


def session(tx: Tx, said: Normalised, repository: Repository) -> tuple[str, bool]:
    """Returns the id of the issue's or pull request's conversation, and whether it was opened now, at first sight."""
    kind, number = said.resource.kind, said.resource.number
    found = store.session_of(tx, repository.id, kind, number)
    if found is not None:
        return found.id, False
    made = ids.new("session")
    tx.born(
        SESSION,
        made,
        "open",
        repository_id=repository.id,
        kind=kind,
        number=number,
        created_at=tx.now,
        updated_at=tx.now,
    )
    return made, True

"""Changes that users make to runs: rename, add a note, add or remove tags, delete.

Each change is one transaction. A daemon may write to the ledger at the same time, but it will not undo the change. Only
root and the owner of the file can open it, and only root can change runs of other users.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
from collections.abc import Sequence
from types import TracebackType
from urllib.parse import quote

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.text import clean
from gpumon.model.frame import RunState
from gpumon.model.run import MAX_TAGS, NOTE_LENGTH, TAG_LENGTH
from gpumon.storage.ledger.records import RunRow
from gpumon.storage.ledger.schema import LEDGER_FILE, VERSION
from gpumon.storage.sqlite.read import describe_error
from gpumon.storage.sqlite.write import BUSY_TIMEOUT, require_plain_tables, require_regular_files, transaction

NAME_LENGTH = 96
_REMEMBERED = 7 * 24 * 3600 * SECOND
"""Nanoseconds for which the ranks of deleted runs are remembered, so that a daemon does not record them again. Their
boards disappear within minutes."""


class LedgerChange:
    """A ledger opened for changes.

    Raises GpumonError without write permission, or if another version of gpumon wrote it.
    """

    def __init__(self, path: str, uid: int, proc: str = "/proc") -> None:
        self._path = path
        self._uid = uid
        self._proc = proc
        self._db = _open(path)

    def __enter__(self) -> LedgerChange:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._db.close()

    def may_change(self, run: RunRow) -> None:
        """Raise GpumonError if the run belongs to another user."""
        user = user_name(self._uid)
        if self._uid != 0 and run.user != user:
            raise GpumonError(f"run {run.id} belongs to {run.user or 'an unknown user'}: {user} cannot change it")

    def may_delete(self, run: RunRow, now: float, hostname: str) -> None:
        """Raise GpumonError if the run belongs to another user or is still running.

        `now`: current time in seconds since 1970. `hostname`: name of this machine.
        """
        self.may_change(run)
        if run.state is RunState.RUNNING and (not run.unseen_seconds(now) or self._lives(run, hostname)):
            raise GpumonError(f"run {run.id} is running: stop it before you delete it")

    def rename(self, run: RunRow, name: str) -> None:
        """Rename a run; its id stays the same."""
        wanted = _text("a name", name, NAME_LENGTH)
        self.may_change(run)
        self._execute(("UPDATE run SET name = ? WHERE id = ?", (wanted, run.id)))

    def note(self, run: RunRow, text: str, time_ns: int) -> None:
        """Add a note by this user to a run. `time_ns`: time of the note in ns since 1970."""
        wanted = _text("a note", text, NOTE_LENGTH)
        self.may_change(run)
        row = (run.id, time_ns, wanted, user_name(self._uid))
        self._execute(("INSERT INTO note (run, time, text, author) VALUES (?, ?, ?, ?)", row))

    def tag(self, run: RunRow, tags: Sequence[str], *, remove: bool = False) -> None:
        """Add tags to a run, or remove them if `remove` is true.

        Raises UsageError if a tag to remove does not exist, or if the run would have too many tags.
        """
        wanted = [_text("a tag", tag, TAG_LENGTH) for tag in tags]
        self.may_change(run)
        has = {tag for (tag,) in self._db.execute("SELECT tag FROM tag WHERE run = ? AND NOT removed", (run.id,))}
        if remove and (absent := [tag for tag in wanted if tag not in has]):
            tags_text = f"its tags are {', '.join(sorted(has))}" if has else "it has no tags"
            raise UsageError(f"run {run.id} has no tag '{absent[0]}': {tags_text}")
        if not remove and len(has | set(wanted)) > MAX_TAGS:
            raise UsageError(f"a run can have at most {MAX_TAGS} tags")
        change = (
            "INSERT INTO tag (run, tag, removed) VALUES (?, ?, ?) "
            "ON CONFLICT (run, tag) DO UPDATE SET removed = excluded.removed"
        )
        self._execute(*((change, (run.id, tag, int(remove))) for tag in wanted))

    def delete(self, run: RunRow, now: float, hostname: str) -> None:
        """Delete a run and all its rows. See `may_delete` for the arguments and errors."""
        self.may_delete(run, now, hostname)
        time_ns = round(now * SECOND)
        self._execute(
            ("INSERT OR REPLACE INTO forgotten SELECT key, ? FROM rank WHERE run = ?", (time_ns, run.id)),
            ("DELETE FROM forgotten WHERE time < ?", (time_ns - _REMEMBERED,)),
            ("DELETE FROM run WHERE id = ?", (run.id,)),
        )

    def _execute(self, *changes: tuple[str, tuple[object, ...]]) -> None:
        try:
            with transaction(self._db):
                for statement, values in changes:
                    self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise GpumonError(f"cannot change {self._path}: {describe_error(error, self._path)}") from error

    def _lives(self, run: RunRow, hostname: str) -> bool:
        """Return whether a process of a run that no daemon watches still exists."""
        if run.hostname != hostname:
            return False
        pids = self._db.execute("SELECT pid FROM rank WHERE run = ? AND ended IS NULL", (run.id,)).fetchall()
        return any(isinstance(pid, int) and pid > 0 and os.path.exists(f"{self._proc}/{pid}") for (pid,) in pids)


def user_name(uid: int) -> str:
    """Return the name of the user with this uid, or the uid as text if there is no such user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(what: str, value: str, length: int) -> str:
    text = clean(" ".join(value.split()), length + 1)
    if not text:
        raise UsageError(f"{what} must not be empty")
    if len(text) > length:
        raise UsageError(f"{what} must have at most {length} characters")
    return text


def _open(path: str) -> sqlite3.Connection:
    if not os.access(path, os.W_OK) or not os.access(os.path.dirname(path), os.W_OK):
        owner = user_name(os.stat(path).st_uid)
        who = "root" if owner == "root" else f"{owner}, and root,"
        raise GpumonError(
            f"no permission to change {path}: it belongs to {owner}, who runs its daemon. Only {who} can rename, "
            "annotate, tag or delete its runs"
        )
    try:
        require_regular_files(path)
    except OSError as error:
        raise GpumonError(f"cannot change {path}: {error.strerror}") from error
    db = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode=rw", uri=True, timeout=BUSY_TIMEOUT, isolation_level=None
    )
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        require_plain_tables(db, LEDGER_FILE)
        db.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        db.close()
        raise GpumonError(f"cannot change {path}: {describe_error(error, path)}") from error
    if version != VERSION:
        db.close()
        raise GpumonError(
            f"{path} has format {version}, but this gpumon writes format {VERSION}: "
            "use the gpumon version of the daemon that writes it"
        )
    return db

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sagentry.plugins.sql import migrate
from sagentry.plugins.sql.database import DatabaseError, open_database
from sagentry.plugins.sql.schema import metadata
from tests.support.servers import short_folder

OPEN = "import sys; from sagentry.plugins.sql.database import open_database as o; o(sys.argv[1])"


def made(path: Path) -> Path:
    open_database(str(path)).close()
    return path


def told(target: str) -> str:
    with pytest.raises(DatabaseError) as refusal:
        open_database(target)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "s.db"))

    with database.writing.begin() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    database.close()

    assert differences == []


def test_all_revisions_are_known_oldest_first() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "_migrations"))
    revisions = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()]

    assert tuple(reversed(revisions)) == migrate.REVISIONS


def test_a_database_opens_again_and_as_an_address(tmp_path: Path) -> None:
    path = made(tmp_path / "s.db")

    open_database(f"sqlite:///{path}").close()
    open_database(str(path)).close()


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "s.db"))
    with database.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE conversations SET released = 0")

    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    database.close()

    assert set(modes) == {"s.db", "s.db-wal", "s.db-shm", "s.db.lock"}
    assert set(modes.values()) == {0o600}


def test_writes_are_synced_at_each_commit(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "s.db"))
    with database.writing.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_two_processes_that_start_on_one_file_both_come_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(tmp_path / "s.db")]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ended = [(process.communicate(timeout=30)[1], process.returncode) for process in started]

    assert [code for _, code in ended] == [0, 0, 0, 0], ended


def test_a_newer_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = made(tmp_path / "s.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns

    text = told(str(path))

    assert "later version" in text
    assert "9999" in text
    assert (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns) == before


def test_a_database_of_another_application_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (value)")
        connection.commit()
    before = path.read_bytes()

    assert "another application" in told(str(path))
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "migrations"
    shutil.copytree(Path(migrate.__file__).parent / "_migrations", copy)
    (copy / "versions" / "0002_breaks.py").write_text(
        "revision = '0002'\ndown_revision = '0001'\n\n\ndef upgrade():\n    raise ArithmeticError\n"
    )
    monkeypatch.setattr(migrate, "_FOLDER", copy)
    path = tmp_path / "s.db"

    with pytest.raises(ArithmeticError):
        open_database(str(path))

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{folder}", "is a directory"),
        ("{folder}/no/s.db", "no such directory"),
        ("{folder}/text.db", "not a database"),
        ("sqlite://", "keeps nothing"),
        ("sqlite:///:memory:", "keeps nothing"),
        ("mysql://user:secret@host/name", "not supported"),
        ("://", "malformed"),
    ],
)
def test_what_cannot_be_a_database_is_said_in_one_line(
    tmp_path: Path, target: str, said: str
) -> None:
    (tmp_path / "text.db").write_text("This is a text and no database at all.\n" * 100)

    text = told(target.format(folder=tmp_path))

    assert said in text
    assert "secret" not in text


# Root may write everywhere, so the process gives its rights up meanwhile, once it has loaded its code.
UNPRIVILEGED = """
import os
from sagentry.plugins.sql.command import main
is_root = os.getuid() == 0
if is_root:
    os.setresuid(65534, 65534, 0)
try:
    main(prog_name="sagentry-sql")
finally:
    if is_root:
        os.setresuid(0, 0, 0)
"""


def test_a_folder_that_cannot_be_written_is_said_in_one_line() -> None:
    with short_folder() as folder:
        folder.chmod(0o555)
        ended = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, "--database", f"{folder}/s.db"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [f"Error: {folder}: the directory cannot be written to"]


def test_an_endpoint_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    ended = subprocess.run(
        [sys.executable, "-m", "sagentry.plugins.sql", "--database", database, "--endpoint", "x"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("Error: endpoint 'x'")

"""A folder for programs: made private, and refused where others can write to it, to those above it or through links."""

import os
import stat

import pytest

from energymodel.runtime.private_folder import make_private, why_not_private

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owners here")
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
ANOTHER = 65534


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    return folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_made_private_whatever_the_mask(home):
    before = os.umask(0)
    try:
        make_private(home / "cache" / "project" / "compiled")
    finally:
        os.umask(before)
    for path in ("cache", "cache/project", "cache/project/compiled"):
        assert mode(home / path) == 0o700
    assert why_not_private(home / "cache" / "project" / "compiled") is None
    folder = home / "compiled"
    folder.mkdir(mode=0o755)
    assert why_not_private(folder) is None
    make_private(folder)
    assert mode(folder) == 0o700


@pytest.mark.parametrize("permissions", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused_and_left(home, permissions):
    folder = home / "compiled"
    folder.mkdir()
    folder.chmod(permissions)
    make_private(folder)
    assert mode(folder) == permissions
    assert str(why_not_private(folder)).startswith(f"others can write to {folder}. ")


def test_others_must_not_exchange_the_folder(home):
    folder = home / "cache" / "compiled"
    make_private(folder)
    home.chmod(0o777)
    assert str(why_not_private(folder)).startswith(f"others can write to {home}. ")
    home.chmod(0o1777)  # sticky, as /tmp
    assert why_not_private(folder) is None


def test_links_are_followed_above_the_folder_only(home):
    target, link = home / "target", home / "link"
    make_private(target)
    link.symlink_to(target)
    assert why_not_private(link) == f"{link} is a link. Name the folder itself."
    make_private(link / "compiled")
    assert why_not_private(link / "compiled") is None
    target.chmod(0o777)
    assert str(why_not_private(link / "compiled")).startswith(f"others can write to {target}. ")
    target.chmod(0o700)
    (target / "program").symlink_to(home / "elsewhere")
    assert "program is a link" in str(why_not_private(target))
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")
    assert "too many links" in str(why_not_private(home / "a" / "compiled"))


def test_what_is_no_folder_or_does_not_exist(home):
    (home / "file").write_text("")
    assert why_not_private(home / "file") == f"{home / 'file'} is no folder. Name another one."
    assert why_not_private(home / "none" / "compiled") is None  # as private as what is above it
    home.chmod(0o777)
    assert why_not_private(home / "none" / "compiled") is not None


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_what_belongs_to_another_user_is_refused(home):
    folder = home / "compiled"
    make_private(folder)
    (folder / "program").write_text("")
    os.chown(folder / "program", ANOTHER, ANOTHER)
    assert "belongs to another user" in str(why_not_private(folder))
    (folder / "program").unlink()
    os.chown(folder, ANOTHER, ANOTHER)
    assert f"{folder} belongs to another user" in str(why_not_private(folder))
    os.chown(folder, os.geteuid(), ANOTHER)
    os.chown(home, ANOTHER, ANOTHER)
    assert f"{home} belongs to another user" in str(why_not_private(folder))


def test_a_folder_that_cannot_be_checked_is_refused(home, monkeypatch):
    def broken(path):
        raise PermissionError(13, "Permission denied", str(path))

    make_private(home / "compiled")
    monkeypatch.setattr(os, "scandir", broken)
    assert why_not_private(home / "compiled") == f"{home / 'compiled'} cannot be checked: Permission denied."

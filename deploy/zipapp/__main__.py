"""Runs Plimsoll from one file: unpacks the archive once to a directory of the caller, and continues there.

Compiled modules cannot be imported from an archive. The directory is named after the hash of the contents, so a new
version unpacks again and a running one is not disturbed.
"""

import os
import platform
import stat
import sys
import tempfile
import zipfile

ARCHIVE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        python, machine, digest = archive.read("BUILT_FOR").decode("ascii").split()
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if (python, machine) != (here, platform.machine()):
            sys.exit(
                f"plimsoll: this file is for Python {python} on {machine}, this is Python {here} on "
                f"{platform.machine()}: "
                "use the file for this machine, or install the wheel (pipx install plimsoll-k8s)"
            )
        place = os.path.join(_own_directory(), digest)
        if not os.path.isdir(place):
            _unpack(archive, place)
    environment = dict(os.environ, PYTHONPATH=place, PYTHONNOUSERSITE="1")
    os.execve(sys.executable, [sys.executable, "-m", "plimsoll", *sys.argv[1:]], environment)


def _own_directory() -> str:
    """Only the caller may write there."""
    base = "/var/cache" if os.geteuid() == 0 else os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(base, "plimsoll")
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        sys.exit(f"plimsoll: {path} must be a directory that only you may write")
    return path


def _unpack(archive: zipfile.ZipFile, place: str) -> None:
    made = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(place))
    for name in archive.namelist():
        if name.startswith("site/") and ".." not in name.split("/"):
            archive.extract(name, made)
    try:
        os.rename(os.path.join(made, "site"), place)
    except OSError:  # another process was first
        if not os.path.isdir(place):
            raise


main()

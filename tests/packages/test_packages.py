"""What `make deb` and `make dist` make: looked at, installed, run and removed. `make check-packages` makes them first."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'QUASAR_VERSION "(.*)"', (ROOT / "lib/base/version.h").read_text())[1]
DIST = ROOT / "dist" / f"quasar-{VERSION}"
DEB, = (ROOT / "dist").glob(f"quasar_{VERSION}_*.deb")
INSTALLED = ("bin/quasar", "share/man/man1/quasar-commit.1", "share/bash-completion/completions/quasar",
             "share/zsh/site-functions/_quasar", "share/fish/vendor_completions.d/quasar.fish")


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


# --- the Debian package --------------------------------------------------------------------------------

def test_lintian_finds_nothing():
    done = run("lintian", "--fail-on", "warning,error", DEB)
    assert done.returncode == 0 and done.stdout == "", done.stdout


def test_it_is_of_this_version_and_complete():
    fields = run("dpkg-deb", "--field", DEB).stdout
    assert f"\nVersion: {VERSION}\n" in fields
    listed = set(re.findall(r" \./(\S+)$", run("dpkg-deb", "--contents", DEB).stdout, re.M))
    pages = {f"usr/share/man/man1/{page.name}.gz" for page in (ROOT / "man").iterdir()}
    assert pages | {"usr/bin/quasar", "usr/share/bash-completion/completions/quasar",
                    "usr/share/zsh/vendor-completions/_quasar", "usr/share/fish/vendor_completions.d/quasar.fish",
                    "usr/share/doc/quasar/copyright", "usr/share/doc/quasar/changelog.gz"} <= listed


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A Debian with nothing in it but what the package asks for, which apt has installed."""
    place = tmp_path_factory.mktemp("clean") / "root"
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines())
    done = run("mmdebstrap", "--quiet", "--variant=apt", f"--customize-hook=copy-in {DEB} /tmp",
               f'--customize-hook=chroot "$1" apt-get install -y -qq --no-install-recommends /tmp/{DEB.name}',
               release["VERSION_CODENAME"], place)
    assert done.returncode == 0, done.stderr
    yield place
    shutil.rmtree(place)


@pytest.fixture
def inside(root, tmp_path):
    """Runs a program in it, as nobody in particular, with an empty home and no network."""

    def run_inside(*command):
        return run("bwrap", "--bind", root, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", tmp_path,
                   "/home", "--unshare-all", "--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/sbin:/usr/bin",
                   "--setenv", "HOME", "/home", "--chdir", "/home", *command)

    return run_inside


def test_in_a_clean_root_it_runs(inside):
    assert inside("quasar", "--version").stdout == f"quasar {VERSION}\n"
    assert not inside("sh", "-c", "command -v git || command -v python3 || command -v curl").stdout
    for command in (["wallet", "new"], ["init", "miner", "--seq", "64"], ["-C", "miner", "verify", "--static"],
                    ["-C", "miner", "bench", "--native", "--budget", "1"]):
        done = inside("quasar", *command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    checks = {check["name"]: check for check in json.loads(inside("quasar", "-C", "miner", "doctor", "--json").stdout)["checks"]}
    for name in ("libraries", "openblas", "store", "wallet", "permissions"):
        assert checks[name]["status"] == "ok", checks[name]


def test_removed_it_leaves_nothing(inside, root):
    before = inside("dpkg", "--listfiles", "quasar").stdout.split()
    done = inside("dpkg", "--purge", "quasar")
    left = [path for path in before if (root / path[1:]).is_file()]
    assert "/usr/bin/quasar" in before and left == [], done.stderr


# --- the folder ----------------------------------------------------------------------------------------

@pytest.fixture
def folder(tmp_path):
    """As it comes out of the tarball, somewhere else than it was made."""
    with tarfile.open(f"{DIST}.tar.gz") as tarball:
        tarball.extractall(tmp_path / "download", filter="tar") if hasattr(tarfile, "tar_filter") else \
            tarball.extractall(tmp_path / "download")
    return tmp_path / "download" / DIST.name


@pytest.fixture
def install(folder, tmp_path):
    """Runs the installer: install(…, programs={"uname": "echo riscv64"}, script=…)."""

    def call(*args, prefix=tmp_path / "prefix", programs={}, script=folder / "install.sh"):
        fakes = tmp_path / "fakes"
        fakes.mkdir(exist_ok=True)
        for name, text in programs.items():
            (fakes / name).write_text(f"#!/bin/sh\n{text}\n")
            (fakes / name).chmod(0o755)
        env = {"PATH": f"{fakes}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
        return run(script, *args, env={**env, "PREFIX": str(prefix)} if prefix else env)

    return call


def quasar(prefix, *args):
    return run(prefix / "bin" / "quasar", *args, env={"PATH": "/usr/bin:/bin", "HOME": str(prefix)})


def test_the_folder_carries_all_but_the_c_library(folder):
    """As the loader finds them; OpenBLAS is opened by name."""
    for program in (folder / "bin/quasar", folder / "lib/libopenblas.so.0"):
        found = re.findall(r"(\S+) => (\S+)", run("ldd", program).stdout)
        others = {name for name, path in found if not path.startswith(f"{folder}/")}
        assert found and others <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
                                    "libresolv.so.2"}, others
    checks = json.loads(quasar(folder, "doctor", "--json", "--api", "http://127.0.0.1:9").stdout)["checks"]
    blas, = [check["detail"] for check in checks if check["name"] == "openblas"]
    assert blas == str(folder / "bin/../lib/libopenblas.so.0")


def test_it_installs_and_removes_itself(install, folder, tmp_path):
    prefix = tmp_path / "prefix"
    done = install()
    assert done.returncode == 0 and f"quasar {VERSION}\n" in done.stdout and f"add {prefix}/bin to your PATH" in done.stdout
    shutil.rmtree(folder)  # a download is thrown away
    for path in INSTALLED:
        assert (prefix / path).exists(), path
    assert quasar(prefix, "--version").stdout == f"quasar {VERSION}\n"
    (prefix / "share/man/man1/other.1").write_text("")
    assert install("--uninstall", script=prefix / "lib/quasar/install.sh", prefix=None).returncode == 0
    assert [path.name for path in prefix.rglob("*") if not path.is_dir()] == ["other.1"]


def test_a_newer_one_takes_its_place(install, tmp_path):
    prefix = tmp_path / "prefix"
    assert install().returncode == 0
    (prefix / "lib/quasar/share/man/man1/quasar-gone.1").write_text("")
    (prefix / "share/man/man1/quasar-gone.1").symlink_to(prefix / "lib/quasar/share/man/man1/quasar-gone.1")
    assert install().returncode == 0
    assert not os.path.lexists(prefix / "share/man/man1/quasar-gone.1")
    assert quasar(prefix, "--version").returncode == 0 and not (prefix / "lib/quasar.new").exists()


@pytest.mark.parametrize("user, place", [("1000", "home/.local"), ("0", None)])
def test_where_it_goes_by_itself(install, tmp_path, user, place):
    """For root only what is said before anything is written: this machine is not for installing into."""
    fakes = {"id": f"echo {user}", **({} if place else {"mkdir": "exit 1"})}
    done = install(prefix=None, programs=fakes)
    if place:
        assert done.returncode == 0 and (tmp_path / place / "bin/quasar").exists()
    else:
        assert done.returncode == 3 and "cannot write to /usr/local" in done.stderr


@pytest.mark.parametrize("programs, says", [
    ({"getconf": "echo glibc 2.17"}, "or later; this system has 2.17"),
    ({"getconf": "exit 1"}, "another C library"),
    ({"uname": "echo riscv64"}, "this machine is riscv64"),
])
def test_a_machine_that_cannot_run_it_is_told_so(install, tmp_path, programs, says):
    done = install(programs=programs)
    assert done.returncode == 3 and says in done.stderr and not (tmp_path / "prefix").exists()


def test_the_glibc_that_it_asks_for_is_the_newest_that_is_used(folder):
    """By the symbols' versions, which the loader checks."""
    used = {version for path in [*folder.glob("bin/*"), *folder.glob("lib/*")]
            for version in re.findall(r"GLIBC_(2[.0-9]*)", run("readelf", "--version-info", path).stdout)}
    newest = max(used, key=lambda version: [int(part) for part in version.split(".")])
    assert f"glibc {newest} or later" in (folder / "README.md").read_text()
    assert f"'%s\\n' {newest} " in (folder / "install.sh").read_text()


def test_wrong_usage(install, tmp_path):
    assert install("--frobnicate").returncode == 2
    assert "usage:" in install("--help").stdout
    assert install("--uninstall").returncode == 3 and not (tmp_path / "prefix").exists()

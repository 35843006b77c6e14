"""The job files of `vlmrobust submit slurm` on a real SLURM: a cluster of this machine alone, which the tests start and end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from .conftest import Project
from .test_submitting import BATCH, MIDDLE, Part, environment, wait_until

pytestmark = pytest.mark.slow
DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = ("sbatch", "scancel", "scontrol", "squeue")
CONFIGURATION = """
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=30
OverTimeLimit=0
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """A SLURM of one node, in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self) -> None:
        """Starts the daemons, and waits until the node takes jobs; skips the tests where they cannot run."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(folder=self.folder, host=host, ports=free_ports(2))
        (self.folder / "slurm.conf").write_text(text)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        self._run("munged", "--foreground", "--force", *(f"--{name}={self.folder}/munge.{end}" for name, end in files.items()))
        self._wait((self.folder / "munge.socket").exists)
        self._run("slurmctld", "-D", "-f", self.variables["SLURM_CONF"])
        self._wait(lambda: "is UP" in self.call("scontrol", "ping", check=False))
        self._run("slurmd", "-D", "-f", self.variables["SLURM_CONF"])
        self._wait(lambda: self.is_idle)

    def stop(self) -> None:
        """Ends all jobs and daemons."""
        try:
            if len(self._daemons) == len(DAEMONS):
                self.call("scancel", "--signal=KILL", "--full", "--user=root", check=False)
                self.call("scancel", "--user=root", check=False)
                wait_until(lambda: not self.call("squeue", "--noheader"), "all jobs were over")
        finally:
            for _, process in reversed(self._daemons):
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    @property
    def is_idle(self) -> bool:
        """Whether the node takes jobs, and has none."""
        return "State=IDLE " in self.call("scontrol", "--oneliner", "show", "node")

    def call(self, *command: str, check: bool = True, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
        """Returns what a program of SLURM prints."""
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env={**self.variables, **(variables or {})}
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, part: Part, *command: str) -> str:
        """Submits a part, and returns the number of its job."""
        self.call(*command, cwd=part.path, variables=environment(part.path))
        return max(self.call("squeue", "--noheader", "--name=vlmrobust-fill", "--format=%A").split(), key=int)

    def state(self, job: str) -> str:
        """Returns the state of the part of a job, such as ``RUNNING``."""
        found = re.search(r"JobState=(\w+)", self.call("scontrol", "--oneliner", "show", "job", f"{job}_0"))
        assert found
        return found[1]

    def _run(self, *command: str) -> None:
        name = command[0]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.variables)
        self._daemons.append((name, process))

    def _wait(self, condition: Callable[[], object]) -> None:
        """Waits for what the last daemon does first."""
        name, process = self._daemons[-1]
        wait_until(lambda: process.poll() is not None or condition(), f"{name} was up")
        if process.poll() is not None:
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            pytest.skip(f"{name} ended with {process.returncode}: {log[-500:]}")


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nobody uses."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster, with which this machine runs jobs of root."""
    absent = [name for name in (*DAEMONS, *PROGRAMS) if shutil.which(name) is None]
    if absent:
        pytest.skip(f"SLURM is not installed here: no {', '.join(absent)}. Debian has slurm-wlm and munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as root alone")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # the path of a socket must be short
        made = Cluster(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


def end(cluster: Cluster, part: Part, job: str, *command: str) -> tuple[int, int]:
    """Ends a part in its middle, and returns how many answers were copied, and how many inferences there were."""
    wait_until(lambda: part.inferred >= MIDDLE, "the part was in the middle")
    if command:
        cluster.call(*command)
    wait_until(lambda: cluster.state(job) != "RUNNING" and cluster.is_idle, f"job {job} ended: {command}")
    kept, before = part.copied, part.inferred
    log = (part.path / f"fill-{job}_0.log").read_text()
    assert MIDDLE - BATCH <= kept <= before <= kept + BATCH, log
    assert f"pytest was interrupted (by SIGTERM): the store has {kept} answers" in log
    assert not list((part.path / "tmp").iterdir()), "nothing is left on the local disk"
    part.take(0)
    return kept, before


def finish(cluster: Cluster, part: Part, job: str, kept: int, before: int) -> None:
    """Waits until a part is complete, and checks that it went on from what was copied."""
    wait_until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"), f"job {job} ended")
    log = (part.path / f"fill-{job}_0.log").read_text()
    assert cluster.state(job) == "COMPLETED", log
    part.finish(log, kept, before)


def test_a_part_that_is_requeued_goes_on_and_is_judged(cluster: Cluster, project: Project) -> None:
    part = Part(project)
    job = cluster.submit(part, "bash", "jobs/submit.sh")
    kept, before = end(cluster, part, job, "scontrol", "requeue", f"{job}_0")
    cluster.call("scontrol", "update", f"JobId={job}_0", "StartTime=now")  # else SLURM waits for two minutes
    finish(cluster, part, job, kept, before)
    results = part.shared / "report/results.json"
    wait_until(lambda: results.exists() and cluster.is_idle, "the gate was judged")
    (log,) = project.path.glob("judge-*.log")
    assert "\nGO " in log.read_text()
    assert json.loads(results.read_text())["decision"] == "GO"


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("scancel {job}", "CANCELLED"),
        ("scancel --batch --signal=TERM {job}", "FAILED"),  # as --signal=B:TERM@N
    ],
)
def test_a_part_that_is_ended_leaves_its_answers(cluster: Cluster, project: Project, command: str, state: str) -> None:
    part = Part(project)
    job = cluster.submit(part, "sbatch", "jobs/fill.sbatch")
    kept, before = end(cluster, part, job, *command.format(job=job).split())
    assert cluster.state(job) == state
    finish(cluster, part, cluster.submit(part, "sbatch", "jobs/fill.sbatch"), kept, before)


def test_a_part_that_reaches_its_time_limit_leaves_its_answers(cluster: Cluster, project: Project) -> None:
    part = Part(project)
    part.take(2)
    job = cluster.submit(part, "sbatch", "--time=1", "jobs/fill.sbatch")
    kept, before = end(cluster, part, job)
    assert cluster.state(job) == "TIMEOUT"
    finish(cluster, part, cluster.submit(part, "sbatch", "jobs/fill.sbatch"), kept, before)

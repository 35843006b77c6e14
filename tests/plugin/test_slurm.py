"""The job files of `vlmrobust submit slurm` on a real SLURM: a cluster of this machine alone, which the tests start and end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .conftest import Project
from .test_submitting import BATCH, MIDDLE, Part, environment, wait_until

pytestmark = pytest.mark.slow
DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = ("sbatch", "scancel", "scontrol", "squeue", "unshare")
NODES = ("n0", "n1")
ALONE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
"""Runs the daemon of a node in its own process namespace: killing it kills all of the node, as a power cut does."""
CONFIGURATION = """
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
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
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """A SLURM of two nodes, in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Starts the daemons, and waits until the nodes take jobs; skips the tests where they cannot run."""
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(folder=self.folder, host=host, ports=free_ports(3))
        (self.folder / "slurm.conf").write_text(text)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        munge = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        self._run("munged", ("munged", "--foreground", "--force", *munge), (self.folder / "munge.socket").exists)
        self._run("slurmctld", ("slurmctld", "-D"), lambda: "is UP" in self.call("scontrol", "ping", check=False))
        for name in NODES:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        """Starts a node, and waits until it takes jobs."""
        self._run(name, (*ALONE, "slurmd", "-D", "-N", name), lambda: "State=IDLE " in self._nodes(name))

    def kill_node(self, name: str) -> None:
        """Kills all processes of a node at once, and tells SLURM, which notices by itself after ``SlurmdTimeout``."""
        self._daemons[name].kill()
        self._daemons[name].wait()
        self.call("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=killed")

    def stop(self) -> None:
        """Ends all jobs and daemons."""
        try:
            if len(self._daemons) == len(NODES) + 2:
                self.call("scancel", "--signal=KILL", "--full", "--user=root", check=False)
                self.call("scancel", "--user=root", check=False)
                wait_until(lambda: not self.call("squeue", "--noheader"), "all jobs were over")
        finally:
            for process in reversed(self._daemons.values()):
                process.kill()
                process.wait()

    @property
    def is_idle(self) -> bool:
        """Whether the nodes take jobs, and have none."""
        return self._nodes().count("State=IDLE ") == len(NODES)

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
        return max(self.call("squeue", "--noheader", "--name=vlmrobust-fill", "--format=%F").split(), key=int)

    def state(self, job: str, part: int = 0, key: str = "JobState") -> str:
        """Returns the state of a part of a job, such as ``RUNNING``, or what else SLURM says of it."""
        match = re.search(rf"\b{key}=(\w+)", self.call("scontrol", "--oneliner", "show", "job", f"{job}_{part}"))
        assert match
        return match[1]

    def _nodes(self, *names: str) -> str:
        return self.call("scontrol", "--oneliner", "show", "node", *names)

    def _run(self, name: str, command: Sequence[str], condition: Callable[[], object]) -> None:
        """Starts a daemon, and waits for what it does first."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.variables)
        self._daemons[name] = process
        wait_until(lambda: process.poll() is not None or condition(), f"{name} was up")
        if process.poll() is not None:
            end = (self.folder / f"{name}.log").read_text(errors="replace")[-500:]
            pytest.skip(f"{name} ended with {process.returncode}: {end}")


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nobody uses."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


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


LARGEST = 2
"""The part of four that has most questions."""


def campaign(cluster: Cluster, project: Project) -> tuple[Part, str]:
    """Submits a gate in four parts, of which the largest one is running and has a copy, and returns it and its job."""
    part = Part(project, parts=4)
    part.copy = part.shared / f"parts/{LARGEST}/predictions.sqlite"
    script = project.path / "jobs/fill.sbatch"
    script.write_text(script.read_text().replace("cli fill", "cli fill --every 1"))
    job = cluster.submit(part, "bash", "jobs/submit.sh")
    wait_until(lambda: cluster.state(job, LARGEST) == "RUNNING", "the largest part was running")
    part.take(1)
    wait_until(lambda: part.copied >= BATCH, "it had a copy")
    return part, job


def judged(cluster: Cluster, part: Part) -> str:
    """Waits until all jobs are over, and returns the decision."""
    part.take(0)
    wait_until(lambda: not cluster.call("squeue", "--noheader"), "all jobs were over")
    return str(json.loads((part.shared / "report/results.json").read_text())["decision"])


def answers(part: Part) -> list[str]:
    """Returns the keys of the answers in all parts."""
    keys = []
    for number in range(4):
        store = part.shared / f"parts/{number}/predictions.sqlite"
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as connection:
            keys += [key for (key,) in connection.execute("select key from predictions")]
    assert len(set(keys)) == len(keys), "no part has an answer of another"
    return keys


def test_a_campaign_of_four_parts_survives_a_node_that_dies(cluster: Cluster, project: Project) -> None:
    part, job = campaign(cluster, project)
    node = cluster.state(job, LARGEST, "BatchHost")
    cluster.kill_node(node)
    kept = part.copied
    wait_until(lambda: cluster.state(job, LARGEST, "Restarts") == "1", "SLURM had put the part into the queue again")
    cluster.call("scontrol", "update", f"JobId={job}_{LARGEST}", "StartTime=now")  # else SLURM waits for two minutes
    assert judged(cluster, part) == "GO", "by the other node alone"
    cluster.start_node(node)
    keys = answers(part)
    assert f"goes on from {kept} answers" in (part.path / f"fill-{job}_{LARGEST}.log").read_text()
    assert len(keys) <= part.inferred <= len(keys) + 2 * BATCH, "only what had not been copied was asked twice"
    assert len(list(part.path.glob("judge-*.log"))) == 1, "the gate is judged once, after the part that ran again"


def test_a_campaign_of_four_parts_is_incomplete_without_one_of_them_and_goes_on(cluster: Cluster, project: Project) -> None:
    part, job = campaign(cluster, project)
    cluster.call("scancel", f"{job}_{LARGEST}")
    wait_until(lambda: cluster.state(job, LARGEST) == "CANCELLED", "the part was over")
    assert judged(cluster, part) == "INCOMPLETE"
    kept, before = answers(part), part.inferred
    cluster.submit(part, "bash", "jobs/submit.sh")
    assert judged(cluster, part) == "GO"
    keys = answers(part)
    assert set(kept) < set(keys)
    assert part.inferred - before == len(keys) - len(kept), "only what was missing is asked"


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

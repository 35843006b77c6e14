#!/usr/bin/env bash
set -eu
here="$(cd -- "$(dirname -- "$0")" && pwd)"
fill="$(sbatch --parsable "$here/fill.sbatch")"
# afterany: what is there is judged, also after a part that failed or ran out of time. afterok would then wait for ever
sbatch --dependency="afterany:${fill%%;*}" "$here/judge.sbatch"

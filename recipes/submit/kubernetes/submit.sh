#!/usr/bin/env bash
set -eu
here="$(cd -- "$(dirname -- "$0")" && pwd)"
kubectl apply -f "$here/fill.yaml"
while true; do
    if state="$(kubectl get job {{ name }}-fill --ignore-not-found -o jsonpath='{.metadata.name} {.status.conditions[*].type}')"; then
        case "$state" in
            "")
                echo "The job {{ name }}-fill was deleted: nothing is judged. To judge what is there: kubectl apply -f $here/judge.yaml" >&2
                exit 1
                ;;
            *Complete* | *Failed*) break ;;
        esac
    fi  # else the cluster did not answer
    sleep 10
done
kubectl apply -f "$here/judge.yaml"

set -u
python="${PYTHON:-python}"
shared={{ shared }}
work="$(mktemp -d)" || exit 1
trap 'rm -rf "$work"' EXIT

parts=("$shared"/parts/*/predictions.sqlite)
"$python" -m pytest_vlmrobust.cli merge "${parts[@]%/*}" --out "$work/all" || exit 11

"$python" -m pytest {{ options }} --vlm-offline --vlm-store="$work/all" --vlm-report="$shared/report"
status=$?

new="$shared/store.new"
rm -rf "$new" && cp -r "$work/all" "$new" && rm -rf "$shared/store" && mv "$new" "$shared/store"
exit "$status"
